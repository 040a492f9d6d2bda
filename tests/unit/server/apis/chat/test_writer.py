"""Events to the wire format of chat, the streamed and the whole one from the same events."""

import json
import math
from itertools import chain
from typing import Any

from proxy_inference_engine.output.events import Ended, PromptRead, TextDelta
from proxy_inference_engine.served.stream import Step
from proxy_inference_engine.server.apis.chat.writer import ChatFrames, ChatShape, ChatWhole
from proxy_inference_engine.server.apis.shared.chunks import AnswerHead
from tests.unit.served.scripted import counted, make_counts
from tests.unit.server.apis.shared.candidates import candidate_steps
from tests.unit.server.apis.shared.frames import TIMINGS, choices_of, chunks, entry

HEAD = AnswerHead("id-1", "model", "fp", 123, metadata={"a": "b"})
STEPS: list[Step] = [
    [(1, PromptRead(4, None)), (1, TextDelta("b", (entry(b"b"),)))],
    [(0, PromptRead(2, None)), (0, TextDelta("a\u2028", (entry(b"a"), entry(b"\xe2", -math.inf))))],
    [(1, Ended("length", None, 7, TIMINGS)), (0, TextDelta("c", ()))],
    [(0, Ended("stop", "END", 3, TIMINGS))],
]
USAGE = {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}


def stream_chat(shape: ChatShape, head: AnswerHead = HEAD) -> list[dict[str, Any]]:
    counts = make_counts(10, num_choices=2)
    frames = ChatFrames(head, counts, shape)
    return chunks("".join(frames.feed(counted(counts, step)) for step in STEPS) + frames.finish())


def answer_chat(shape: ChatShape, head: AnswerHead = HEAD) -> dict[str, Any]:
    counts = make_counts(10, num_choices=2)
    answer = ChatWhole(head, counts, shape)
    for step in STEPS:
        answer.feed(counted(counts, step))
    body: dict[str, Any] = json.loads(answer.finish())
    assert body == answer.body()
    return body


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


def test_a_stop_string_is_reported_whoever_asked_for_it() -> None:
    shape = ChatShape(2, has_logprobs=False, include_usage=False)
    assert answer_chat(shape)["choices"][0]["stop_str"] == "END"
    assert stream_chat(shape)[-1]["choices"][0]["stop_str"] == "END"


def test_service_tier_is_echoed_when_asked() -> None:
    head = AnswerHead("id", "m", "fp", 1, service_tier="default")
    shape = ChatShape(2, has_logprobs=False, include_usage=False)
    assert answer_chat(shape, head)["service_tier"] == "default"
    assert all(chunk["service_tier"] == "default" for chunk in stream_chat(shape, head))


def test_chat_answers_the_best_of_each_conversation() -> None:
    shape = ChatShape(2, has_logprobs=False, include_usage=False, num_candidates=3)
    counts = make_counts(5, 7, num_choices=3)
    answer = ChatWhole(HEAD, counts, shape, shape)
    for step in candidate_steps():
        answer.feed(counted(counts, step))
    body = answer.body()
    assert [(choice["index"], choice["message"]["content"]) for choice in body["choices"]] == [
        (0, "text 1"),
        (1, "text 2"),
        (2, "text 3"),
        (3, "text 5"),
    ]
    assert all(choice["logprobs"] is None for choice in body["choices"])
    assert (body["usage"]["prompt_tokens"], body["usage"]["completion_tokens"]) == (12, 18)
