"""CompileTime: what a tenant may use, on a clock of the test's own."""

import pytest

from proxy_inference_engine.errors import RateLimited
from proxy_inference_engine.state_machine.sandbox.turns import Allowance, CompileTime


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def spend(time: CompileTime, clock: Clock, tenant: str, seconds: float) -> None:
    with time.spent_by(tenant):
        clock.now += seconds


def test_what_is_used_up_comes_back_with_time() -> None:
    clock = Clock()
    time = CompileTime(Allowance(max_seconds=10.0, share=0.5), clock)
    spend(time, clock, "a", 8.0)
    spend(time, clock, "a", 8.0)  # 2 left before, so it may begin
    with pytest.raises(RateLimited) as caught:
        spend(time, clock, "a", 1.0)
    # 10 - 8, and 8 s later 2 - 8 + what came in those 8 s.
    assert (caught.value.status, caught.value.retry_after_s) == (429, 4)
    clock.now += 4.5
    spend(time, clock, "a", 1.0)


def test_others_have_their_own() -> None:
    clock = Clock()
    time = CompileTime(Allowance(max_seconds=1.0, share=0.1), clock)
    spend(time, clock, "a", 5.0)
    with pytest.raises(RateLimited):
        spend(time, clock, "a", 0.0)
    spend(time, clock, "b", 0.5)


def test_what_fails_is_counted_too() -> None:
    clock = Clock()
    time = CompileTime(Allowance(max_seconds=1.0, share=0.1), clock)
    with pytest.raises(ValueError, match="inside"), time.spent_by("a"):
        clock.now += 2.0
        raise ValueError("inside")
    with pytest.raises(RateLimited):
        spend(time, clock, "a", 0.0)


def test_no_more_is_saved_than_the_bound() -> None:
    clock = Clock()
    time = CompileTime(Allowance(max_seconds=1.0, share=0.5), clock)
    spend(time, clock, "a", 0.5)
    clock.now += 1_000.0
    spend(time, clock, "a", 1.5)
    with pytest.raises(RateLimited):
        spend(time, clock, "a", 0.0)


def test_what_is_nobodys_is_not_bounded() -> None:
    clock = Clock()
    time = CompileTime(Allowance(max_seconds=1.0, share=0.5), clock)
    for _ in range(3):
        spend(time, clock, "", 100.0)
