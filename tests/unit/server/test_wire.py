"""Events to wire formats, the streamed and the whole one from the same events."""

import json
import math
from itertools import chain
from typing import Any

import pytest

from proxy_inference_engine.output.events import Ended, PromptRead, TextDelta, TokenLogprob, TopLogprob
from proxy_inference_engine.runners.fake import BOS, ByteTokenizer
from proxy_inference_engine.server.convert.chat import ChatAnswer, ChatFrames, ChatShape
from proxy_inference_engine.server.convert.completions import CompletionAnswer, CompletionFrames, Shape, echoed_prompt
from proxy_inference_engine.server.convert.head import Head
from proxy_inference_engine.server.convert.usage import Tally
from proxy_inference_engine.server.generation import Step
from proxy_inference_engine.server.record import Record
from proxy_inference_engine.types import Timings

HEAD = Head("id-1", "model", "fp", 123, metadata={"a": "b"})
TIMINGS = Timings(1.0, 200.0, 500.0)


def entry(piece: bytes, logprob: float = -0.5) -> TokenLogprob:
    top = TopLogprob("é", -0.1, "é".encode(), 7)
    return TokenLogprob(piece.decode("utf-8", "replace"), logprob, piece, (top,), 5)


STEPS: list[Step] = [
    [(1, PromptRead(4, None)), (1, TextDelta("b", (entry(b"b"),)))],
    [(0, PromptRead(2, None)), (0, TextDelta("a\u2028", (entry(b"a"), entry(b"\xe2", -math.inf))))],
    [(1, Ended("length", None, 7, TIMINGS)), (0, TextDelta("c", ()))],
    [(0, Ended("stop", "END", 3, TIMINGS))],
]
USAGE = {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}


def chunks(frames: str) -> list[dict[str, Any]]:
    lines = frames.splitlines()  # cuts at U+2028 too, which must not matter
    assert all(line.startswith("data: ") for line in lines[::2]) and not any(lines[1::2])
    return [json.loads(line.removeprefix("data: ")) for line in lines[::2]]


def choices_of(parts: list[dict[str, Any]], index: int) -> list[dict[str, Any]]:
    return [choice for part in parts for choice in part["choices"] if choice["index"] == index]


def stream_chat(shape: ChatShape, head: Head = HEAD) -> list[dict[str, Any]]:
    frames = ChatFrames(head, Tally([10], 2, Record("r")), shape)
    return chunks("".join(frames.feed(step) for step in STEPS) + frames.finish())


def answer_chat(shape: ChatShape, head: Head = HEAD) -> dict[str, Any]:
    answer = ChatAnswer(head, Tally([10], 2, Record("r")), shape)
    for step in STEPS:
        answer.feed(step)
    return answer.finish()


def test_chat_stream_has_the_recorded_order() -> None:
    parts = stream_chat(ChatShape(2, has_logprobs=False, include_usage=True))
    role = {"role": "assistant", "content": "", "refusal": None}
    choices = [chunk["choices"][0] for chunk in parts[:-1]]
    assert [(choice["index"], choice["delta"], choice["finish_reason"]) for choice in choices] == [
        (0, role, None),
        (1, role, None),
        (1, {"content": "b"}, None),
        (0, {"content": "a\u2028"}, None),
        (1, {}, "length"),
        (0, {"content": "c"}, None),
        (0, {}, "stop"),
    ]
    assert all(choice["logprobs"] is None for choice in choices)
    assert choices[-1]["stop_str"] == "END" and "stop_str" not in choices[4]
    assert {(chunk["id"], chunk["object"], chunk["created"], chunk["model"]) for chunk in parts} == {
        ("id-1", "chat.completion.chunk", 123, "model")
    }
    assert [chunk["usage"] for chunk in parts[:-1]] == [None] * 7
    assert parts[-1]["choices"] == [] and parts[-1]["usage"].items() >= USAGE.items()
    assert [index for index, chunk in enumerate(parts) if "timings" in chunk] == [6]


def test_chat_stream_has_no_usage_unless_asked() -> None:
    parts = stream_chat(ChatShape(2, has_logprobs=False, include_usage=False))
    assert len(parts) == 7 and not any("usage" in chunk for chunk in parts)


def test_chat_answer_is_the_fold_of_the_stream() -> None:
    shape = ChatShape(2, has_logprobs=True, include_usage=True)
    answer, parts = answer_chat(shape), stream_chat(shape)
    for choice in answer["choices"]:
        own = choices_of(parts, choice["index"])
        assert "".join(part["delta"].get("content", "") for part in own) == choice["message"]["content"]
        logprobs = [part["logprobs"] for part in own if part["logprobs"]]
        assert list(chain(*(entries["content"] for entries in logprobs))) == choice["logprobs"]["content"]
        assert own[-1]["finish_reason"] == choice["finish_reason"]
    assert answer["usage"] == parts[-1]["usage"]
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 2
    assert answer["timings"] == parts[-2]["timings"]
    assert answer["timings"] == {
        "prompt_ms": 200.0, "prompt_per_second": 40.0, "predicted_ms": 500.0, "predicted_per_second": 20.0,
    }  # fmt: skip
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": "a\u2028c", "refusal": None}
    assert answer["metadata"] == {"a": "b"} and "service_tier" not in answer


def test_chat_logprobs_have_bytes_and_are_finite() -> None:
    content = answer_chat(ChatShape(2, has_logprobs=True, include_usage=False))["choices"][0]["logprobs"]["content"]
    assert content[0] == {
        "token": "a", "logprob": -0.5, "bytes": [97],
        "top_logprobs": [{"token": "é", "logprob": -0.1, "bytes": [195, 169]}],
    }  # fmt: skip
    assert content[1]["logprob"] == -9999.0 and content[1]["bytes"] == [0xE2]


def test_a_family_stop_string_is_not_reported() -> None:
    shape = ChatShape(2, has_logprobs=False, include_usage=False, hidden_stops=frozenset({"END"}))
    assert "stop_str" not in answer_chat(shape)["choices"][0]
    assert "stop_str" not in stream_chat(shape)[-1]["choices"][0]


def test_service_tier_is_echoed_when_asked() -> None:
    head = Head("id", "m", "fp", 1, service_tier="default")
    shape = ChatShape(2, has_logprobs=False, include_usage=False)
    assert answer_chat(shape, head)["service_tier"] == "default"
    assert all(chunk["service_tier"] == "default" for chunk in stream_chat(shape, head))


PROMPT_LOGPROBS = (None, entry(b"\xc3"), entry(b"\xa9"), entry(b"x"))


def both_completions(has_logprobs: bool, echo: bool) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    tokenizer = ByteTokenizer(has_bos=True)
    echoed = echoed_prompt((BOS, 0xC3, 0xA9, ord("x")), "éx", tokenizer) if echo else None
    shape = Shape(1, (echoed, echoed), has_logprobs, include_usage=True)
    given = tuple(entry(bytes([byte])) for byte in b"ab")
    steps: list[Step] = [
        [(1, PromptRead(1, PROMPT_LOGPROBS)), (1, TextDelta("ab", given if has_logprobs else ()))],
        [(1, Ended("length", None, 2, TIMINGS)), (0, PromptRead(1, PROMPT_LOGPROBS))],
        [(0, Ended("stop", None, 0, TIMINGS))],
    ]
    frames = CompletionFrames(HEAD, Tally([4, 4], 1, Record("r")), shape)
    answer = CompletionAnswer(HEAD, Tally([4, 4], 1, Record("r")), shape)
    text = ""
    for step in steps:
        text += frames.feed(step)
        answer.feed(step)
    return chunks(text + frames.finish()), answer.finish()


@pytest.mark.parametrize("has_logprobs", [True, False])
@pytest.mark.parametrize("echo", [True, False])
def test_completion_answer_is_the_fold_of_the_stream(has_logprobs: bool, echo: bool) -> None:
    parts, answer = both_completions(has_logprobs, echo)
    assert answer["object"] == "text_completion"
    for choice in answer["choices"]:
        own = choices_of(parts, choice["index"])
        assert "".join(part["text"] for part in own) == choice["text"]
        assert own[-1]["finish_reason"] == choice["finish_reason"]
        for name, values in (choice["logprobs"] or {}).items():
            assert list(chain(*(part["logprobs"][name] for part in own if part["logprobs"]))) == values
    assert (answer["choices"][0]["logprobs"] is None) == (not has_logprobs)
    assert answer["choices"][0]["text"] == ("éx" if echo else "")
    assert answer["choices"][1]["text"] == ("éxab" if echo else "ab")
    assert answer["usage"] == parts[-1]["usage"]
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 2


def test_echoed_logprobs_have_offsets_in_the_text() -> None:
    _, answer = both_completions(has_logprobs=True, echo=True)
    logprobs = answer["choices"][1]["logprobs"]
    assert logprobs["tokens"] == ["<|bos|>", "bytes:\\xc3", "bytes:\\xa9", "x", "a", "b"]
    assert logprobs["text_offset"] == [0, 0, 1, 1, 2, 3]
    assert logprobs["token_logprobs"] == [None, -0.5, -0.5, -0.5, -0.5, -0.5]
    assert logprobs["top_logprobs"][0] is None
    assert logprobs["top_logprobs"][4] == {"é": -0.1, "a": -0.5}


def test_ids_are_echoed_as_their_visible_text() -> None:
    assert echoed_prompt((BOS, 0xC3, 0xA9), None, ByteTokenizer()).text == "é"
