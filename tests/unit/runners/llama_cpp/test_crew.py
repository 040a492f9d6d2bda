"""The number of threads follows the cores that are free, on a simulated machine."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy_inference_engine.runners.llama_cpp.crew import Crew, idle_time


class Machine:
    """`num_cores` cores, some of them taken by others all the time; one pass after another."""

    def __init__(self, num_cores: int, *, tells: bool = True) -> None:
        self.num_cores = num_cores
        self.num_taken = 0
        self.now = self.idle_s = 0.0
        self._tells = tells
        self.crew = Crew(num_cores, clock=lambda: self.now, idle_seconds=lambda: self.idle_s if tells else None)

    def run(self, seconds: float, pass_s: float = 0.01) -> Iterator[int]:
        """Passes for so long; the threads of each. A pass whose threads share cores takes far longer."""
        end = self.now + seconds
        while self.now < end:
            threads = self.crew.num_threads
            is_crowded = threads + self.num_taken > self.num_cores
            wall_s = 10 * pass_s if is_crowded else pass_s
            had = threads * self.num_cores / (threads + self.num_taken) if is_crowded else threads
            self.now += wall_s
            self.idle_s += max(0.0, self.num_cores - self.num_taken - threads) * wall_s
            self.crew.observe(wall_s, had * wall_s)
            yield threads

    def settle(self, seconds: float = 3.0) -> int:
        *_, last = self.run(seconds)
        return last


@pytest.mark.parametrize("num_cores", [2, 4, 16])
def test_on_a_quiet_machine_all_compute(num_cores: int) -> None:
    assert set(Machine(num_cores).run(5)) == {num_cores}


@pytest.mark.parametrize(("num_cores", "num_taken", "left"), [(2, 1, 1), (2, 2, 1), (4, 1, 3), (4, 3, 1), (16, 5, 11)])
def test_who_has_no_core_of_its_own_does_not_compute(num_cores: int, num_taken: int, left: int) -> None:
    machine = Machine(num_cores)
    machine.num_taken = num_taken
    assert machine.settle() == left
    crowded = sum(threads + num_taken > num_cores for threads in machine.run(10))
    assert crowded == 0 or left == 1


@pytest.mark.parametrize("tells", [True, False])
def test_all_come_back_within_two_seconds_or_as_soon_as_one_can_know(tells: bool) -> None:
    machine = Machine(4, tells=tells)
    machine.num_taken = 2
    assert machine.settle() <= 2
    machine.num_taken = 0
    assert machine.settle(2 if tells else 16) == 4


def test_where_nobody_tells_one_more_is_tried_now_and_then() -> None:
    machine = Machine(2, tells=False)
    machine.num_taken = 1
    machine.settle()
    tries = [threads for threads in machine.run(60) if threads == 2]
    assert 5 <= len(tries) <= 20, "it costs little"


def test_idle_cores_that_cannot_be_had_are_tried_less_and_less() -> None:
    """A container with a quota sees the idle cores of its host."""
    machine = Machine(2)
    machine.num_taken = 1
    crew = machine.crew
    tries = []
    for _ in range(3000):
        threads = crew.num_threads
        machine.now += 0.01
        machine.idle_s += 8 * 0.01
        crew.observe(0.01, 0.01)
        tries.append(threads == 2)
    assert sum(tries[:1000]) > sum(tries[2000:]) and sum(tries[2000:]) <= 20


def test_short_passes_are_judged_together() -> None:
    machine = Machine(2)
    machine.crew.observe(0.001, 0.0)  # one that was interrupted for a moment
    assert machine.crew.num_threads == 2
    assert set(machine.run(1, pass_s=0.0005)) == {2}


def test_one_thread_stays_one() -> None:
    assert Crew(1).is_fixed and Crew(4, is_fixed=True).is_fixed and not Crew(4).is_fixed


def test_the_machine_tells_or_does_not(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    assert idle_time(stat) is None
    stat.write_text("cpu  10 0 5 200 50 0 0 0 0 0\ncpu0 …\n")
    assert idle_time(stat) == 2.5
    stat.write_text("cpu ?\n")
    assert idle_time(stat) is None
