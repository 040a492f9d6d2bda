"""Events on the wire of Anthropic's format: blocks in order, how a message ends, and the whole answer as their fold."""

import json
from typing import Any

import pytest

from proxy_inference_engine.errors import EngineFailure
from proxy_inference_engine.output.events import (
    Broken,
    CallDelta,
    CallEnded,
    CallStarted,
    Ended,
    Event,
    PromptRead,
    ReasoningDelta,
    TextDelta,
)
from proxy_inference_engine.server.apis.messages.writer import (
    MessageEvents,
    MessageFrames,
    MessageShape,
    MessageWhole,
)
from proxy_inference_engine.server.apis.shared.sealer import Sealer
from proxy_inference_engine.types import FinishReason, Timings
from tests.unit.served.scripted import counted, make_counts

SHAPE = MessageShape("msg_1", "model")
READ = PromptRead(3, None)
CALL: list[Event] = [CallStarted(0, "f"), CallDelta(0, '{"x": '), CallDelta(0, "[1, 2.5]}"), CallEnded(0)]
OTHER: list[Event] = [CallStarted(1, "g"), CallEnded(1)]
THOUGHTS: list[Event] = [ReasoningDelta("h"), ReasoningDelta("m")]
TEXT: list[Event] = [TextDelta("Hi "), TextDelta("you")]


def ended(reason: FinishReason = "stop", stop_str: str | None = None) -> Ended:
    return Ended(reason, stop_str, 9, Timings(1.0, 2.0, 3.0), num_reasoning_tokens=2)


def streamed(events: list[Event], shape: MessageShape = SHAPE) -> list[dict[str, Any]]:
    """The wire events, every event a step of its own; each frame has the name of what it carries."""
    counts = make_counts(5)
    frames = MessageFrames(MessageEvents(shape, counts))
    text = "".join(frames.feed(counted(counts, [(0, event)])) for event in [READ, *events]) + frames.finish()
    *parts, rest = text.split("\n\n")
    assert rest == ""
    found = []
    for part in parts:
        name, data = part.split("\n")
        found.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
    return found


def whole(events: list[Event], shape: MessageShape = SHAPE) -> dict[str, Any]:
    counts = make_counts(5)
    answer = MessageWhole(MessageEvents(shape, counts))
    answer.feed(counted(counts, [(0, event) for event in [READ, *events]]))
    message: dict[str, Any] = json.loads(answer.finish())
    return message


def folded(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The blocks of a stream, put together by hand; ids and signatures are taken out. Checks the order on the way."""
    blocks: list[dict[str, Any]] = []
    is_open = False
    for event in events:
        match event["type"]:
            case "content_block_start":
                assert not is_open and event["index"] == len(blocks)
                blocks.append({**event["content_block"], "json": ""})
                is_open = True
            case "content_block_delta":
                assert is_open and event["index"] == len(blocks) - 1
                delta = event["delta"]
                key = {"input_json_delta": "json", "signature_delta": "signature"}.get(delta["type"])
                key = key or delta["type"].removesuffix("_delta")
                blocks[-1][key] += delta.get(key, delta.get("partial_json"))
            case "content_block_stop":
                assert is_open and event["index"] == len(blocks) - 1
                is_open = False
    assert not is_open
    for block in blocks:
        text = block.pop("json")
        if text:
            block["input"] = json.loads(text)
    return bare(blocks)


def bare(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for block in blocks:
        assert block["type"] != "thinking" or block.pop("signature").startswith("sig_" if block["thinking"] else "gA")
        assert block["type"] != "tool_use" or block.pop("id").startswith("toolu_")
    return blocks


HM = {"type": "thinking", "thinking": "hm"}
HI = {"type": "text", "text": "Hi you"}
F = {"type": "tool_use", "name": "f", "input": {"x": [1, 2.5]}}
G = {"type": "tool_use", "name": "g", "input": {}}
BLOCKS: list[tuple[list[Event], list[dict[str, Any]]]] = [
    ([], []),
    (TEXT, [HI]),
    ([*THOUGHTS, *TEXT], [HM, HI]),
    ([*THOUGHTS, *CALL], [HM, F]),
    ([*TEXT, *CALL, *OTHER], [HI, F, G]),
    ([*TEXT, *THOUGHTS, *TEXT], [HI, HM, HI]),
    ([TextDelta(""), *CALL], [F]),
]


@pytest.mark.parametrize(("events", "blocks"), BLOCKS)
def test_blocks_streamed_and_whole(events: list[Event], blocks: list[dict[str, Any]]) -> None:
    wire = streamed([*events, ended()])
    assert folded(wire) == blocks
    assert bare(whole([*events, ended()])["content"]) == blocks


def test_the_order_of_a_stream() -> None:
    kinds = [event["type"] for event in streamed([*THOUGHTS, *TEXT, ended()])]
    block = ["content_block_start", "content_block_delta", "content_block_delta"]
    signed = [*block, "content_block_delta", "content_block_stop"]
    assert kinds == ["message_start", *signed, *block, "content_block_stop", "message_delta", "message_stop"]


def test_the_message_around_them() -> None:
    first, *_, delta, _ = streamed([*TEXT, ended()])
    usage = {"input_tokens": 2, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 3}
    assert first["message"] == {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "model",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {**usage, "output_tokens": 0, "output_tokens_details": {"thinking_tokens": 0}},
    }
    final = {**usage, "output_tokens": 9, "output_tokens_details": {"thinking_tokens": 2}}
    assert delta["usage"] == final
    end = {"stop_reason": "end_turn", "stop_sequence": None}
    assert delta["delta"] == end
    assert whole([*TEXT, ended()]) == {**first["message"], **end, "content": [HI], "usage": final}


STOPS: list[tuple[list[Event], MessageShape, str, str | None]] = [
    ([ended()], SHAPE, "end_turn", None),
    ([ended("stop", "###")], SHAPE, "stop_sequence", "###"),
    ([*CALL, ended()], SHAPE, "tool_use", None),
    ([ended("length")], SHAPE, "max_tokens", None),
    ([*CALL, ended("length")], SHAPE, "max_tokens", None),
    ([ended("length")], MessageShape("i", "m", is_clamped=True), "model_context_window_exceeded", None),
]


@pytest.mark.parametrize(("events", "shape", "reason", "sequence"), STOPS)
def test_how_a_message_ends(events: list[Event], shape: MessageShape, reason: str, sequence: str | None) -> None:
    wanted = {"stop_reason": reason, "stop_sequence": sequence}
    assert streamed(events, shape)[-2]["delta"] == wanted
    assert whole(events, shape).items() >= wanted.items()


@pytest.mark.parametrize(
    ("arguments", "parsed"),
    [
        ("", {}),
        ("{", {}),
        ('{"a": 1, "b": "unfin', {"a": 1}),
        ('{"a": [1, {"b": tr', {"a": [1, {}]}),
        ('{"a": 1e999, "b": 1', {"a": None, "b": 1}),
    ],
)
def test_a_call_that_was_cut_off(arguments: str, parsed: dict[str, Any]) -> None:
    events: list[Event] = [CallStarted(0, "f"), *([CallDelta(0, arguments)] if arguments else []), ended("length")]
    answer = whole(events)
    assert answer["content"][0]["input"] == parsed and answer["stop_reason"] == "max_tokens"
    deltas = [event["delta"]["partial_json"] for event in streamed(events) if event["type"] == "content_block_delta"]
    assert "".join(deltas) == arguments


def test_arguments_that_cannot_be_read_are_an_error() -> None:
    with pytest.raises(EngineFailure):
        whole([CallStarted(0, "f"), CallDelta(0, '{"a":' * 1000), ended("length")])


def test_thinking_can_be_left_out() -> None:
    events = [*THOUGHTS, *TEXT, ended()]
    sealer = Sealer().of("anna")
    shape = MessageShape("i", "m", sealer=sealer)
    blocks = [{"type": "thinking", "thinking": ""}, HI]
    assert folded(streamed(events, shape)) == blocks
    message = whole(events, shape)
    thought = "hm"
    assert sealer.open("reasoning", message["content"][0]["signature"]) == thought
    assert bare(message["content"]) == blocks


def test_a_broken_answer_raises() -> None:
    with pytest.raises(EngineFailure):
        MessageEvents(SHAPE, make_counts(5)).feed([(0, READ), (0, Broken(EngineFailure("no")))])
