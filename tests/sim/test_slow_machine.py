"""A machine whose cores are shared: steps ten times as slow, and now one speed, now another. Every prompt gets on.

Seen on such a one: prompts of 1,400 to 2,400 tokens that were not read after 600 s, in chunks of 16 tokens with 4 for
the oldest. The clock is the simulator's own: nothing here waits.
"""

import random

import pytest

from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.runners.base import Lane
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.types import Finished, Prefilled
from tests.clock import Clock
from tests.requests import make_request

_FIXED_S, _TOKEN_S = 0.03, 0.002  # of a step and of each of its tokens, on a quiet machine
_LONG = (1400, 2400, 1800, 2000)
_MAX_S = 600.0


class SlowMachine:
    """A stream or several that never end, long prompts, and short ones that keep coming."""

    def __init__(self, seed: int, slowness: float) -> None:
        self.clock = Clock(0.0)
        noise = random.Random(seed)
        runner = FakeRunner(
            lanes=[Lane(16, 4096)],
            end_bias=-40.0,
            sleep=self.clock.sleep,
            step_seconds=lambda num: slowness * (_FIXED_S + num * _TOKEN_S) * noise.lognormvariate(0, 0.5),
        )
        self.engine = StepEngine(runner, max_cache_bytes=0, step_target_s=0.2, clock=self.clock)
        self.read_at: dict[str, float] = {}
        self.num_ended = 0

    def step(self) -> None:
        for request_id, _, output in self.engine.step():
            if isinstance(output, Prefilled):
                self.read_at[request_id] = self.clock.now
            self.num_ended += isinstance(output, Finished)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("num_streams", [1, 6])
def test_every_prompt_gets_on(num_streams: int, seed: int) -> None:
    machine = SlowMachine(seed, slowness=10.0)
    for number in range(num_streams):
        machine.engine.add(make_request([1, 2, number], id=f"stream{number}", max_tokens=1500))
    for _ in range(5):
        machine.step()
    for number, length in enumerate(_LONG):
        machine.engine.add(make_request([number, 5] * (length // 2), id=f"long{number}", max_tokens=4))
    num_short = 0
    next_at = machine.clock.now
    while machine.clock.now < _MAX_S and sum(name.startswith("long") for name in machine.read_at) < len(_LONG):
        if machine.clock.now >= next_at:  # whoever comes later is shorter
            machine.engine.add(make_request([7, num_short % 200] * 20, id=f"short{num_short}", max_tokens=2))
            num_short += 1
            next_at += 5.0
        machine.step()
    read = {name: round(at) for name, at in machine.read_at.items() if name.startswith("long")}
    assert len(read) == len(_LONG), f"not read after {_MAX_S:.0f} s: {read}"
    # Twice what the tokens alone take, and not more: half of the time is theirs at least.
    assert max(read.values()) < 3 * 10 * sum(_LONG) * _TOKEN_S
    assert sum(name.startswith("short") for name in machine.read_at) > num_short / 2


@pytest.mark.parametrize("seed", range(3))
def test_streams_go_on_beside_a_prompt(seed: int) -> None:
    """On a quiet machine a step still keeps its target, most of the time."""
    machine = SlowMachine(seed, slowness=1.0)
    machine.engine.add(make_request([1, 2, 3], id="stream", max_tokens=1500))
    for _ in range(5):
        machine.step()
    machine.engine.add(make_request([3, 5] * 1000, id="long", max_tokens=4))
    gaps = []
    while "long" not in machine.read_at:
        before = machine.clock.now
        machine.step()
        gaps.append(machine.clock.now - before)
    assert sorted(gaps)[len(gaps) // 2] < 0.35 and machine.clock.now < 3 * 2000 * _TOKEN_S
