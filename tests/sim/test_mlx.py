"""Random schedules over MLX, on tiny models of both kinds of memory: nobody's answer depends on who else is there."""

import random
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mlx.core")

import mlx.core as mx

from proxy_inference_engine.runners.base import Lane
from proxy_inference_engine.runners.mlx.runner import MlxRunner
from proxy_inference_engine.types import Request
from tests.sim.traffic import Heard, Traffic, answer_alone
from tests.tiny.runners import make_runner

CLOSE = 2e-4  # nats: sums of 32-bit numbers in another order
NUM_SEEDS = 4


@cache
def roomy(name: str, base: Path) -> MlxRunner:
    """Long slots for the choices of one request, and tokens chosen on the host."""
    return make_runner(name, base, lanes=[Lane(2, 400)])


def small_runner(name: str, seed: int, base: Path) -> MlxRunner:
    choose = random.Random(f"lanes {seed}")
    wide = Lane(choose.choice([1, 2, 3]), choose.choice([24, 48, 96]))
    lanes = [wide, *[Lane(1, 4 * wide.slot_tokens)] * choose.choice([0, 1, 2])]
    return make_runner(name, base, lanes=lanes, defers=seed % 2 == 1)


@pytest.fixture
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.getbasetemp()


@pytest.mark.parametrize("name", ["llama", "gemma3_text", "lfm2"])
def test_seeds(name: str, base: Path) -> None:
    num_preemptions = num_moves = num_cached = num_cancelled = 0
    for seed in range(NUM_SEEDS):
        traffic = Traffic(seed, small_runner(name, seed, base), partial(answer_alone, roomy(name, base)))
        assert traffic.run(10) < CLOSE, f"seed {seed}"
        assert not traffic.failed
        counters = traffic.engine.scheduler.counters
        num_preemptions += counters.num_preemptions
        num_moves += counters.num_moves
        num_cached += traffic.engine.stats.total_prompt_tokens_cached
        num_cancelled += len(traffic.cancelled)
    # Worth their time only if they reach the corners.
    assert min(num_preemptions, num_moves, num_cached, num_cancelled) > 0


class Flaky:
    """MLX's own orders, some of which fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._order: Callable[..., None] = mx.async_eval
        self._dice = random.Random(1)
        self.is_steady = True
        self.num_failures = 0
        monkeypatch.setattr(mx, "async_eval", self)

    def __call__(self, *orders: Any) -> None:
        if not self.is_steady and self._dice.random() < 0.03:
            self.num_failures += 1
            raise RuntimeError("[malloc] Unable to allocate 99999999 bytes.")
        self._order(*orders)

    def answer(self, runner: MlxRunner, request: Request) -> list[Heard]:
        """Alone, and while nothing fails."""
        self.is_steady = True
        heard = answer_alone(runner, request)
        self.is_steady = False
        return heard


@pytest.mark.parametrize("name", ["llama", "gemma3_text"])
def test_a_device_that_fails_now_and_then(
    name: str, base: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Some fail, and those that do not hear what they hear alone."""
    caplog.set_level("CRITICAL")
    flaky = Flaky(monkeypatch)
    num_failed = 0
    for seed in range(4):
        flaky.is_steady = True
        traffic = Traffic(seed, small_runner(name, seed, base), partial(flaky.answer, roomy(name, base)))
        assert traffic.run(10) < CLOSE, f"seed {seed}"
        num_failed += len(traffic.failed)
    assert flaky.num_failures > 3 and num_failed < 30, "of 40: those beside a pass that fails are lost with it"
