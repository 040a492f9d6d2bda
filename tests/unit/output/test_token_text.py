"""Whatever the tokens, the text is that of all bytes decoded together."""

import pytest
from hypothesis import example, given, settings

from proxy_inference_engine.output.token_text import Detokenizer
from tests.unit.output.pieces import CJK, END, FAMILY, MARK, THAI, PieceTokenizer, cut, places, streams, texts


def detokenize(pieces: list[bytes]) -> list[str]:
    """The text of each token, then what `finish` gave."""
    detokenizer = Detokenizer(PieceTokenizer(pieces))
    return [*(detokenizer.feed(2 + index) for index in range(len(pieces))), detokenizer.finish()]


@settings(deadline=None)
@given(streams, places)
@example(b"\xed\xa0\x80", [1, 2])
@example(b"\xf0\x9f\x91A", [1, 2, 3])
@example(b"\xe0\x80", [1])
def test_any_split_equals_the_whole_decoded(data: bytes, where: list[int]) -> None:
    assert "".join(detokenize(cut(data, where))) == data.decode("utf-8", "replace")


@settings(deadline=None)
@given(texts, places)
def test_valid_text_never_shows_a_replacement(data: bytes, where: list[int]) -> None:
    *fed, rest = detokenize(cut(data, where))
    assert "".join(fed) == data.decode()
    assert rest == ""


@pytest.mark.parametrize("text", [FAMILY, THAI, CJK, "a\u0301é😀", "\ufffd"])
def test_characters_appear_whole_and_at_once(text: str) -> None:
    data = text.encode()
    shown = detokenize([bytes([byte]) for byte in data])
    assert [char for char in shown if char] == list(text)
    for index in range(len(data)):
        assert "".join(shown[: index + 1]) == data[: index + 1].decode("utf-8", "ignore")


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([b"\xe2\x82"], ["", "\ufffd"]),  # the end of the stream is the end of the character
        ([b"\xe2\x82", b"A"], ["", "\ufffdA", ""]),
        ([b"\xe2", b"\xe2\x82", b"\xac"], ["", "\ufffd", "€", ""]),
        ([b"\xff", b"ok"], ["\ufffd", "ok", ""]),
        ([b"", b"\xe2", b"", b"\x82\xac"], ["", "", "", "€", ""]),
    ],
)
def test_broken_bytes(pieces: list[bytes], expected: list[str]) -> None:
    assert detokenize(pieces) == expected


def test_control_tokens_have_no_text_and_do_not_break_a_character() -> None:
    detokenizer = Detokenizer(PieceTokenizer([b"\xe2\x82", b"\xac"]))
    assert [detokenizer.feed(token_id) for token_id in (MARK, 2, MARK, 3, END)] == ["", "", "", "€", ""]
    assert detokenizer.finish() == ""


@settings(deadline=None)
@given(streams, places)
@example(b"\xed\xa0\x80", [1, 2])  # Python's decoder waits for the third byte of a surrogate
def test_ranges_hold_every_character_with_a_byte_of_the_token(data: bytes, where: list[int]) -> None:
    pieces = cut(data, where)
    detokenizer = Detokenizer(PieceTokenizer(pieces))
    position = 0
    for index, piece in enumerate(pieces):
        detokenizer.feed(2 + index)
        # The last character of a decoded beginning is the one that its last byte is part of.
        chars = [len(data[: position + i + 1].decode("utf-8", "replace")) - 1 for i in range(len(piece))]
        if chars:
            assert (detokenizer.start, detokenizer.end) == (chars[0], chars[-1] + 1)
        position += len(piece)
