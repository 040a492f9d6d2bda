"""Engine outputs in, events out: text, stop strings, counts, ends and failures."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy_inference_engine.errors import EngineFailure
from proxy_inference_engine.output.answer import Answer
from proxy_inference_engine.output.events import Broken, Ended, Event, PromptRead, TextDelta
from proxy_inference_engine.output.pipeline import Pipeline
from proxy_inference_engine.runners.fake import ByteTokenizer
from proxy_inference_engine.types import Drafted, Failed, Finished, FinishReason, Output, Prefilled, Timings, Token
from tests.unit.output.pieces import (
    CJK,
    END,
    FAMILY,
    MARK,
    THAI,
    TIMINGS,
    PieceTokenizer,
    cut,
    outputs,
    places,
    run,
    streams,
    text_of,
    tokens,
)
from tests.unit.output.test_stop import search


def events_of(
    pieces: Sequence[bytes], *, stop: Sequence[str] = (), min_tokens: int = 0, reason: FinishReason = "length"
) -> list[Event]:
    return run(Pipeline(PieceTokenizer(pieces), stop=stop, min_tokens=min_tokens), outputs(pieces, reason))


def ended_of(events: Sequence[Event]) -> Ended:
    (ended,) = (event for event in events if isinstance(event, Ended))
    return ended


def tokens_to_complete(pieces: Sequence[bytes], needle: str) -> int:
    """How many tokens it takes until the text holds the string."""
    counts = (
        count
        for count in range(len(pieces) + 1)
        if needle in b"".join(pieces[:count]).decode("utf-8", "replace" if count == len(pieces) else "ignore")
    )
    return next(counts)


def test_one_delta_a_token() -> None:
    assert events_of([b"Hello", b" wor", b"ld"]) == [
        PromptRead(0, None),
        TextDelta("Hello"),
        TextDelta(" wor"),
        TextDelta("ld"),
        Ended("length", None, 3, TIMINGS),
    ]


@settings(deadline=None)
@given(streams, places)
def test_text_is_that_of_all_bytes_in_whole_characters(data: bytes, where: list[int]) -> None:
    pieces = cut(data, where)
    events = events_of(pieces)
    assert text_of(events) == data.decode("utf-8", "replace")
    assert all(event.text for event in events if isinstance(event, TextDelta))
    assert ended_of(events) == Ended("length", None, len(pieces), TIMINGS)
    assert events[-1] is ended_of(events)


@settings(deadline=None, max_examples=300)
@given(
    st.text(alphabet="ab漢😀", max_size=16),
    st.lists(st.text(alphabet="ab漢😀", min_size=1, max_size=4), max_size=4),
    places,
)
def test_any_split_stops_at_the_same_place(text: str, stops: list[str], where: list[int]) -> None:
    pieces = cut(text.encode(), where)
    events = events_of(pieces, stop=stops)
    shown, stop_str = search(stops, text)
    assert text_of(events) == shown
    assert all(event.text for event in events if isinstance(event, TextDelta))
    ended = ended_of(events)
    assert (ended.reason, ended.stop_str) == (("stop", stop_str) if stop_str is not None else ("length", None))
    if stop_str is not None:
        assert ended.num_tokens == tokens_to_complete(pieces, shown + stop_str)
    else:
        assert ended.num_tokens == len(pieces)


@pytest.mark.parametrize(
    ("pieces", "stop", "shown", "stop_str", "num_tokens"),
    [
        ([b"The br", b"own", b" fo", b"x", b" jumps"], ["own fox"], "The br", "own fox", 4),
        ([b"one STOP two"], ["STOP"], "one ", "STOP", 1),
        ([b"ST", b"OP"], ["STOP"], "", "STOP", 2),
        ([b"a", b"\xe3\x80", b"\x82b"], ["。"], "a", "。", 3),
        ([FAMILY.encode()[:5], FAMILY.encode()[5:]], ["👧"], "👩‍👩‍", "👧", 2),
        ([THAI.encode()[:4], THAI.encode()[4:]], [THAI], "", THAI, 2),
        ([b"x", CJK.encode()], [CJK[1:3]], "x漢", CJK[1:3], 2),
        ([b"a", b"b", b"c", b"x", b"y"], ["abcd", "bc"], "a", "bc", 3),  # decided at x, complete at c
        ([b"a", b"b", b"c"], ["abcd", "bc"], "a", "bc", 3),
        ([b"a", b"b", b"c", b"d", b"y"], ["abcd", "bc"], "", "abcd", 4),
    ],
)
def test_stop_strings(pieces: list[bytes], stop: list[str], shown: str, stop_str: str, num_tokens: int) -> None:
    events = events_of(pieces, stop=stop)
    assert text_of(events) == shown
    ended = ended_of(events)
    assert (ended.reason, ended.stop_str, ended.num_tokens) == ("stop", stop_str, num_tokens)


def test_over_at_the_stop_string_before_the_engine_says_so() -> None:
    pieces = [b"a", b"#", b"b"]
    pipeline = Pipeline(PieceTokenizer(pieces), stop=["#"])
    run(pipeline, [Prefilled(0), *tokens(pieces)[:1]])
    assert not pipeline.is_over
    assert isinstance(pipeline.feed(tokens(pieces)[1])[-1], Ended)
    assert pipeline.is_over
    assert run(pipeline, [tokens(pieces)[2], Finished("length", TIMINGS), Failed(EngineFailure("late"))]) == []


@pytest.mark.parametrize(("min_tokens", "num_tokens"), [(0, 1), (1, 1), (2, 2), (3, 3), (6, 6)])
def test_stop_strings_wait_for_min_tokens(min_tokens: int, num_tokens: int) -> None:
    events = events_of([b"#"] * 6, stop=["#"], min_tokens=min_tokens)
    assert text_of(events) == "#" * (num_tokens - 1)
    assert (ended_of(events).stop_str, ended_of(events).num_tokens) == ("#", num_tokens)


def test_no_match_begins_inside_the_window() -> None:
    events = events_of([b"a", b"E", b"ND", b"END"], stop=["END"], min_tokens=3)
    assert events[1:4] == [TextDelta("a"), TextDelta("E"), TextDelta("ND")]
    assert events[4:] == [Ended("stop", "END", 4, ended_of(events).timings)]


@settings(deadline=None)
@given(
    st.lists(st.text(alphabet="ab漢", max_size=3).map(str.encode), max_size=10),
    st.lists(st.text(alphabet="ab漢", min_size=1, max_size=3), min_size=1, max_size=3),
    st.integers(min_value=0, max_value=12),
)
def test_window_equals_a_search_after_it(pieces: list[bytes], stops: list[str], min_tokens: int) -> None:
    events = events_of(pieces, stop=stops, min_tokens=min_tokens)
    window = b"".join(pieces[: max(min_tokens - 1, 0)]).decode()
    shown, stop_str = search(stops, b"".join(pieces).decode()[len(window) :])
    assert text_of(events) == window + shown
    assert ended_of(events).stop_str == stop_str


@pytest.mark.parametrize("reason", ["stop", "length"])
def test_end_token_is_counted_and_not_shown(reason: FinishReason) -> None:
    pipeline = Pipeline(PieceTokenizer([b"hi"]), stop=["<|end|>"])
    stream: list[Output] = [Prefilled(0), Token(2), Token(END, is_visible=False), Finished(reason, TIMINGS)]
    assert run(pipeline, stream) == [PromptRead(0, None), TextDelta("hi"), Ended(reason, None, 2, TIMINGS)]


def test_invisible_tokens_show_nothing_whatever_they_are() -> None:
    pipeline = Pipeline(PieceTokenizer([b"hi", b"###"]), stop=["###"])
    hidden = Token(3, is_visible=False)
    stream: list[Output] = [Prefilled(0), Token(2), Token(MARK), hidden, Finished("stop", TIMINGS)]
    assert run(pipeline, stream)[1:] == [TextDelta("hi"), Ended("stop", None, 3, TIMINGS)]


@pytest.mark.parametrize("reason", ["stop", "length"])
def test_held_text_comes_out_at_the_end(reason: FinishReason) -> None:
    events = events_of([b"so <", b"en", b"\xe2\x82"], stop=["<end>"], reason=reason)
    assert events[1:] == [TextDelta("so "), TextDelta("<en\ufffd"), Ended(reason, None, 3, TIMINGS)]


def test_a_stop_string_that_only_the_end_completes() -> None:
    events = events_of([b"a", b"\xe2\x82"], stop=["\ufffd"])
    assert events[1:] == [TextDelta("a"), Ended("stop", "\ufffd", 2, TIMINGS)]


def test_length_is_stop_when_the_last_token_completes_a_stop_string() -> None:
    events = events_of([b"a", b"#"], stop=["#"], reason="length")
    assert (ended_of(events).reason, ended_of(events).stop_str) == ("stop", "#")


def test_nothing_generated() -> None:
    assert events_of([], stop=["x"]) == [PromptRead(0, None), Ended("length", None, 0, TIMINGS)]


def test_failure_ends_the_choice() -> None:
    error = EngineFailure("the engine failed")
    pieces = [b"some <"]
    pipeline = Pipeline(PieceTokenizer(pieces), stop=["<end>"])
    events = run(pipeline, [Prefilled(3), *tokens(pieces), Failed(error)])
    assert events == [PromptRead(3, None), TextDelta("some "), Broken(error)]
    assert pipeline.is_over
    assert pipeline.feed(Finished("stop", TIMINGS)) == []


def test_failure_before_the_prompt_was_read() -> None:
    error = EngineFailure("the engine failed")
    assert run(Pipeline(PieceTokenizer([])), [Failed(error)]) == [Broken(error)]


def test_own_timings_at_a_stop_string_the_engines_otherwise() -> None:
    times = iter([10.0, 10.5, 12.0])
    pieces = [b"a", b"#"]
    pipeline = Pipeline(PieceTokenizer(pieces), stop=["#"], clock=lambda: next(times))
    assert ended_of(run(pipeline, outputs(pieces))).timings == Timings(0.0, 500.0, 1500.0)
    assert ended_of(events_of(pieces, stop=["other"])).timings == TIMINGS


def test_the_answer_is_the_fold_of_the_stream() -> None:
    pipeline = Pipeline(ByteTokenizer(), stop=["\n\n"])
    stream: list[Output] = [Prefilled(2), *(Token(byte) for byte in f"{FAMILY}\n{THAI}\n\n{CJK}".encode())]
    answer = Answer()
    for event in run(pipeline, stream):
        answer.add(event)
    assert answer.text == f"{FAMILY}\n{THAI}"
    assert answer.prompt == PromptRead(2, None)
    assert answer.ended is not None
    assert answer.ended.stop_str == "\n\n"


@pytest.mark.parametrize(("stop", "counts"), [(("lo",), (3, 1)), ((), (9, 9))])
def test_a_stop_string_ends_with_the_counts_known_so_far(stop: Sequence[str], counts: tuple[int, int]) -> None:
    pieces = [b"Hel", b"lo", b" world"]
    read, *said, end = outputs(pieces, "stop")
    assert isinstance(end, Finished)
    finished = Finished("stop", end.timings, 9, 9)
    drafted = [read, Drafted(1, 0), said[0], Drafted(3, 1), said[1], Drafted(5, 2), said[2], finished]
    ended = ended_of(run(Pipeline(PieceTokenizer(pieces), stop=stop), drafted))
    assert (ended.num_accepted, ended.num_rejected) == counts
