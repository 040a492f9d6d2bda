import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy_inference_engine.prompt.user_text import PromptEncoder, TextSpan
from tests.unit.prompt.table import SPECIALS, TableTokenizer

FRAGMENTS = [*SPECIALS, "<|im_", "start|>", "<", "|>", "Hello", "user\n", "n", "\n", "!", "é"]


def test_special_texts_are_found_outside_contents_only() -> None:
    tokenizer = TableTokenizer()
    text = "<|im_start|>a<|im_start|>b<|im_end|>"
    content = TextSpan(text.index(">a") + 1, text.index("b<"))
    ids = PromptEncoder(tokenizer).encode(text, [content])
    assert [each for each in ids if each in tokenizer.control_ids] == [3, 4]
    assert tokenizer.text(ids) == text


def test_template_and_content_are_merged_over_their_border() -> None:
    tokenizer = TableTokenizer()
    text = "<|im_start|>user\nHello<|im_end|>"
    start = text.index("Hello")
    ids = PromptEncoder(tokenizer).encode(text, [TextSpan(start, start + 5)])
    assert ids == (3, 100, 102, 4) == tokenizer.encode_whole(text)
    assert PromptEncoder(tokenizer).encode("x\nHello", [TextSpan(2, 7)]) == tokenizer.encode_whole("x\nHello")
    assert 101 in tokenizer.encode_whole("x\nHello")  # the newline was the template's


def test_a_special_text_never_reaches_over_the_border_of_a_content() -> None:
    encoder = PromptEncoder(TableTokenizer())
    text = "<|im_start|>"
    for cut in range(1, len(text)):
        assert 3 not in encoder.encode(text, [TextSpan(0, cut)])
        assert 3 not in encoder.encode(text, [TextSpan(cut, len(text))])
        assert 3 not in encoder.encode(text, [TextSpan(0, cut), TextSpan(cut, len(text))])


def test_the_longest_special_text_wins() -> None:
    encoder = PromptEncoder(TableTokenizer())
    assert encoder.special_ids("<|im|><|im_end|>") == [5, 4]
    assert encoder.special_ids("<|im_|>") == []


def test_white_space_is_never_special() -> None:
    assert 8 not in PromptEncoder(TableTokenizer()).encode("a\n\nb", [])


def test_at_most_one_bos() -> None:
    wants = PromptEncoder(TableTokenizer(bos_id=1))
    without = PromptEncoder(TableTokenizer())
    assert wants.encode("<s>a", []) == wants.encode("a", []) == wants.encode("<s><s>a", []) == (1, 1097)
    assert without.encode("<s>a", []) == (1, 1097)
    assert without.encode("a", []) == (1097,)
    assert wants.encode("", []) == (1,)


@pytest.mark.parametrize(
    ("text", "reads_specials", "adds_bos", "ids"),
    [
        ("a", True, True, (1, 1097)),
        ("a", True, False, (1097,)),
        ("<s>a", True, True, (1, 1097)),
        ("<s>a", True, False, (1, 1097)),
        ("a<|im_end|>a", True, True, (1, 1097, 4, 1097)),
        ("<|im_end|>", False, False, tuple(TableTokenizer().encode("<|im_end|>"))),
        ("", True, True, (1,)),
        ("", True, False, ()),
    ],
)
def test_raw_text(text: str, reads_specials: bool, adds_bos: bool, ids: tuple[int, ...]) -> None:
    encoder = PromptEncoder(TableTokenizer(bos_id=1))
    assert encoder.encode_raw(text, reads_specials=reads_specials, adds_bos=adds_bos) == ids


def test_a_vocabulary_without_special_tokens_works() -> None:
    tokenizer = TableTokenizer()
    tokenizer.specials = {}
    assert PromptEncoder(tokenizer).encode("<s>", []) == tuple(tokenizer.encode("<s>"))


def test_what_may_complete_a_special_text() -> None:
    encoder = PromptEncoder(TableTokenizer())
    for text in ("<|im_end|>", "a <", "start|> b", ">", "x<|im_start|>y"):
        assert encoder.may_complete_special(text)
    for text in ("", "low", "26 Jul 2024", "a < b", "x > y."):
        assert not encoder.may_complete_special(text)


def test_many_special_tokens_are_searched_in_linear_time() -> None:
    tokenizer = TableTokenizer()
    tokenizer.specials = {f"<unused{number}>": number for number in range(6000)}
    encoder = PromptEncoder(tokenizer)
    assert encoder.special_ids("<unused5999><unused59>") == [5999, 59]
    start = time.thread_time()
    assert encoder.special_ids("<unused" * 100_000) == []
    assert time.thread_time() - start < 30


@given(st.lists(st.tuples(st.booleans(), st.lists(st.sampled_from(FRAGMENTS), max_size=6).map("".join)), max_size=8))
def test_ids_spell_the_text_and_contents_hold_no_special_token(parts: list[tuple[bool, str]]) -> None:
    tokenizer = TableTokenizer()
    encoder = PromptEncoder(tokenizer)
    text, spans, expected = "", [], list[int]()
    scaffold = ""
    for is_content, part in parts:
        if is_content:
            expected += encoder.special_ids(scaffold)
            scaffold = ""
            spans.append(TextSpan(len(text), len(text) + len(part)))
        else:
            scaffold += part
        text += part
    expected += encoder.special_ids(scaffold)
    ids = encoder.encode(text, spans)
    assert tokenizer.text(ids) == text
    assert [each for each in ids if each in tokenizer.control_ids] == expected
    if not any(is_content for is_content, _ in parts):
        assert ids == tokenizer.encode_whole(text)
