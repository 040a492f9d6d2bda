"""Log-probabilities travel with the text of their tokens: none lost, none early, none twice."""

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy_inference_engine.output.events import Ended, Event, PromptRead, TextDelta, TokenLogprob, TopLogprob
from proxy_inference_engine.output.pipeline import Pipeline
from proxy_inference_engine.types import Finished, Logprob, Output, Prefilled, Token
from tests.unit.output.pieces import (
    CJK,
    END,
    FAMILY,
    MARK,
    TIMINGS,
    PieceTokenizer,
    cut,
    logprobs_of,
    outputs,
    places,
    run,
    streams,
    text_of,
    texts,
)
from tests.unit.output.test_stop import search


def events_of(pieces: Sequence[bytes], *, stop: Sequence[str] = (), min_tokens: int = 0) -> list[Event]:
    pipeline = Pipeline(PieceTokenizer(pieces), stop=stop, min_tokens=min_tokens)
    return run(pipeline, outputs(pieces, has_logprobs=True))


def deltas_of(events: Sequence[Event]) -> list[tuple[str, list[bytes]]]:
    """Each delta's text and the bytes of its entries."""
    deltas = [event for event in events if isinstance(event, TextDelta)]
    return [(delta.text, [entry.bytes for entry in delta.logprobs]) for delta in deltas]


def ranges(pieces: Sequence[bytes]) -> list[tuple[int, int]]:
    """By brute force: where the characters lie that hold a byte of each (non-empty) piece."""
    data = b"".join(pieces)
    owners = [len(data[: index + 1].decode("utf-8", "replace")) - 1 for index in range(len(data))]
    edges = [sum(map(len, pieces[:index])) for index in range(len(pieces) + 1)]
    return [(owners[start], owners[end - 1] + 1) for start, end in itertools.pairwise(edges)]


@settings(deadline=None)
@given(texts, places)
def test_bytes_add_up_to_the_text(data: bytes, where: list[int]) -> None:
    events = events_of(cut(data, where))
    assert b"".join(entry.bytes for entry in logprobs_of(events)) == text_of(events).encode() == data


@settings(deadline=None, max_examples=200)
@given(streams, places, st.sampled_from([(), ("zzz",), ("\n\n", "plain p"), ("👩‍👩‍👧‍👦👩",)]))
def test_every_token_is_there_once_in_order(data: bytes, where: list[int], stop: Sequence[str]) -> None:
    pieces = cut(data, where)
    events = events_of(pieces, stop=stop)
    (ended,) = (event for event in events if isinstance(event, Ended))
    if ended.stop_str is None:
        assert [entry.token_id for entry in logprobs_of(events)] == list(range(2, 2 + len(pieces)))


@settings(deadline=None, max_examples=300)
@given(
    st.text(alphabet="ab漢😀", max_size=16),
    st.lists(st.text(alphabet="ab漢😀", min_size=1, max_size=4), max_size=3),
    places,
)
def test_entries_leave_with_their_last_character(text: str, stops: list[str], where: list[int]) -> None:
    pieces = [piece for piece in cut(text.encode(), where) if piece]
    spans = ranges(pieces)
    events = events_of(pieces, stop=stops)
    deltas = deltas_of(events)
    num_chars = num_entries = 0
    for delta_text, entries in deltas[:-1]:
        num_chars += len(delta_text)
        num_entries += len(entries)
        assert num_entries == sum(end <= num_chars for _, end in spans)
    shown, _ = search(stops, text)
    kept = [index + 2 for index, (start, _) in enumerate(spans) if start < len(shown)]
    assert [entry.token_id for entry in logprobs_of(events)] == kept


@pytest.mark.parametrize(
    ("pieces", "stop", "expected"),
    [
        pytest.param(
            [b"a", b"\xe6\xbc", b"\xa2", b"b"],
            [],
            [("a", [b"a"]), ("漢", [b"\xe6\xbc", b"\xa2"]), ("b", [b"b"])],
            id="halves of a character leave together",
        ),
        pytest.param(
            [b"a\xe6", b"\xbc\xa2b"],
            [],
            [("a", []), ("漢b", [b"a\xe6", b"\xbc\xa2b"])],
            id="not before its last character",
        ),
        pytest.param(
            [b"x <", b"e", b"!"],
            ["<end>"],
            [("x ", []), ("<e!", [b"x <", b"e", b"!"])],
            id="held back with its text",
        ),
        pytest.param([b"x", b"<e", b"nd>"], ["<end>"], [("x", [b"x"])], id="trimmed tokens are dropped"),
        pytest.param([b"x <e", b"nd>"], ["<end>"], [("x ", []), ("", [b"x <e"])], id="a partly trimmed token is kept"),
        pytest.param([b"x<end>y"], ["<end>"], [("x", [b"x<end>y"])], id="trimmed on both sides"),
        pytest.param([b"<en", b"d>"], ["<end>"], [], id="nothing is left"),
        pytest.param([b"ok", b"\xe2\x82"], [], [("ok", [b"ok"]), ("\ufffd", [b"\xe2\x82"])], id="broken at the end"),
        pytest.param([b"\xe2", b"#"], ["#"], [("\ufffd", [b"\xe2"])], id="a stop string breaks off a character"),
        pytest.param([b"ok", b""], [], [("ok", [b"ok"]), ("", [b""])], id="a token without bytes is not lost"),
    ],
)
def test_deltas(pieces: list[bytes], stop: list[str], expected: list[tuple[str, list[bytes]]]) -> None:
    assert deltas_of(events_of(pieces, stop=stop)) == expected


def test_entries_are_spelled_out_with_raw_bytes() -> None:
    tokenizer = PieceTokenizer([b"\xe6\xbc", b"\xa2", b"no"])
    top = ((2, -0.5), (4, -1.5), (END, -3.0))
    stream: list[Output] = [
        Prefilled(0),
        Token(2, Logprob(2, -0.5, top)),
        Token(3, Logprob(3, -0.25)),
        Finished("length", TIMINGS),
    ]
    first, second = logprobs_of(run(Pipeline(tokenizer), stream))
    assert first == TokenLogprob(
        token="\ufffd",
        logprob=-0.5,
        bytes=b"\xe6\xbc",
        top=(
            TopLogprob("\ufffd", -0.5, b"\xe6\xbc", 2),
            TopLogprob("no", -1.5, b"no", 4),
            TopLogprob("<|end|>", -3.0, b"<|end|>", END),
        ),
        token_id=2,
    )
    assert second == TokenLogprob("\ufffd", -0.25, b"\xa2", (), 3)


def test_only_visible_content_has_entries() -> None:
    stream: list[Output] = [
        Prefilled(0),
        Token(MARK, Logprob(MARK, -1.0)),
        Token(2, Logprob(2, -2.0)),
        Token(END, Logprob(END, -3.0), is_visible=False),
        Finished("stop", TIMINGS),
    ]
    events = run(Pipeline(PieceTokenizer([b"hi"])), stream)
    assert deltas_of(events) == [("hi", [b"hi"])]


def test_none_are_sent_when_none_were_asked() -> None:
    pieces = [b"a", CJK.encode(), FAMILY.encode()]
    events = run(Pipeline(PieceTokenizer(pieces), stop=["?"]), outputs(pieces))
    assert logprobs_of(events) == []


def test_prompt_entries_one_per_token() -> None:
    tokenizer = PieceTokenizer([b"a", b"\xe6"])
    prefilled = Prefilled(5, (None, Logprob(3, -1.0, ((2, -0.5),)), Logprob(MARK, -2.0)))
    assert Pipeline(tokenizer).feed(prefilled) == [
        PromptRead(
            5,
            (
                None,
                TokenLogprob("\ufffd", -1.0, b"\xe6", (TopLogprob("a", -0.5, b"a", 2),), 3),
                TokenLogprob("<|mark|>", -2.0, b"<|mark|>", (), MARK),
            ),
        )
    ]


@pytest.mark.parametrize("min_tokens", [0, 2, 4])
def test_the_window_holds_nothing_back(min_tokens: int) -> None:
    deltas = deltas_of(events_of([b"<", b"e", b"x"], stop=["<end>"], min_tokens=min_tokens))
    held = [("<ex", [b"<", b"e", b"x"])]
    assert deltas == (held if min_tokens == 0 else [("<", [b"<"]), ("e", [b"e"]), ("x", [b"x"])])
