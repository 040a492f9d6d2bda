"""Whose pass comes next where several models share the processor: by the time each had, on a clock of our own."""

import threading
from collections import Counter

import pytest

from proxy_inference_engine.runners.llama_cpp.team import Team
from tests.polling import HANG_S, wait_until


class Passes:
    """Models that ask for one pass after another, each of its own length, until so much time is over."""

    def __init__(self, end: float) -> None:
        self.now = 0.0
        self.had: Counter[str] = Counter()
        self._end = end
        self._is_over = threading.Event()
        # Whoever is to come again does, however busy the machine is.
        self._team = Team(patience_s=HANG_S, clock=lambda: self.now)

    def _compute(self, name: str, seconds: float) -> None:
        wait_until(lambda: self._team._jobs or self._is_over.is_set())  # the other one asked again
        self.now += seconds
        if self.now < self._end:
            self.had[name] += 1
        else:
            self._is_over.set()

    def _ask_on(self, name: str, seconds: float) -> None:
        while not self._is_over.is_set():
            self._team.run(self._compute, name, seconds)

    def run(self, **lengths: float) -> None:
        """The first pass is computed when all have asked."""
        threads = [threading.Thread(target=self._ask_on, args=each, daemon=True) for each in lengths.items()]

        def begin() -> None:
            for thread in threads:
                thread.start()
            wait_until(lambda: len(self._team._jobs) == len(threads))

        self._team.run(begin)
        assert self._is_over.wait(HANG_S)


def test_short_passes_have_as_much_time_as_long_ones() -> None:
    """In turns they would have one twentieth of it."""
    passes = Passes(end=20.0)
    passes.run(writer=0.01, reader=0.2)
    assert 0.01 * passes.had["writer"] == pytest.approx(10.0, abs=0.3)
    assert 0.2 * passes.had["reader"] == pytest.approx(10.0, abs=0.3)


def test_equal_passes_take_turns() -> None:
    passes = Passes(end=2.0)
    passes.run(first=0.01, second=0.01)
    assert abs(passes.had["first"] - passes.had["second"]) <= 1


def test_who_was_idle_has_no_more_than_a_short_lead() -> None:
    """Else whoever comes late would have the processor to itself for as long as the others had it."""
    now, had = [0.0], Counter[str]()
    team = Team(patience_s=0.0, clock=lambda: now[0])

    def compute(name: str) -> None:
        now[0] += 0.1
        had[name] += 1

    for _ in range(1000):
        team.run(compute, "old")
    late = threading.Thread(target=lambda: [team.run(compute, "late") for _ in range(3)])
    late.start()
    late.join(HANG_S)
    assert not late.is_alive()
    assert max(team._had.values()) - min(team._had.values()) <= 0.5 + 1e-9


def test_what_a_pass_raises_is_whose_it_is() -> None:
    team = Team()

    def fail() -> None:
        raise MemoryError("no room")

    with pytest.raises(MemoryError, match="no room"):
        team.run(fail)
    assert team.run(lambda: 5) == 5
