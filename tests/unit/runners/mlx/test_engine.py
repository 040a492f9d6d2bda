"""Every tiny architecture through the whole engine: no schedule changes an answer, wherever tokens are chosen.

Tokens compare equal, log-probabilities within what the order of sums makes of 32-bit numbers.
"""

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.formats import by_name
from proxy_inference_engine.runners.base import Lane
from proxy_inference_engine.runners.mlx.model import MlxModel
from proxy_inference_engine.runners.mlx.runner import MlxRunner, Settings
from proxy_inference_engine.state_machine.demand import Choice, Demand, JsonSchema
from proxy_inference_engine.state_machine.machine import MachineBuilder
from proxy_inference_engine.types import Constraint, Limits, Logprob, Request, Sampling, Token
from tests.model.answers import Answer, run, run_alone, step
from tests.tiny.runners import WRITERS, greedy, load_tiny, logits_of
from tests.unit.engine.constrained import RECORD

CLOSE = 2e-4  # nats; seen up to 2e-5
CACHE = 8 << 20
WIDE = (Lane(3, 160), Lane(1, 320))
SHARED = tuple(np.random.default_rng(3).integers(10, 500, 60).tolist())


@pytest.fixture(scope="module", params=WRITERS)
def loaded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> MlxModel:
    return load_tiny(request.param, tmp_path_factory.getbasetemp())


@pytest.fixture(scope="module", params=[False, True], ids=["waits", "defers"])
def runner(request: pytest.FixtureRequest, loaded: MlxModel) -> Iterator[MlxRunner]:
    runner = MlxRunner(loaded, Settings(WIDE, defers=request.param))
    yield runner
    runner.close()


@pytest.fixture(scope="module")
def alone(runner: MlxRunner) -> dict[str, Answer]:
    return {request.id: run_alone(runner, request) for request in make_requests()}


def make_requests(max_tokens: int = 12) -> list[Request]:
    """Half of them over one prefix; greedy and drawn, scored and not, and some with a penalty no device computes."""
    draw = np.random.default_rng(5)
    requests = []
    for index, length in enumerate((5, 40, 90, 17, 1, 33, 64, 8)):
        prompt = draw.integers(10, 500, length).tolist()
        sampling = Sampling(
            seed=index,
            temperature=0.0 if index % 3 == 0 else 0.9,
            top_p=0.9 if index % 2 else 1.0,
            repetition_penalty=1.2 if index == 4 else 1.0,
        )
        requests.append(
            Request(
                id=f"r{index}",
                tenant="test",
                prompt_ids=(*SHARED, *prompt) if index % 2 else tuple(prompt),
                sampling=sampling,
                limits=Limits(max_tokens, ignore_eos=True),
                num_top_logprobs=2 if index in (2, 5) else None,
            )
        )
    return requests


def assert_equal(answers: dict[str, Answer], expected: dict[str, Answer]) -> None:
    for request_id, answer in answers.items():
        assert answer.token_ids == expected[request_id].token_ids, request_id
        assert answer.reason == expected[request_id].reason
        assert_scores_close(answer.logprobs, expected[request_id].logprobs)


def assert_scores_close(found: list[Logprob | None], expected: list[Logprob | None]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            assert one.token_id == other.token_id and abs(one.logprob - other.logprob) < CLOSE


def test_greedy_is_a_plain_loop_of_mlx_lm(loaded: MlxModel, runner: MlxRunner) -> None:
    requests = [
        replace(request, sampling=Sampling(seed=0, temperature=0.0), num_top_logprobs=None)
        for request in make_requests()
    ]
    answers = run(StepEngine(runner, max_cache_bytes=CACHE), requests)
    for request in requests:
        assert answers[request.id].token_ids == greedy(loaded, request.prompt_ids, 12)


def test_batched_is_alone(runner: MlxRunner, alone: dict[str, Answer]) -> None:
    """Random joins, chunks of other sizes, slots closed and reused, no cache."""
    for seed in range(2):
        engine = StepEngine(runner, max_cache_bytes=0, step_target_s=random.Random(seed).uniform(0.001, 0.05))
        assert_equal(run(engine, make_requests(), rng=random.Random(seed)), alone)


def test_a_cache_hit_is_cold(runner: MlxRunner, alone: dict[str, Answer]) -> None:
    engine = StepEngine(runner, max_cache_bytes=CACHE)
    requests = make_requests()
    assert_equal(run(engine, requests), alone)
    again = run(engine, requests)
    assert_equal(again, alone)
    for request in requests if runner.can_splice else ():
        assert again[request.id].num_cached_tokens == len(request.prompt_ids) - 1


def test_a_conversation_goes_on_from_what_was_said(runner: MlxRunner, alone: dict[str, Answer]) -> None:
    """Snapshots are of whole texts: the next turn begins with one."""
    engine = StepEngine(runner, max_cache_bytes=CACHE)
    request = make_requests()[1]
    first = run(engine, [request])[request.id]
    turn = replace(request, prompt_ids=(*request.prompt_ids, *first.token_ids, 30, 31, 32))
    second = run(engine, [turn])[turn.id]
    assert second.num_cached_tokens == len(request.prompt_ids) + len(first.token_ids) - 1
    assert second.token_ids == run_alone(runner, turn).token_ids


@pytest.mark.parametrize("max_cache_bytes", [0, CACHE])
def test_preempted_is_uninterrupted(runner: MlxRunner, alone: dict[str, Answer], max_cache_bytes: int) -> None:
    """One tenant fills every slot of a lane, then others come: each takes one of its slots away."""
    engine = StepEngine(runner, max_cache_bytes=max_cache_bytes)
    requests = make_requests()
    greedy_ones = requests[:4]
    others = [replace(request, tenant=request.id) for request in requests[4:]]
    answers = {request.id: Answer() for request in greedy_ones}
    for request in greedy_ones:
        engine.add(request)
    for _ in range(6):
        step(engine, answers)
    run(engine, others, answers=answers)
    assert engine.scheduler.counters.num_preemptions > 0
    assert_equal(answers, alone)


def test_moved_is_unmoved(loaded: MlxModel, runner: MlxRunner) -> None:
    """A sequence that outgrows the short lane goes on in the long one, beside those that stay."""
    request = replace(make_requests()[0], limits=Limits(170, ignore_eos=True))
    engine = StepEngine(runner, max_cache_bytes=0)
    moved = run(engine, [request, *make_requests()[1:3]])[request.id]
    assert engine.scheduler.counters.num_moves >= 1
    assert moved.token_ids == greedy(loaded, request.prompt_ids, 170)


def test_choices_differ_but_repeat(runner: MlxRunner) -> None:
    request = replace(make_requests()[1], num_choices=3)
    engine = StepEngine(runner, max_cache_bytes=CACHE)
    heard: list[dict[int, list[int]]] = []
    for _ in range(2):
        engine.add(request)
        tokens: dict[int, list[int]] = {0: [], 1: [], 2: []}
        while engine.has_work:
            for _, choice, output in engine.step():
                if isinstance(output, Token):
                    tokens[choice].append(output.id)
        heard.append(tokens)
    assert heard[0] == heard[1]
    assert len({tuple(ids) for ids in heard[0].values()}) == 3


def test_cancelled_at_any_step(runner: MlxRunner, alone: dict[str, Answer]) -> None:
    """The others go on as if it had never been there, and nothing is left of it."""
    requests = make_requests()
    for num_steps in range(8):
        engine = StepEngine(runner, max_cache_bytes=CACHE, step_target_s=0.001)
        answers = {request.id: Answer() for request in requests}
        for request in requests[:4]:
            engine.add(request)
        for _ in range(num_steps):
            step(engine, answers)
        engine.cancel("r1")
        engine.cancel("r2")
        engine.check()
        run(engine, requests[4:6], answers=answers)
        assert_equal({key: answers[key] for key in ("r0", "r3", "r4", "r5")}, alone)
        assert engine.scheduler.slots.num_held == 0


# What the logits say


@pytest.mark.parametrize("num_before", [0, 1])
def test_echoed_prompts_are_scored_by_the_models_own_logits(
    loaded: MlxModel, runner: MlxRunner, num_before: int
) -> None:
    """Also when the prompt is cached, and beside others."""
    ids = (*SHARED, *range(40, 70))
    echo = Request("echo", "test", ids, Sampling(seed=0), Limits(0), num_prompt_logprobs=1)
    engine = StepEngine(runner, max_cache_bytes=CACHE)
    for _ in range(num_before):
        run(engine, [echo])
    scores = run(engine, [echo, *make_requests()[:2]])["echo"].prompt_logprobs
    assert scores is not None and len(scores) == len(ids) and scores[0] is None
    logits = logits_of(loaded, ids).astype(np.float64)
    logprobs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    for place, score in enumerate(scores[1:]):
        assert score is not None and abs(score.logprob - logprobs[place, ids[place + 1]]) < CLOSE


# Guesses and grammars


def test_guesses_change_no_token(runner: MlxRunner, alone: dict[str, Answer]) -> None:
    """Right ones, wrong ones, and none where what was computed cannot be forgotten."""
    requests = make_requests()
    for num_right in (0, 5, 12):
        engine = StepEngine(runner, max_cache_bytes=CACHE, ngram_draft_tokens=4)
        guessed = [
            replace(request, draft_ids=(*alone[request.id].token_ids[:num_right], 33, 34, 35)) for request in requests
        ]
        assert_equal(run(engine, guessed), alone)
        assert (engine.totals.draft_tokens > 0) == runner.can_splice
        assert engine.totals.draft_tokens_accepted >= (num_right // 2 if runner.can_splice else 0)


@cache
def builder_of(runner: MlxRunner) -> MachineBuilder:
    return MachineBuilder(by_name("qwen3"), runner.tokenizer, tracks_states=True)


def constraint_of(runner: MlxRunner, demand: Demand) -> Constraint:
    constraint = builder_of(runner).build(demand).constraint
    assert constraint is not None
    return constraint


FORCED = "The capital of France is Paris, and the river runs to the sea. " * 2
DEMANDS = {
    "record": Demand(output=JsonSchema(RECORD)),
    "jumps": Demand(output=Choice(tuple(f"{first}{FORCED}{last}" for first in "ab" for last in "xy"))),
}


@pytest.mark.parametrize("name", DEMANDS)
def test_grammars(runner: MlxRunner, name: str) -> None:
    """What they force is computed several tokens at a time, and nobody can tell from the answer."""
    constraint = constraint_of(runner, DEMANDS[name])
    requests = [
        replace(request, constraint=constraint, limits=Limits(120), prompt_ids=request.prompt_ids[:60])
        for request in make_requests()[:6]
    ]
    alone = {request.id: run_alone(runner, request) for request in requests}
    scored = {request.id: run_alone(runner, replace(request, num_top_logprobs=0)) for request in requests[:2]}
    batched = run(StepEngine(runner, max_cache_bytes=CACHE), requests, rng=random.Random(1))
    assert_equal(batched, alone)
    for request in requests:
        text = said(runner, alone[request.id])
        if name == "jumps":
            assert text[1:-1] == FORCED and text[0] in "ab" and text[-1] in "xy"
        else:
            assert set(json.loads(text)) == {"title", "is_new", "size"}
    for request_id, answer in scored.items():
        assert answer.token_ids == alone[request_id].token_ids


def said(runner: MlxRunner, answer: Answer) -> str:
    assert answer.reason == "stop"
    visible = [token_id for token_id in answer.token_ids if token_id not in runner.tokenizer.end_ids]
    return b"".join(map(runner.tokenizer.token_bytes, visible)).decode()
