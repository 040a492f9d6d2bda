"""Tokens in, events out, with labels: stop strings and log-probabilities know visible content only."""

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy_inference_engine.formats.base import Labels
from proxy_inference_engine.formats.syntax import CallSyntax, Thinking
from proxy_inference_engine.output.answer import Answer, AnsweredCall
from proxy_inference_engine.output.events import (
    CallDelta,
    CallEnded,
    CallStarted,
    Ended,
    Event,
    PromptRead,
    ReasoningDelta,
    TextDelta,
)
from proxy_inference_engine.output.pipeline import Pipeline
from proxy_inference_engine.types import Finished, FinishReason, Logprob, Output, Prefilled, Token
from tests.unit.output.parsing import TOOLS
from tests.unit.output.pieces import END, MARK, TIMINGS, PieceTokenizer, cut, logprobs_of, outputs, places, run, text_of

HERMES = CallSyntax("<tool_call>", '<tool_call>\n{"name": "', '", "arguments": ', "}\n</tool_call>")
MARKERS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
CALL_PIECES = [b'\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n', b"</tool_call>"]
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>'


def labels_of(tokens: dict[int, str] | None = None, *, is_open: bool = False, has_calls: bool = True) -> Labels:
    return Labels(
        thinking=Thinking(),
        starts_in_reasoning=is_open,
        calls=HERMES if has_calls else None,
        tools=TOOLS if has_calls else {},
        tokens=tokens or {},
    )


def marker_tokens(pieces: Sequence[bytes]) -> dict[int, str]:
    """The pieces that spell a marker are tokens of it, and not control tokens."""
    return {
        index: text
        for index, piece in enumerate(pieces, start=2)
        if (text := piece.decode("utf-8", "replace")) in MARKERS
    }


def events_of(
    pieces: Sequence[bytes],
    *,
    stop: Sequence[str] = (),
    min_tokens: int = 0,
    reason: FinishReason = "stop",
    has_logprobs: bool = False,
    are_markers_tokens: bool = True,
    is_open: bool = False,
) -> list[Event]:
    labels = labels_of(marker_tokens(pieces) if are_markers_tokens else {}, is_open=is_open)
    pipeline = Pipeline(PieceTokenizer(pieces), stop=stop, min_tokens=min_tokens, labels=labels)
    return run(pipeline, outputs(pieces, reason, has_logprobs=has_logprobs))


def ended_of(events: Sequence[Event]) -> Ended:
    assert sum(isinstance(event, Ended) for event in events) == 1
    assert isinstance(events[-1], Ended)
    return events[-1]


def answer_of(events: Sequence[Event]) -> Answer:
    answer = Answer()
    for event in events:
        answer.add(event)
    return answer


def test_events_as_the_tokens_come() -> None:
    pieces = [b"<think>", b"\nHm", b". ", b"</think>", b"\n\n", b"Hi", b" ", b"<tool_call>"]
    pieces += [b'\n{"name": "get_', b'weather", "arguments": {"ci', b'ty": ', b'"Rome"}', b"}\n", b"</tool_call>"]
    assert events_of(pieces) == [
        PromptRead(0, None),
        ReasoningDelta("Hm"),
        ReasoningDelta("."),
        TextDelta("Hi"),
        CallStarted(0, "get_weather"),
        CallDelta(0, "{"),
        CallDelta(0, '"city": '),
        CallDelta(0, '"Rome"}'),
        CallEnded(0),
        Ended("stop", None, 14, TIMINGS, num_reasoning_tokens=4),
    ]


@settings(deadline=None, max_examples=150)
@given(places, st.booleans())
def test_any_split_into_tokens_gives_the_same_answer(where: list[int], has_logprobs: bool) -> None:
    text = f"<think>\nHm 漢 é.\n</think>\n\nSo 😀:\n\n{CALL}\n{CALL.replace('Rome', 'Rom')}\n{CALL}"
    answer = answer_of(events_of(cut(text.encode(), where), has_logprobs=has_logprobs, are_markers_tokens=False))
    call = AnsweredCall("get_weather", '{"city": "Rome"}', is_complete=True)
    other = AnsweredCall("get_weather", '{"city": "Rom"}', is_complete=True)
    assert (answer.reasoning, answer.text, answer.calls) == ("Hm 漢 é.", "So 😀:", [call, other])


def test_an_answer_ends_at_a_call_that_it_has_made_already() -> None:
    again = b'\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n'
    pieces = [b"<tool_call>", again, b"</tool_call>", b"\n", b"<tool_call>", again, b"</tool_call>", b"\n"]
    pipeline = Pipeline(PieceTokenizer(pieces), labels=labels_of(marker_tokens(pieces)), clock=lambda: 0.0)
    events = run(pipeline, outputs(pieces))
    assert pipeline.is_over and [type(event) for event in events[1:]] == [CallStarted, CallDelta, CallEnded, Ended]
    ended = events[-1]
    assert isinstance(ended, Ended) and (ended.reason, ended.stop_str, ended.num_tokens) == ("stop", None, 7)


def test_a_call_that_was_cut_off_is_told_though_it_begins_like_another() -> None:
    begun = b'\n{"name": "get_weather", "arguments": {"city": "Ro'
    pieces = [b"<tool_call>", *CALL_PIECES, b"\n", b"<tool_call>", begun]
    answer = answer_of(events_of(pieces, reason="length"))
    assert [(call.arguments, call.is_complete) for call in answer.calls] == [
        ('{"city": "Rome"}', True),
        ('{"city": "Ro', False),
    ]


def test_the_spelling_of_a_marker_token_is_text() -> None:
    pieces = [b"<th", b"ink>", b"x", b"</think>"]
    tokens = {99: "<think>", 98: "</think>"}
    pipeline = Pipeline(PieceTokenizer(pieces), labels=labels_of(tokens))
    assert text_of(run(pipeline, outputs(pieces))) == "<think>x</think>"


def test_control_tokens_that_are_no_markers_have_no_text() -> None:
    stream: list[Output] = [Prefilled(0), Token(2), Token(MARK), Token(3), Token(END, is_visible=False)]
    pipeline = Pipeline(PieceTokenizer([b"a\xe6\xbc", b"\xa2"]), labels=labels_of())
    assert text_of(run(pipeline, [*stream, Finished("stop", TIMINGS)])) == "a漢"


def test_a_control_token_can_be_a_marker() -> None:
    stream: list[Output] = [Prefilled(0), Token(MARK), Token(2), Finished("length", TIMINGS)]
    pipeline = Pipeline(PieceTokenizer([b"Hm"]), labels=labels_of({MARK: "<think>"}))
    assert run(pipeline, stream)[1:] == [ReasoningDelta("Hm"), Ended("length", None, 2, TIMINGS, 2)]


def test_a_marker_ends_a_character() -> None:
    answer = answer_of(events_of([b"<think>", b"a\xe6\xbc", b"</think>", b"b"]))
    assert (answer.reasoning, answer.text) == ("a\ufffd", "b")


def test_plain_labels_change_nothing() -> None:
    pieces = [b"a<think>", b"\xe6\xbc", b"\xa2 ", b"<tool_call>"]
    with_labels, without = (
        run(Pipeline(PieceTokenizer(pieces), labels=labels), outputs(pieces, has_logprobs=True))
        for labels in (Labels(), None)
    )
    assert with_labels == without


@pytest.mark.parametrize("num_tokens", range(1, 12))
def test_length_inside_a_call(num_tokens: int) -> None:
    pieces = [b"<tool_call>", b"\n", b'{"name": "', b"get_weather", b'", "arguments": ', b'{"city": ', b'"Ro', b'me"']
    pieces += [b"}", b"}\n", b"</tool_call>"]
    answer = answer_of(events_of(pieces[:num_tokens], reason="length"))
    assert answer.text == ""
    assert answer.ended == Ended("length", None, num_tokens, TIMINGS)
    if num_tokens < 5:
        assert answer.calls == []
    else:
        arguments = b"".join(pieces[5 : min(num_tokens, 9)]).decode()
        assert answer.calls == [AnsweredCall("get_weather", arguments, is_complete=num_tokens == 11)]


def test_half_a_character_is_no_beginning_of_arguments() -> None:
    pieces = [b"<tool_call>", b'\n{"name": "get_weather", "arguments": ', b'{"city": "\xe6\xbc']
    assert answer_of(events_of(pieces, reason="length")).calls == [AnsweredCall("get_weather", '{"city": "')]
    assert text_of(events_of([b"a\xe6"], reason="length")) == "a"
    assert text_of(events_of([b"a\xe6"], reason="stop")) == "a\ufffd"


@pytest.mark.parametrize(
    ("pieces", "num_reasoning_tokens"),
    [
        ([b"Hi"], 0),
        ([b"<think>", b"a", b"b", b"</think>", b"\n\n", b"Hi"], 4),
        ([b"<think>", b"a"], 2),
        ([b"<think>", b"a", b"</think>", b"<think>", b"b", b"</think>", b"x"], 6),
        ([b"<think>", b"a", b"<tool_call>", b"x", b"y"], 5),  # no call
        ([b"<think>", b"a", b"<tool_call>", *CALL_PIECES], 3),  # the token that ended it counts
    ],
)
def test_counts_the_tokens_of_reasoning_with_their_markers(pieces: list[bytes], num_reasoning_tokens: int) -> None:
    assert ended_of(events_of(pieces)).num_reasoning_tokens == num_reasoning_tokens


@pytest.mark.parametrize(
    ("pieces", "stop", "text", "num_tokens"),
    [
        pytest.param(
            [b"<think>", b"a # b", b"</think>", b"\n\nx", b" # y", b"z"], ["#"], "x ", 5, id="not in reasoning"
        ),
        pytest.param([b"<think>", b"a", b"</think>", b"\n\n", b"x", b"\n\n", b"y"], ["\n\n"], "x", 6, id="not between"),
        pytest.param([b"x", b"\n", b"\n", b"y"], ["\n\n"], "x", 3, id="space held by the parser"),
        pytest.param([b"a", b"<to", b"ol#", b"z"], ["<tool"], "a", 3, id="begins like a marker"),
        pytest.param([b"a", b"<to", b"#l", b"z"], ["#"], "a<to", 3, id="after what was no marker"),
    ],
)
def test_stop_strings_act_on_content(pieces: list[bytes], stop: list[str], text: str, num_tokens: int) -> None:
    events = events_of(pieces, stop=stop, reason="length")
    assert text_of(events) == text
    ended = ended_of(events)
    assert (ended.reason, ended.stop_str, ended.num_tokens) == ("stop", stop[0], num_tokens)


def test_stop_strings_do_not_act_in_calls() -> None:
    pieces = [b"ok", b" ", b"<tool_call>", *CALL_PIECES]
    answer = answer_of(events_of(pieces, stop=["Rome", "city", "{", "<tool_call>"]))
    assert answer.text == "ok"
    assert answer.calls == [AnsweredCall("get_weather", '{"city": "Rome"}', is_complete=True)]
    assert answer.ended == Ended("stop", None, 5, TIMINGS)


def test_no_stop_string_runs_across_a_call() -> None:
    pieces = [b"aST", b"<tool_call>", *CALL_PIECES, b"OP", b"b"]
    events = events_of(pieces, stop=["STOP"])
    assert text_of(events) == "aSTOPb"
    assert [type(event) for event in events[1:4]] == [TextDelta, TextDelta, CallStarted]


def test_a_stop_string_before_a_call_ends_the_choice() -> None:
    answer = answer_of(events_of([b"abc", b"<tool_call>", *CALL_PIECES], stop=["abcd", "bc"]))
    assert (answer.text, answer.calls) == ("a", [])
    assert answer.ended is not None
    assert (answer.ended.reason, answer.ended.stop_str, answer.ended.num_tokens) == ("stop", "bc", 1)


@pytest.mark.parametrize("min_tokens", [0, 4, 5, 6])
def test_stop_strings_wait_for_min_tokens(min_tokens: int) -> None:
    events = events_of([b"<think>", b"#", b"</think>", b"#", b"#", b"#"], stop=["#"], min_tokens=min_tokens)
    assert ended_of(events).num_tokens == max(min_tokens, 4)
    assert text_of(events) == "#" * (max(min_tokens, 4) - 4)


@settings(deadline=None, max_examples=200)
@given(
    st.text(alphabet="ab<\n漢", max_size=12),
    st.lists(st.text(alphabet="ab<\n漢", min_size=1, max_size=3), max_size=2),
    places,
)
def test_stops_as_without_labels(text: str, stops: list[str], where: list[int]) -> None:
    pieces = cut(text.encode(), where)
    labelled = events_of(pieces, stop=stops, has_logprobs=True)
    plain = run(Pipeline(PieceTokenizer(pieces), stop=stops), outputs(pieces, "stop", has_logprobs=True))
    assert text_of(labelled) == text_of(plain)
    assert ended_of(labelled).stop_str == ended_of(plain).stop_str
    assert ended_of(labelled).num_tokens == ended_of(plain).num_tokens
    assert [entry.token_id for entry in logprobs_of(labelled) if entry.bytes] == [
        entry.token_id for entry in logprobs_of(plain) if entry.bytes
    ]


def deltas_of(events: Sequence[Event]) -> list[tuple[str, list[bytes]]]:
    deltas = [event for event in events if isinstance(event, TextDelta)]
    return [(delta.text, [entry.bytes for entry in delta.logprobs]) for delta in deltas]


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        pytest.param([b"<think>", b"a", b"</think>", b"\n\n", b"Hi", b"!"],
                     [("Hi", [b"Hi"]), ("!", [b"!"])], id="reasoning"),
        pytest.param([b"<think>", b"a", b"</think>", b"\n\nHi"], [("Hi", [b"\n\nHi"])], id="partly visible"),
        pytest.param(
            [b"Hi", b".\n", b"<tool_call>", *CALL_PIECES],
            [("Hi", [b"Hi"]), (".", []), ("", [b".\n"])],
            id="partly visible before a call",
        ),
        pytest.param([b"a", b"\n", b"b"], [("a", [b"a"]), ("\nb", [b"\n", b"b"])], id="held space"),
        pytest.param([b"a ", b"\xe6\xbc", b"\xa2", b"<think>"],
                     [("a", []), (" 漢", [b"a ", b"\xe6\xbc", b"\xa2"]), ("<think>", [b"<think>"])],
                     id="a marker that is text"),
        pytest.param([b"x", b"<tool_call>", b"y"],
                     [("x", [b"x"]), ("<tool_call>", [b"<tool_call>"]), ("y", [b"y"])], id="no call"),
    ],
)  # fmt: skip
def test_logprobs_of_visible_content(pieces: list[bytes], expected: list[tuple[str, list[bytes]]]) -> None:
    assert deltas_of(events_of(pieces, has_logprobs=True)) == expected


@settings(deadline=None, max_examples=200)
@given(places)
def test_logprobs_are_those_of_tokens_with_visible_text(where: list[int]) -> None:
    text = f"<think>\nHm 漢\n</think>\n\nSo 😀 漢:\n\n{CALL}\n"
    pieces = cut(text.encode(), where)
    events = events_of(pieces, has_logprobs=True, are_markers_tokens=False)
    start = text.encode().index(b"So")
    end = text.encode().index(b"\n\n<tool_call>")
    edges = list(itertools.accumulate(map(len, pieces), initial=0))
    visible = [
        index + 2
        for index, (first, last) in enumerate(itertools.pairwise(edges))
        if first < min(end, last) and max(first, start) < min(end, last)
    ]
    assert [entry.token_id for entry in logprobs_of(events) if entry.bytes] == visible
    assert all(event.text or event.logprobs for event in events if isinstance(event, TextDelta))


def test_entries_keep_their_alternatives() -> None:
    stream: list[Output] = [
        Prefilled(0),
        Token(2, Logprob(2, -1.0)),
        Token(3, Logprob(3, -0.5, ((3, -0.5), (4, -1.0)))),
        Finished("stop", TIMINGS),
    ]
    pipeline = Pipeline(PieceTokenizer([b"</think>", b"Hi", b"Ho"]), labels=labels_of({2: "</think>"}, is_open=True))
    (entry,) = logprobs_of(run(pipeline, stream))
    assert [top.token for top in entry.top] == ["Hi", "Ho"]


@pytest.mark.parametrize("cut_at", ["}", "}}\n", '"Rome"'])
def test_a_call_that_comes_again_up_to_the_limit(cut_at: str) -> None:
    """Cut between the end of its arguments and its own, it is still the same call; cut before that, nobody knows."""
    again = CALL[: CALL.index(cut_at) + len(cut_at)]
    events = events_of(cut(f"{CALL}\n{again}".encode(), [20, 90]), reason="length", are_markers_tokens=False)
    is_known = cut_at != '"Rome"'
    assert sum(isinstance(event, CallStarted) for event in events) == (1 if is_known else 2)
    assert ended_of(events).reason == ("stop" if is_known else "length")
