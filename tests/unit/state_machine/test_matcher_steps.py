"""The clock of a walk's steps: a moment is forgiven, a habit is not, and only the processor's time counts."""

from collections.abc import Iterator
from itertools import chain, repeat

import pytest

from proxy_inference_engine.state_machine import matcher
from proxy_inference_engine.state_machine.matcher import FREE_S, MAX_OWED_S, StepClock


class Hands:
    """Both clocks, moved by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall = self.own = 0.0
        monkeypatch.setattr(matcher, "perf_counter", lambda: self.wall)
        monkeypatch.setattr(matcher, "thread_time", lambda: self.own)

    def step(self, clock: StepClock, wall: float, own: float) -> bool:
        """One token's step. Whether it is one too many."""
        began = clock.now()
        self.wall += wall
        self.own += own
        is_over = clock.is_over(began)
        clock.pay()
        return is_over


@pytest.fixture
def hands(monkeypatch: pytest.MonkeyPatch) -> Hands:
    return Hands(monkeypatch)


def num_steps(hands: Hands, times: Iterator[float], most: int = 2_000) -> int:
    """How many steps are taken before one is too many; all of them where none is."""
    clock = StepClock()
    return next((number for number in range(most) if hands.step(clock, *[next(times)] * 2)), most)


def test_quick_steps_go_on_for_ever(hands: Hands) -> None:
    assert num_steps(hands, repeat(0.001)) == 2_000


def test_steps_that_are_paid_for_go_on_for_ever(hands: Hands) -> None:
    assert num_steps(hands, repeat(FREE_S * 0.99)) == 2_000


def test_a_slow_moment_is_forgiven(hands: Hands) -> None:
    assert num_steps(hands, chain([0.001] * 50, [0.02] * 10, repeat(0.001))) == 2_000


@pytest.mark.parametrize("each", [0.01, 0.03, 0.1])
def test_slow_steps_end_the_sooner_the_slower_they_are(hands: Hands, each: float) -> None:
    expected = MAX_OWED_S / (each - FREE_S)
    assert expected - 1 <= num_steps(hands, repeat(each)) <= expected + 3


def test_a_step_that_takes_all_the_time_there_is_ends_at_once(hands: Hands) -> None:
    assert num_steps(hands, chain([0.01], repeat(10.0))) == 1


def test_time_that_somebody_else_took_does_not_count(hands: Hands) -> None:
    clock = StepClock()
    assert not any(hands.step(clock, 5.0, 0.0001) for _ in range(1_000))


def test_what_is_quick_again_is_timed_by_the_wall_again(hands: Hands) -> None:
    """To ask the thread's own clock costs more than most steps take."""
    clock = StepClock()
    hands.step(clock, 1.0, 0.001)
    assert clock.now() == hands.own
    for _ in range(matcher._NUM_WATCHED - 1):
        hands.step(clock, 0.5, 0.001)
    assert clock.now() == hands.wall


def test_what_stays_slow_is_watched(hands: Hands) -> None:
    clock = StepClock()
    for _ in range(20):
        hands.step(clock, 0.006, 0.006)
    assert clock.now() == hands.own
