"""The default mode on real weights: schedules may flip near-ties, and nothing more."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.runners.base import Row
from proxy_inference_engine.runners.llama_cpp.runner import LlamaRunner
from proxy_inference_engine.types import Limits, Request, Sampling
from tests.model.answers import LONG, TEXTS, make_requests, run, run_alone

pytestmark = pytest.mark.model

_MAX_DIFFERENCE = 2.0  # of a logit, F16 KV; measured up to 1.3


def test_batched_logits_stay_close(runner: LlamaRunner, record_property: Callable[[str, object], None]) -> None:
    """Teacher-forced: the same tokens alone and beside three others."""
    ids = [np.array(runner.tokenizer.encode(LONG + text)[:120], np.int32) for text in TEXTS[:4]]
    alone = []
    for row in ids:
        alone.append(runner.forward([Row(0, 0, row, 1)])[0][-1].copy())
        runner.release(0)
    together = [logits[-1].copy() for logits in runner.forward([Row(i, 0, row, 1) for i, row in enumerate(ids)])]
    for slot in range(4):
        runner.release(slot)
    difference = max(float(np.abs(a - b).max()) for a, b in zip(alone, together, strict=True))
    record_property("largest_logit_difference", difference)
    assert difference < _MAX_DIFFERENCE
    same = sum(int(a.argmax()) == int(b.argmax()) for a, b in zip(alone, together, strict=True))
    assert same >= 3


def test_most_greedy_answers_are_equal(runner: LlamaRunner, record_property: Callable[[str, object], None]) -> None:
    requests = make_requests(runner)
    alone = {request.id: run_alone(runner, request) for request in requests}
    batched = run(StepEngine(runner, max_cache_bytes=200 << 20), requests)
    share = sum(batched[key].token_ids == alone[key].token_ids for key in alone) / len(alone)
    record_property("share_of_equal_greedy_answers", share)
    assert share >= 0.25  # five of eight with our product, four on another machine; seven without it


def test_second_identical_request_computes_one_token(runner: LlamaRunner) -> None:
    engine = StepEngine(runner, max_cache_bytes=200 << 20)
    request = make_requests(runner)[1]
    run(engine, [request])
    assert run(engine, [request])[request.id].num_cached_tokens == len(request.prompt_ids) - 1


@pytest.mark.parametrize("text", [TEXTS[0], LONG + TEXTS[3]])
def test_echoed_logprobs_agree_with_a_forward_pass(runner: LlamaRunner, text: str) -> None:
    """What lm-evaluation-harness reads: within 0.01 nats a token of one plain forward pass."""
    ids = np.array(runner.tokenizer.encode(text), np.int32)
    request = Request(
        id="echo",
        tenant="test",
        prompt_ids=tuple(int(i) for i in ids),
        sampling=Sampling(seed=0, temperature=0.0),
        limits=Limits(0),
        num_prompt_logprobs=1,
    )
    engine = StepEngine(runner, max_cache_bytes=200 << 20)
    for _ in range(2):  # the second time the prompt is cached, and computed all the same
        echoed = run(engine, [request])["echo"].prompt_logprobs
        assert echoed is not None and len(echoed) == len(ids) and echoed[0] is None
        direct = _direct_logprobs(runner, ids)
        got = np.array([entry.logprob for entry in echoed[1:] if entry is not None])
        assert np.abs(got - direct).mean() < 0.01
        assert np.abs(got - direct).max() < 0.1


def _direct_logprobs(runner: LlamaRunner, ids: NDArray[np.int32]) -> NDArray[np.float64]:
    """Log-probability of each token after the first, from passes over the bare runner."""
    rows = []
    for start in range(0, len(ids), 48):
        part = ids[start : start + 48]
        rows.append(runner.forward([Row(0, start, part, len(part))])[0].astype(np.float64))
    runner.release(0)
    logits = np.concatenate(rows)[:-1]
    logits -= logits.max(axis=1, keepdims=True)
    logits -= np.log(np.exp(logits).sum(axis=1, keepdims=True))
    picked: NDArray[np.float64] = logits[np.arange(len(ids) - 1), ids[1:]]
    return picked
