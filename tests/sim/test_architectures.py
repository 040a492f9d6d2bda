"""Every tiny architecture on MLX through the whole engine: no schedule changes an answer, wherever tokens are chosen.

Tokens compare equal, log-probabilities within what the order of sums makes of 32-bit numbers. The reference is each
request alone, in one long slot and with tokens chosen on the host; it is itself compared with a loop of mlx-lm.
"""

import json
import random
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("mlx.core")

from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.formats import by_name
from proxy_inference_engine.runners.base import Lane
from proxy_inference_engine.runners.mlx.model import MlxModel
from proxy_inference_engine.runners.mlx.runner import MlxRunner, Settings
from proxy_inference_engine.state_machine.demand import Demand, JsonSchema
from proxy_inference_engine.state_machine.machine import MachineBuilder
from proxy_inference_engine.types import Constraint, Limits, Logprob, Request, Sampling, Token
from tests.model.answers import Answer, run, run_alone, step
from tests.tiny.runners import WRITERS, greedy, load_tiny, logits_of

CLOSE = 2e-4  # nats
CACHE = 8 << 20
LANES = (Lane(3, 160), Lane(1, 320))
NUM_TOKENS = 8
SHARED = tuple(np.random.default_rng(3).integers(10, 500, 40).tolist())


class Case:
    """A model, and what requests hear alone."""

    def __init__(self, loaded: MlxModel) -> None:
        self.loaded = loaded
        self._roomy = MlxRunner(loaded, Settings((Lane(1, 400),), defers=False))
        self.alone = {request.id: self.answer(request) for request in make_requests()}

    def answer(self, request: Request) -> Answer:
        return run_alone(self._roomy, replace(request, draft_ids=()))

    def constraint(self, schema: dict[str, object]) -> Constraint:
        builder = MachineBuilder(by_name("qwen3"), self.loaded.vocabulary, tracks_states=True)
        constraint = builder.build(Demand(output=JsonSchema(schema), can_reason=False)).constraint
        assert constraint is not None
        return constraint

    def text(self, answer: Answer) -> str:
        ids = [token_id for token_id in answer.token_ids if token_id not in self.loaded.end_ids]
        return b"".join(map(self.loaded.vocabulary.token_bytes, ids)).decode()


def make_requests() -> list[Request]:
    """Half of them over one prefix; greedy and drawn, scored and not, one with a penalty that no device computes."""
    draw = np.random.default_rng(5)
    requests = []
    for index, length in enumerate((5, 40, 90, 17, 1, 33)):
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
                limits=Limits(NUM_TOKENS, ignore_eos=True),
                num_top_logprobs=2 if index in (2, 5) else None,
            )
        )
    return requests


@pytest.fixture(scope="module", params=WRITERS)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(load_tiny(request.param, tmp_path_factory.getbasetemp()))


@pytest.fixture(scope="module", params=[False, True], ids=["waits", "defers"])
def runner(request: pytest.FixtureRequest, case: Case) -> Iterator[MlxRunner]:
    runner = MlxRunner(case.loaded, Settings(LANES, defers=request.param))
    yield runner
    runner.close()


def assert_equal(answers: dict[str, Answer], expected: dict[str, Answer]) -> None:
    for request_id, answer in answers.items():
        assert answer.token_ids == expected[request_id].token_ids, request_id
        assert answer.reason == expected[request_id].reason
        assert_close(answer.logprobs, expected[request_id].logprobs)


def assert_close(found: list[Logprob | None], expected: list[Logprob | None]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            assert one.token_id == other.token_id and abs(one.logprob - other.logprob) < CLOSE


def test_greedy_is_a_plain_loop_of_mlx_lm(case: Case, runner: MlxRunner) -> None:
    plain = Sampling(seed=0, temperature=0.0)
    requests = [replace(request, sampling=plain, num_top_logprobs=None) for request in make_requests()]
    answers = run(StepEngine(runner, max_cache_bytes=CACHE), requests)
    for request in requests:
        assert answers[request.id].token_ids == greedy(case.loaded, request.prompt_ids, NUM_TOKENS)


def test_batched_is_alone(case: Case, runner: MlxRunner) -> None:
    """Random joins, chunks of other sizes, slots closed and reused, no cache."""
    engine = StepEngine(runner, max_cache_bytes=0, step_target_s=0.005)
    assert_equal(run(engine, make_requests(), rng=random.Random(1)), case.alone)


def test_a_cache_hit_is_cold(case: Case, runner: MlxRunner) -> None:
    engine = StepEngine(runner, max_cache_bytes=CACHE)
    requests = make_requests()
    assert_equal(run(engine, requests), case.alone)
    again = run(engine, requests)
    assert_equal(again, case.alone)
    for request in requests if runner.can_splice else ():
        assert again[request.id].num_cached_tokens == len(request.prompt_ids) - 1


def test_a_conversation_goes_on_from_what_was_said(case: Case, runner: MlxRunner) -> None:
    """Snapshots are of whole texts, and the next turn begins with one."""
    engine = StepEngine(runner, max_cache_bytes=CACHE)
    request = make_requests()[1]
    first = run(engine, [request])[request.id]
    turn = replace(request, prompt_ids=(*request.prompt_ids, *first.token_ids, 30, 31, 32))
    second = run(engine, [turn])[turn.id]
    assert second.num_cached_tokens == len(request.prompt_ids) + len(first.token_ids) - 1
    assert second.token_ids == case.answer(turn).token_ids


@pytest.mark.parametrize("max_cache_bytes", [0, CACHE])
def test_preempted_is_uninterrupted(case: Case, runner: MlxRunner, max_cache_bytes: int) -> None:
    """One tenant fills every slot of a lane, then others come: each takes one of its slots away."""
    engine = StepEngine(runner, max_cache_bytes=max_cache_bytes)
    requests = make_requests()
    answers = {request.id: Answer() for request in requests[:4]}
    for request in requests[:4]:
        engine.add(request)
    for _ in range(4):
        step(engine, answers)
    run(engine, [replace(request, tenant=request.id) for request in requests[4:]], answers=answers)
    assert engine.scheduler.counters.num_preemptions > 0
    assert_equal(answers, case.alone)


def test_cancelled_at_any_step(case: Case, runner: MlxRunner) -> None:
    """The others go on as if it had never been there, and nothing is left of it."""
    requests = make_requests()
    for num_steps in (0, 1, 2, 5):
        engine = StepEngine(runner, max_cache_bytes=CACHE, step_target_s=0.001)
        answers = {request.id: Answer() for request in requests}
        for request in requests[:4]:
            engine.add(request)
        for _ in range(num_steps):
            step(engine, answers)
        for request_id in ("r1", "r2"):
            engine.cancel(request_id)
            engine.check()
        run(engine, requests[4:], answers=answers)
        assert_equal({key: answers[key] for key in ("r0", "r3", "r4", "r5")}, case.alone)
        assert engine.scheduler.slots.num_held == 0


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


def test_echoed_prompts_are_scored_by_the_models_own_logits(case: Case, runner: MlxRunner) -> None:
    """Beside others; the second time the prompt is cached."""
    ids = (*SHARED, *range(40, 70))
    echo = Request("echo", "test", ids, Sampling(seed=0), Limits(0), num_prompt_logprobs=1)
    logits = logits_of(case.loaded, ids).astype(np.float64)
    expected = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    engine = StepEngine(runner, max_cache_bytes=CACHE)
    for _ in range(2):
        scores = run(engine, [echo, make_requests()[0]])["echo"].prompt_logprobs
        assert scores is not None and len(scores) == len(ids) and scores[0] is None
        for place, score in enumerate(scores[1:]):
            assert score is not None and abs(score.logprob - expected[place, ids[place + 1]]) < CLOSE


@pytest.mark.parametrize("num_right", [0, 3, NUM_TOKENS])
def test_guesses_change_no_token(case: Case, runner: MlxRunner, num_right: int) -> None:
    """Right ones, wrong ones, and none where what was computed cannot be forgotten."""
    requests = make_requests()
    guessed = [
        replace(request, draft_ids=(*case.alone[request.id].token_ids[:num_right], 33, 34)) for request in requests
    ]
    engine = StepEngine(runner, max_cache_bytes=CACHE)
    assert_equal(run(engine, guessed), case.alone)
    assert (engine.stats.total_draft_tokens_accepted > 0) == (runner.can_splice and num_right > 0)


# Grammars: what they force is computed several tokens at a time

_PLACE = {
    "type": "object",
    "properties": {"title": {"type": "string", "maxLength": 4}, "is_new": {"type": "boolean"}},
    "required": ["title", "is_new"],
    "additionalProperties": False,
}
# Longer than what is left of a short slot, so that the sequence moves in the middle of it.
_LONG = "The river runs to the sea, and the sea runs to the sky. " * 9


@pytest.mark.parametrize("max_cache_bytes", [0, CACHE])
def test_grammars(case: Case, runner: MlxRunner, max_cache_bytes: int) -> None:
    constraint = case.constraint(_PLACE)
    requests = [
        replace(request, constraint=constraint, limits=Limits(60), prompt_ids=request.prompt_ids[:50])
        for request in make_requests()[:4]
    ]
    alone = {request.id: case.answer(request) for request in requests}
    assert_equal(run(StepEngine(runner, max_cache_bytes=max_cache_bytes), requests, rng=random.Random(1)), alone)
    for answer in alone.values():
        assert answer.reason == "stop" and set(json.loads(case.text(answer))) == {"title", "is_new"}
    scored = case.answer(replace(requests[0], num_top_logprobs=0))
    assert scored.token_ids == alone[requests[0].id].token_ids


def test_a_jump_over_the_end_of_a_slot(case: Case, runner: MlxRunner) -> None:
    letters = {"type": "array", "items": {"enum": ["x", "y", "z"]}, "minItems": 5, "maxItems": 5}
    properties = {"first": {"enum": ["a", "b"]}, "text": {"const": _LONG}, "letters": letters}
    schema = {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}
    constraint = case.constraint(schema)
    first, second = (
        replace(request, constraint=constraint, limits=Limits(280), prompt_ids=request.prompt_ids[:9])
        for request in make_requests()[:2]
    )
    engine = StepEngine(runner, max_cache_bytes=0)
    answers = run(engine, [first, second, make_requests()[3]])
    assert engine.scheduler.counters.num_moves > 0
    assert_equal(answers, {**case.alone, first.id: case.answer(first), second.id: case.answer(second)})
    assert json.loads(case.text(answers[first.id]))["text"] == _LONG
