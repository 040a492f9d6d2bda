"""Exact mode on real weights: no schedule changes a bit of any answer. Tokens and log-probabilities compare equal."""

import random
from dataclasses import replace

import pytest

from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.runners.llama_cpp.runner import LlamaRunner
from tests.model.answers import Answer, make_requests, run, run_alone, step

pytestmark = pytest.mark.model

_CACHE = 200 << 20


@pytest.fixture(scope="module")
def alone(exact_runner: LlamaRunner) -> dict[str, Answer]:
    return {request.id: run_alone(exact_runner, request) for request in make_requests(exact_runner, temperature=0.8)}


def _assert_equal(answers: dict[str, Answer], expected: dict[str, Answer]) -> None:
    for request_id, answer in answers.items():
        assert answer.token_ids == expected[request_id].token_ids, request_id
        assert answer.logprobs == expected[request_id].logprobs, request_id


@pytest.mark.parametrize("seed", range(3))
def test_batched_is_alone(exact_runner: LlamaRunner, alone: dict[str, Answer], seed: int) -> None:
    """Random joins, chunks of other sizes, slots closed and reused, no cache."""
    engine = StepEngine(exact_runner, max_cache_bytes=0, step_target_s=random.Random(seed).uniform(0.02, 0.3))
    requests = make_requests(exact_runner, temperature=0.8)
    _assert_equal(run(engine, requests, rng=random.Random(seed)), alone)


def test_cache_hit_is_cold(exact_runner: LlamaRunner, alone: dict[str, Answer]) -> None:
    engine = StepEngine(exact_runner, max_cache_bytes=_CACHE)
    requests = make_requests(exact_runner, temperature=0.8)
    first = run(engine, requests)
    again = run(engine, [replace(request, id=request.id) for request in requests])
    _assert_equal(first, alone)
    _assert_equal(again, alone)
    for request in requests:
        assert again[request.id].num_cached_tokens == len(request.prompt_ids) - 1


def test_preempted_is_uninterrupted(exact_runner: LlamaRunner, alone: dict[str, Answer]) -> None:
    """One tenant fills every slot, three others come: each takes one of its slots away."""
    engine = StepEngine(exact_runner, max_cache_bytes=_CACHE)
    requests = make_requests(exact_runner, temperature=0.8)
    greedy = [request for request in requests if len(request.prompt_ids) < 100]
    others = [replace(request, tenant=request.id) for request in requests if request not in greedy]
    answers = {request.id: Answer() for request in greedy}
    for request in greedy:
        engine.add(request)
    for _ in range(6):
        step(engine, answers)
    run(engine, others, answers=answers)
    assert engine.scheduler.counters.num_preemptions > 0
    _assert_equal(answers, alone)


def test_moved_is_unmoved(exact_runner: LlamaRunner) -> None:
    """A sequence that outgrows the short lane goes on in the long one."""
    request = replace(make_requests(exact_runner)[0])
    request = replace(request, limits=replace(request.limits, max_tokens=300))
    engine = StepEngine(exact_runner, max_cache_bytes=0)
    moved = run(engine, [request])[request.id]
    assert engine.scheduler.counters.num_moves >= 1
    other = StepEngine(exact_runner, max_cache_bytes=_CACHE)
    again = run(other, [request, *make_requests(exact_runner)[1:4]])[request.id]
    assert again.token_ids == moved.token_ids
    assert again.logprobs == moved.logprobs


def test_choices_differ_but_repeat(exact_runner: LlamaRunner) -> None:
    request = replace(make_requests(exact_runner, temperature=1.0)[1], num_choices=3)
    engine = StepEngine(exact_runner, max_cache_bytes=_CACHE)
    heard: list[dict[int, list[int]]] = []
    for _ in range(2):
        engine.add(request)
        tokens: dict[int, list[int]] = {}
        while engine.has_work:
            for _, choice, output in engine.step():
                if hasattr(output, "id"):
                    tokens.setdefault(choice, []).append(output.id)
        heard.append(tokens)
    assert heard[0] == heard[1]
    assert len({tuple(ids) for ids in heard[0].values()}) == 3
