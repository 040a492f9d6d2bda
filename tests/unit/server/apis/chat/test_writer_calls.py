"""Calls and reasoning on the wire of chat completions: deltas, the whole answer, finish reasons, counts."""

import json
from typing import Any

import pytest

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
from proxy_inference_engine.server.apis.chat.writer import ChatFrames, ChatShape, ChatWhole
from proxy_inference_engine.server.apis.shared.chunks import AnswerHead
from proxy_inference_engine.types import FinishReason, Timings
from tests.unit.served.scripted import counted, make_counts

HEAD = AnswerHead("id-1", "model", "fp", 123)
READ = PromptRead(0, None)
F_CALL: list[Event] = [CallStarted(0, "f"), CallDelta(0, '{"x"'), CallDelta(0, ":1}"), CallEnded(0)]
C_CALL: list[Event] = [CallStarted(1, "c"), CallDelta(1, "a\n"), CallDelta(1, "b"), CallEnded(1)]
CUT_CALL: list[Event] = [CallStarted(0, "f"), CallDelta(0, '{"x"')]
THOUGHTS: list[Event] = [ReasoningDelta("h"), ReasoningDelta("m")]
TEXT: list[Event] = [TextDelta("Hi "), TextDelta("you")]


def ended(reason: FinishReason = "stop", num_reasoning_tokens: int = 0) -> Ended:
    return Ended(reason, None, 9, Timings(1.0, 2.0, 3.0), num_reasoning_tokens)


def shape(num_choices: int = 1, **fields: Any) -> ChatShape:
    return ChatShape(num_choices, False, True, custom_names=frozenset({"c"}), **fields)


def streamed(events: list[Event], shaped: ChatShape) -> list[dict[str, Any]]:
    """The chunks, every event a step of its own, for every choice."""
    counts, choices = make_counts(5, num_choices=shaped.num_choices), range(shaped.num_choices)
    frames = ChatFrames(HEAD, counts, shaped)
    steps = [[(choice, event) for choice in choices] for event in [READ, *events]]
    text = "".join(frames.feed(counted(counts, step)) for step in steps)
    return [json.loads(line.removeprefix("data: ")) for line in (text + frames.finish()).split("\n\n")[:-1]]


def deltas(events: list[Event], shaped: ChatShape | None = None) -> list[dict[str, Any]]:
    chunks = streamed([*events, ended()], shaped or shape())
    return [chunk["choices"][0]["delta"] for chunk in chunks[1:-2]]


def whole(events: list[Event], shaped: ChatShape | None = None) -> dict[str, Any]:
    shaped = shaped or shape()
    counts, choices = make_counts(5, num_choices=shaped.num_choices), range(shaped.num_choices)
    answer = ChatWhole(HEAD, counts, shaped)
    answer.feed(counted(counts, [(choice, event) for event in [READ, *events] for choice in choices]))
    return answer.body()


def test_reasoning_is_apart_from_content() -> None:
    assert deltas([*THOUGHTS, *TEXT]) == [
        {"reasoning_content": "h"},
        {"reasoning_content": "m"},
        {"content": "Hi "},
        {"content": "you"},
    ]
    message = whole([*THOUGHTS, *TEXT, ended()])["choices"][0]["message"]
    assert message == {"role": "assistant", "content": "Hi you", "refusal": None, "reasoning_content": "hm"}


def test_a_call_names_itself_once() -> None:
    first, *others = deltas(F_CALL)
    (entry,) = first["tool_calls"]
    assert entry.pop("id").startswith("call_")
    assert first == {"tool_calls": [{"index": 0, "type": "function", "function": {"name": "f", "arguments": ""}}]}
    assert others == [
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"x"'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": ":1}"}}]},
    ]


def test_a_custom_call_has_an_input() -> None:
    first, *others = deltas([*F_CALL, *C_CALL])[3:]
    entry = first["tool_calls"][0]
    assert entry.pop("id").startswith("call_")
    assert entry == {"index": 1, "type": "custom", "custom": {"name": "c", "input": ""}}
    assert others == [
        {"tool_calls": [{"index": 1, "custom": {"input": "a\n"}}]},
        {"tool_calls": [{"index": 1, "custom": {"input": "b"}}]},
    ]


def test_the_whole_answer_has_the_calls() -> None:
    message = whole([*F_CALL, *C_CALL, ended()])["choices"][0]["message"]
    ids = [call.pop("id") for call in message["tool_calls"]]
    assert all(len(id_) >= 32 and id_.startswith("call_") for id_ in ids) and len(set(ids)) == 2
    assert message == {
        "role": "assistant",
        "content": None,
        "refusal": None,
        "tool_calls": [
            {"type": "function", "function": {"name": "f", "arguments": '{"x":1}'}},
            {"type": "custom", "custom": {"name": "c", "input": "a\nb"}},
        ],
    }


@pytest.mark.parametrize(
    ("events", "content"),
    [
        (F_CALL, None),
        (CUT_CALL, None),
        ([*THOUGHTS, *F_CALL], None),
        ([*TEXT, *F_CALL], "Hi you"),
        (TEXT, "Hi you"),
        (THOUGHTS, ""),
        ([], ""),
    ],
)
@pytest.mark.parametrize("num_choices", [1, 3])
def test_content_is_null_only_where_there_are_calls_instead(
    events: list[Event], content: str | None, num_choices: int
) -> None:
    shaped = shape(num_choices, may_call=True)
    for choice in whole([*events, ended()], shaped)["choices"]:
        assert choice["message"]["content"] == content
    chunks = streamed([*events, ended()], shaped)
    parts = [part for chunk in chunks for part in chunk["choices"]]
    assert [part["index"] for part in parts if "role" in part["delta"]] == list(range(num_choices))
    for index in range(num_choices):
        own = [part["delta"] for part in parts if part["index"] == index]
        assert own[0]["role"] == "assistant" and "content" in own[0] and own[-1] == {}
        said = [delta["content"] for delta in own if delta.get("content") is not None]
        assert ("".join(said) if said else None) == content


def test_the_first_delta_says_whether_content_comes() -> None:
    firsts: dict[str, Any] = {
        name: streamed([*events, ended()], shape(may_call=True))[0]["choices"][0]["delta"]["content"]
        for name, events in {"text": TEXT, "call": F_CALL, "thoughts": [*THOUGHTS, *TEXT]}.items()
    }
    assert firsts == {"text": "", "call": None, "thoughts": None}


def test_a_choice_that_waits_lets_a_later_one_speak() -> None:
    frames = ChatFrames(HEAD, make_counts(5, 5), shape(may_call=True), shape())
    text = frames.feed([(0, READ), (1, READ)]) + frames.feed([(1, TextDelta("a"))]) + frames.feed([(0, TextDelta("b"))])
    parts = [json.loads(line.removeprefix("data: "))["choices"][0] for line in text.split("\n\n")[:-1]]
    assert [(part["index"], part["delta"].get("content")) for part in parts] == [(0, None), (1, ""), (1, "a"), (0, "b")]


@pytest.mark.parametrize(
    ("events", "reason", "names_tool", "finish_reason"),
    [
        (F_CALL, "stop", False, "tool_calls"),
        ([*TEXT, *F_CALL, *C_CALL], "stop", False, "tool_calls"),
        (F_CALL, "stop", True, "stop"),
        (F_CALL, "length", False, "length"),
        (F_CALL, "length", True, "length"),
        (CUT_CALL, "length", False, "length"),
        (CUT_CALL, "stop", False, "stop"),
        (TEXT, "stop", False, "stop"),
        (THOUGHTS, "length", False, "length"),
    ],
)
def test_finish_reasons(events: list[Event], reason: FinishReason, names_tool: bool, finish_reason: str) -> None:
    shaped = shape(names_tool=names_tool)
    chunks = streamed([*events, ended(reason)], shaped)
    reasons = [choice["finish_reason"] for chunk in chunks for choice in chunk["choices"]]
    assert reasons == [None] * (len(reasons) - 1) + [finish_reason]
    assert whole([*events, ended(reason)], shaped)["choices"][0]["finish_reason"] == finish_reason


def test_each_choice_numbers_its_own_calls() -> None:
    chunks = streamed([*F_CALL, *C_CALL, ended()], shape(2))
    entries = [
        (choice["index"], call)
        for chunk in chunks
        for choice in chunk["choices"]
        for call in choice["delta"].get("tool_calls", ())
    ]
    assert [(choice, call["index"]) for choice, call in entries if "id" in call] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert len({call["id"] for _, call in entries if "id" in call}) == 4
    texts = [
        "".join(call["function"]["arguments"] for choice, call in entries if choice == number and "function" in call)
        for number in range(2)
    ]
    assert texts == ['{"x":1}', '{"x":1}']


def test_reasoning_tokens_are_counted_over_all_choices() -> None:
    events = [*THOUGHTS, ended(num_reasoning_tokens=4)]
    usage = whole(events, shape(2))["usage"]
    assert usage["completion_tokens"] == 18
    assert usage["completion_tokens_details"]["reasoning_tokens"] == 8
    assert streamed(events, shape(2))[-1]["usage"] == usage
