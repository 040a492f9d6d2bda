"""Seeds of mixed priorities: who goes first does, nobody starves, and what fills idle time keeps nobody waiting."""

import random
from collections import Counter
from statistics import mean

import pytest

from proxy_inference_engine.engine.queue import PATIENCE
from proxy_inference_engine.engine.sequence import Sequence
from proxy_inference_engine.runners.base import Row
from proxy_inference_engine.types import IDLE_PRIORITY, Request
from tests.requests import make_request
from tests.sim.load import Load, poisson

_NUM_SEEDS = 120
_BATCH = 20
_PRIORITIES = (-10_000, 0, 0, 0, 7, 10_000, IDLE_PRIORITY)


class Watched:
    """A load whose starts are checked against what the line promises."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.load = Load(num_slots=self.chance.choice([1, 2, 4]))
        self.num_passed: Counter[int] = Counter()  # by priority: starts before it, since one of it started
        scheduler = self.load.engine.scheduler
        start = scheduler._start

        def noting(sequence: Sequence, lane: int) -> None:
            self._check_start(sequence)
            start(sequence, lane)

        scheduler._start = noting  # type: ignore[method-assign]

    def _check_start(self, sequence: Sequence) -> None:
        waiting = [other for other in self.load.engine.scheduler.waiting if other is not sequence]
        before = [other for other in waiting if other.priority < sequence.priority]
        own = [other for other in waiting if (other.priority, other.tenant) == (sequence.priority, sequence.tenant)]
        assert all(other.arrival > sequence.arrival for other in own), "not first come first served within a key"
        assert not (sequence.fills_idle and before), "idle time was filled while somebody waited"
        if before:
            assert self.num_passed[sequence.priority] >= PATIENCE, "somebody went before his turn"
        self.num_passed[sequence.priority] = 0
        self.num_passed.update({other.priority for other in waiting if other.priority > sequence.priority})

    def run(self) -> None:
        arrivals: list[tuple[float, Request]] = []
        for number in range(self.chance.randint(20, 120)):
            request = make_request(
                [self.chance.randint(97, 122) for _ in range(self.chance.randint(3, 30))],
                id=f"r{number}",
                tenant=self.chance.choice("aab"),
                max_tokens=self.chance.randint(1, 12),
                priority=self.chance.choice(_PRIORITIES),
            )
            arrivals.append((self.chance.uniform(0, 2), request))
        self.load.run(arrivals)
        assert all(stay.ended is not None for stay in self.load.stays.values()), "somebody was forgotten"


@pytest.mark.parametrize("first", range(0, _NUM_SEEDS, _BATCH))
def test_seeds(first: int) -> None:
    for seed in range(first, first + _BATCH):
        try:
            Watched(seed).run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


@pytest.mark.parametrize("seed", range(2))
def test_who_goes_behind_others_does_not_starve(seed: int) -> None:
    """Default traffic at one and a half times what can be computed, for ever; one flex request in it."""
    load = Load(num_slots=2)
    flex = make_request("flex", id="flex", max_tokens=10, priority=10_000)
    load.run([*poisson(seed, 40, 8), (1.0, flex)], until=8)
    stay = load.stays["flex"]
    assert stay.first is not None
    others = [other for other in load.stays.values() if other.request is not flex and other.first is not None]
    passed = [other for other in others if other.arrived > stay.arrived and (other.first or 0) < stay.first]
    assert len(passed) <= PATIENCE + 2, "after so many of the others it had its turn"


def test_interactive_requests_hardly_notice_a_batch() -> None:
    """The same arrivals alone and beside a batch that never ends, on a machine where each row costs its time."""
    intruded = 0

    def watch(load: Load, rows: list[Row]) -> None:
        nonlocal intruded
        scheduler = load.engine.scheduler
        slots = {row.slot for row in rows}
        has_idle = any(sequence.fills_idle and sequence.slot in slots for sequence in scheduler.running)
        intruded += has_idle and scheduler.waiting.has_wanted

    arrivals = poisson(1, 2.0, 40)
    alone, beside = Load(), Load(on_rows=watch)
    alone.run(list(arrivals))
    batch = [
        (0.0, make_request([97 + n % 26] * 30, id=f"b{n}", max_tokens=40, priority=IDLE_PRIORITY)) for n in range(64)
    ]
    beside.run([*arrivals, *batch])
    assert intruded == 0, "steps in which a row of the batch was computed while somebody waited for a slot"
    latencies = [
        mean((stay.ended or 0) - stay.arrived for stay in load.stays.values() if stay.request.id.startswith("u"))
        for load in (alone, beside)
    ]
    assert latencies[1] <= 1.10 * latencies[0], latencies
    assert all(stay.ended is not None for stay in beside.stays.values()), "and the batch was answered"
