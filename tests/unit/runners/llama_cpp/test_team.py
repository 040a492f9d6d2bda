"""Whose pass comes next where several models share the processor: by the time each had, on a clock of our own."""

import threading
from collections import Counter

import pytest

from proxy_inference_engine.runners.llama_cpp.team import Team
from tests.polling import HANG_S

_PATIENCE_S = 2.0  # long enough for a thread to come again, however busy the machine is


class Passes:
    """Models that ask for one pass after another, each of its own length, until so much time is over."""

    def __init__(self) -> None:
        self.now = 0.0
        self.had: Counter[str] = Counter()
        self.team = Team(patience_s=_PATIENCE_S, clock=lambda: self.now)
        self._begins = threading.Barrier(3)

    def _compute(self, name: str, seconds: float) -> float:
        self.now += seconds
        self.had[name] += 1
        return self.now

    def _ask(self, name: str, seconds: float, end: float) -> None:
        self._begins.wait()
        while self.team.run(self._compute, name, seconds) < end:
            pass

    def run(self, end: float, **lengths: float) -> None:
        threads = [threading.Thread(target=self._ask, args=(name, length, end)) for name, length in lengths.items()]
        for thread in threads:
            thread.start()
        self._begins.wait()
        for thread in threads:
            thread.join(HANG_S)


def test_short_passes_have_as_much_time_as_long_ones() -> None:
    """In turns they would have one twentieth of it."""
    passes = Passes()
    passes.run(20.0, writer=0.01, reader=0.2)
    assert 8.0 < 0.01 * passes.had["writer"] < 12.0 and 8.0 < 0.2 * passes.had["reader"] < 12.0


def test_equal_passes_take_turns() -> None:
    passes = Passes()
    passes.run(2.0, first=0.01, second=0.01)
    assert min(passes.had["first"], passes.had["second"]) >= 80  # of two hundred; one may begin or end before the other


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
