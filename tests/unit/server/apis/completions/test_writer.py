"""Events to the wire format of text completions, the streamed and the whole one from the same events."""

import json
from itertools import chain
from typing import Any

import pytest

from proxy_inference_engine.output.events import Ended, PromptRead, TextDelta
from proxy_inference_engine.runners.fake import BOS, ByteTokenizer
from proxy_inference_engine.served.stream import Step
from proxy_inference_engine.server.apis.completions.writer import (
    CompletionFrames,
    CompletionShape,
    CompletionWhole,
    echoed_prompt,
)
from proxy_inference_engine.server.apis.shared.chunks import AnswerHead
from tests.unit.served.scripted import counted, make_counts
from tests.unit.server.apis.shared.candidates import candidate_steps
from tests.unit.server.apis.shared.frames import TIMINGS, choices_of, chunks, entry

HEAD = AnswerHead("id-1", "model", "fp", 123)
PROMPT_LOGPROBS = (None, entry(b"\xc3"), entry(b"\xa9"), entry(b"x"))


def both_completions(has_logprobs: bool, echo: bool) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    tokenizer = ByteTokenizer(has_bos=True)
    echoed = echoed_prompt((BOS, 0xC3, 0xA9, ord("x")), "éx", tokenizer) if echo else None
    shape = CompletionShape(1, (echoed, echoed), has_logprobs, include_usage=True)
    given = tuple(entry(bytes([byte])) for byte in b"ab")
    steps: list[Step] = [
        [(1, PromptRead(1, PROMPT_LOGPROBS)), (1, TextDelta("ab", given if has_logprobs else ()))],
        [(1, Ended("length", None, 2, TIMINGS)), (0, PromptRead(1, PROMPT_LOGPROBS))],
        [(0, Ended("stop", None, 0, TIMINGS))],
    ]
    counts = make_counts(4, 4)
    frames, answer = CompletionFrames(HEAD, counts, shape), CompletionWhole(HEAD, counts, shape)
    text = ""
    for step in steps:
        text += frames.feed(counted(counts, step)) + answer.feed(step)
    return chunks(text + frames.finish()), json.loads(answer.finish())


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


def test_completions_answer_the_best_of_each_prompt() -> None:
    counts = make_counts(5, 7, num_choices=3)
    answer = CompletionWhole(HEAD, counts, CompletionShape(1, (None, None), True, num_candidates=3))
    for step in candidate_steps():
        answer.feed(counted(counts, step))
    body = json.loads(answer.finish())
    assert [(choice["index"], choice["text"]) for choice in body["choices"]] == [(0, "text 1"), (1, "text 3")]
    assert body["choices"][0]["logprobs"]["token_logprobs"] == [-1.0]
    assert body["usage"]["completion_tokens"] == 18
