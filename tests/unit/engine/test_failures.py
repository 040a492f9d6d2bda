"""Requests that end early: cancelled at any moment, or failed, and whom that touches."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from proxy_inference_engine.errors import ENDINGS, EngineFailure, Unavailable
from proxy_inference_engine.runners.base import Lane, Logits, Row
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.types import Failed, Request, State
from tests.deferred import DeferredRunner
from tests.drafts import DraftRunner
from tests.requests import make_request, random_draws
from tests.unit.engine.driven import ENDLESS, Driven, Faults, alone

POISON = 7
LONG = "a long prompt that takes several steps to compute, for a chunk has 64 tokens at most; " * 3

# Cancelling


def test_cancelled_while_waiting() -> None:
    driven = Driven(FakeRunner(lanes=[Lane(1, 200)]))
    driven.add(make_request(id="runs", max_tokens=50), make_request(id="waits"))
    driven.step()
    driven.engine.cancel("waits")
    assert "waits" not in driven.engine
    assert len(driven.engine.scheduler.waiting) == 0
    driven.run()
    assert ("waits", 0) not in driven.heard


@pytest.mark.parametrize(("num_steps", "num_outputs"), [(1, 0), (9, 1 + 5)], ids=["in prefill", "decoding"])
def test_cancelled_while_running_everything_is_free_at_once(num_steps: int, num_outputs: int) -> None:
    driven = Driven()
    driven.add(make_request(LONG, max_tokens=50))
    driven.step(num_steps)
    assert len(driven.heard["r", 0].outputs) == num_outputs
    driven.engine.cancel("r")
    driven.assert_idle()
    driven.engine.check()
    assert "r" not in driven.engine
    assert driven.engine.step() == []


def test_what_a_cancelled_request_computed_stays_in_the_cache() -> None:
    driven = Driven()
    driven.add(make_request(LONG, id="gone"))
    driven.step()
    driven.engine.cancel("gone")
    assert driven.run(make_request(LONG)).prefilled.num_cached_tokens == 64


def test_cancelling_one_choice_leaves_the_others() -> None:
    driven = Driven()
    driven.add(make_request(sampling=random_draws(1), num_choices=3))
    driven.step(3)
    driven.engine.cancel("r", 1)
    num_heard = len(driven.heard["r", 1].outputs)
    driven.run()
    assert len(driven.heard["r", 1].outputs) == num_heard
    undisturbed = Driven()
    undisturbed.run(make_request(sampling=random_draws(1), num_choices=3))
    for choice in (0, 2):
        assert driven.heard["r", choice].token_ids == undisturbed.heard["r", choice].token_ids


def test_cancelling_what_is_over_or_unknown_is_harmless() -> None:
    driven = Driven()
    driven.run(make_request())
    driven.engine.cancel("r")
    driven.engine.cancel("r", 0)
    driven.engine.cancel("nobody")
    driven.assert_idle()


# Failures


@pytest.fixture
def neighbours() -> list[Request]:
    return [make_request(f"neighbour {index}", id=f"n{index}", max_tokens=20) for index in range(3)]


def assert_undisturbed(driven: Driven, requests: list[Request]) -> None:
    for request in requests:
        assert driven.heard[request.id, 0].outputs[:-1] == alone(request).outputs[:-1]


@pytest.mark.parametrize("num_prompt_logprobs", [None, 0])
def test_logits_that_are_no_numbers_fail_that_request_only(
    neighbours: list[Request], num_prompt_logprobs: int | None
) -> None:
    driven = Driven(FakeRunner(end_bias=ENDLESS, poison_id=POISON))
    bad = make_request([*b"bad", POISON], num_prompt_logprobs=num_prompt_logprobs)
    driven.add(*neighbours)
    driven.step(5)
    error = driven.run(bad).error
    assert isinstance(error, EngineFailure)
    assert (error.status, error.code) == (500, "model_output_invalid")
    assert_undisturbed(driven, neighbours)
    assert driven.engine.stats.total_failures == 1


def test_an_echoed_prompt_fails_without_a_token_being_drawn() -> None:
    driven = Driven(FakeRunner(poison_id=POISON))
    bad = make_request([*b"bad", POISON, *b"!"], max_tokens=0, num_prompt_logprobs=0)
    assert driven.run(bad).error.code == "model_output_invalid"


def test_a_failed_request_leaves_nothing_in_the_cache() -> None:
    driven = Driven(FakeRunner(poison_id=POISON))
    driven.run(make_request([*b"bad", POISON]))
    assert driven.engine.cache.num_tokens == 0


def test_a_request_hears_of_its_failure_once_however_many_choices_it_has() -> None:
    driven = Driven(FakeRunner(poison_id=POISON))
    driven.run(make_request([*b"bad", POISON], num_choices=4))
    outputs = [output for heard in driven.heard.values() for output in heard.outputs]
    assert sum(isinstance(output, Failed) for output in outputs) == 1
    assert isinstance(outputs[-1], Failed)


def test_whatever_goes_wrong_with_one_request_ends_no_other(neighbours: list[Request]) -> None:
    driven = Driven()
    error = driven.run(make_request(num_top_logprobs="two"), *neighbours).error  # type: ignore[arg-type]
    assert error.code == "engine_failure"
    assert "two" not in error.message
    assert_undisturbed(driven, neighbours)


class Panic(BaseException):
    """What a library written in Rust raises when it panics: no Exception."""


@dataclass
class PanickingMatcher:
    """A grammar that allows anything and panics in one of its calls, once it has seen three tokens or at once."""

    where: str
    is_early: bool
    num_tokens: int = 0
    state: State = "text"

    def _maybe(self, where: str) -> None:
        if where == self.where and (self.is_early or self.num_tokens >= 3):
            raise Panic("injected panic")

    @property
    def is_complete(self) -> bool:
        self._maybe("is_complete")
        return False

    def prepare(self) -> None:
        self._maybe("prepare")

    def mask(self) -> None:
        self._maybe("mask")

    def forced(self) -> list[int]:
        self._maybe("forced")
        return []

    def accept(self, token_id: int) -> None:
        self.num_tokens += 1
        self._maybe("accept")


@dataclass(frozen=True)
class PanickingConstraint:
    where: str
    is_early: bool
    grammar: str | None = None
    min_reasoning_tokens = 0
    budget = None

    def start(self) -> PanickingMatcher:
        if self.where == "start":
            raise Panic("injected panic")
        return PanickingMatcher(self.where, self.is_early)


@pytest.mark.parametrize("is_deferred", [False, True])
@pytest.mark.parametrize("is_early", [False, True])
@pytest.mark.parametrize("where", ["start", "is_complete", "prepare", "mask", "forced", "accept"])
def test_a_panic_in_a_grammar_ends_that_request_only(
    neighbours: list[Request], where: str, is_early: bool, is_deferred: bool
) -> None:
    runner = DeferredRunner(end_bias=ENDLESS)
    if is_deferred:
        runner.defer()
    driven = Driven(runner)
    driven.add(*neighbours)
    driven.step(2)
    bad = replace(make_request(id="bad", max_tokens=20), constraint=PanickingConstraint(where, is_early))
    try:
        driven.add(bad)
    except EngineFailure as error:  # before anything was computed
        assert error.code == "engine_failure" and (where == "start" or (where == "forced" and is_early))
        driven.run()
    else:
        driven.run()
        assert driven.heard["bad", 0].error.code == "engine_failure"
    assert_undisturbed(driven, neighbours)
    assert driven.engine.stats.total_failures == (("bad", 0) in driven.heard)
    driven.run(make_request(id="later"))


@pytest.mark.parametrize("end", ENDINGS)
def test_what_ends_a_thread_is_no_matter_of_one_request(end: type[BaseException]) -> None:
    class Ended(FakeRunner):
        def forward(self, rows: Sequence[Row]) -> list[Logits]:
            raise end

    driven = Driven(Ended())
    driven.add(make_request())
    with pytest.raises(end):
        driven.step()


@pytest.mark.parametrize("num_steps", range(12))
@pytest.mark.parametrize("is_deferred", [False, True])
def test_an_engine_that_was_cleared_has_no_past(neighbours: list[Request], num_steps: int, is_deferred: bool) -> None:
    """Whatever it was doing, and its draft model too."""
    runner, draft = DeferredRunner(lanes=[Lane(2, 200)], end_bias=ENDLESS), DraftRunner(wrong_every=3)
    if is_deferred:
        runner.defer()
    driven = Driven(runner)
    driven.engine.draft_with(draft, 4)
    driven.run(make_request("before", id="before"))
    driven.add(*neighbours)
    driven.step(num_steps)
    driven.engine.reset()
    driven.engine.check()
    driven.assert_idle()
    assert (driven.engine.cache.num_tokens, driven.engine.cache.num_bytes, draft.num_held_slots()) == (0, 0, 0)
    driven.heard.clear()
    driven.run(*neighbours)
    for request in neighbours:
        assert driven.heard[request.id, 0].token_ids == alone(request).token_ids


@pytest.mark.parametrize("call", [1, 2, 10])
def test_a_forward_pass_that_fails_once_is_tried_again_and_nobody_notices(neighbours: list[Request], call: int) -> None:
    driven = Driven(FakeRunner(end_bias=ENDLESS, on_forward=Faults(call)))
    driven.run(*neighbours)
    assert_undisturbed(driven, neighbours)
    assert (driven.engine.stats.total_failures, driven.engine.passes.num_failures) == (0, 0)


def test_a_forward_pass_that_fails_twice_fails_the_requests_in_it_and_later_ones_succeed() -> None:
    driven = Driven(FakeRunner(lanes=[Lane(2, 200)], end_bias=ENDLESS, on_forward=Faults(3, 4)))
    in_it = [make_request(f"in it {index}", id=f"r{index}") for index in range(2)]
    waiting = make_request("waits", id="later")
    driven.add(*in_it, waiting)
    driven.step(3)
    for request in in_it:
        assert driven.heard[request.id, 0].error.code == "engine_failure"
    assert (driven.engine.stats.total_failures, driven.engine.passes.num_failures) == (2, 1)
    driven.run()
    assert_undisturbed(driven, [waiting])
    assert driven.engine.passes.num_failures == 0


def test_forward_failures_are_counted_in_a_row() -> None:
    driven = Driven(FakeRunner(on_forward=Faults(1, 2, 3, 4)))
    for index in range(2):
        driven.run(make_request(id=f"r{index}"))
    assert driven.engine.passes.num_failures == 2
    driven.run(make_request())
    assert driven.engine.passes.num_failures == 0


def test_fail_all_ends_what_runs_and_what_waits() -> None:
    driven = Driven(FakeRunner(lanes=[Lane(2, 200)]))
    driven.add(*[make_request(id=f"r{index}", max_tokens=50) for index in range(4)])
    driven.step(2)
    error = Unavailable("the end")
    deliveries = driven.engine.fail_all(error)
    assert sorted(delivery.request_id for delivery in deliveries) == ["r0", "r1", "r2", "r3"]
    assert all(delivery.output == Failed(error) for delivery in deliveries)
    driven.assert_idle()


def test_a_model_that_cannot_take_tokens_back_fails_the_step_not_the_engine() -> None:
    """Recurrent memory can't be truncated; the real runner raises then."""

    class Recurrent(FakeRunner):
        def truncate(self, slot: int, num_tokens: int) -> None:
            if num_tokens < self.num_slot_tokens(slot):
                raise RuntimeError("this model's memory can't forget a part of a sequence")

    driven = Driven(Recurrent(can_splice=False, on_forward=Faults(3)))
    driven.run(make_request())
    driven.run(make_request(id="later"))
