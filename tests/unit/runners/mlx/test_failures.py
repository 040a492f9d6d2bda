"""A device that fails, and memory that comes back: the engine over tiny models of both kinds of memory."""

import gc
from collections.abc import Callable, Iterator
from typing import Any

import mlx.core as mx
import pytest

from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.errors import EngineFailure
from proxy_inference_engine.runners.mlx.runner import MlxRunner
from proxy_inference_engine.types import Failed, Limits, Request, Sampling, Token
from tests.tiny.runners import make_runner

CACHE = 8 << 20


@pytest.fixture(params=["llama", "gemma3_text", "lfm2"])
def name(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture(params=[False, True], ids=["waits", "defers"])
def runner(request: pytest.FixtureRequest, name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlxRunner]:
    runner = make_runner(name, tmp_path_factory.getbasetemp(), defers=request.param)
    yield runner
    runner.close()


class Device:
    """MLX's own orders, some of which are refused: those with the given numbers, counted from now."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._order: Callable[..., None] = mx.async_eval
        self._refused: set[int] = set()
        monkeypatch.setattr(mx, "async_eval", self)

    def refuse(self, *numbers: int) -> None:
        self._num_orders = 0
        self._refused = set(numbers)

    def __call__(self, *orders: Any) -> None:
        if self._refused:
            self._num_orders += 1
            if self._num_orders in self._refused:
                raise RuntimeError("[malloc] Unable to allocate 99999999 bytes.")
        self._order(*orders)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    return Device(monkeypatch)


def ask(id: str, *, first: int = 20, length: int = 30, max_tokens: int = 12) -> Request:
    ids = tuple(range(first, first + length))
    return Request(id, "t", ids, Sampling(seed=1, temperature=0.0), Limits(max_tokens, ignore_eos=True))


def hear(engine: StepEngine, num_steps: int | None = None) -> dict[str, list[int] | EngineFailure]:
    """Until nothing is left, or for so many steps."""
    heard: dict[str, list[int] | EngineFailure] = {}
    while engine.has_work and num_steps != 0:
        num_steps = None if num_steps is None else num_steps - 1
        for request_id, _, output in engine.step():
            said = heard.setdefault(request_id, [])
            if isinstance(output, Token) and isinstance(said, list):
                said.append(output.id)
            elif isinstance(output, Failed):
                assert isinstance(output.error, EngineFailure)
                heard[request_id] = output.error
        engine.check()
    return heard


def answer(runner: MlxRunner, request: Request) -> list[int]:
    engine = StepEngine(runner, max_cache_bytes=0)
    engine.add(request)
    said = hear(engine)[request.id]
    assert isinstance(said, list) and len(said) == request.limits.max_tokens
    return said


@pytest.mark.parametrize("num_steps", [0, 1, 4])
def test_a_pass_that_fails_for_good_fails_its_requests(
    runner: MlxRunner, device: Device, num_steps: int, caplog: pytest.LogCaptureFixture
) -> None:
    """And no other: the next one is answered, and nothing of the failed ones is left."""
    caplog.set_level("CRITICAL")
    expected = answer(runner, ask("c", first=100))
    engine = StepEngine(runner, max_cache_bytes=CACHE)
    engine.add(ask("a"))
    engine.add(ask("b", first=60))
    hear(engine, num_steps)
    device.refuse(*range(1, 9))
    heard = hear(engine, 1) | hear(engine, 1)
    device.refuse()
    heard |= hear(engine)
    assert isinstance(heard["a"], EngineFailure) and isinstance(heard["b"], EngineFailure)
    assert engine.scheduler.slots.num_held == 0
    engine.add(ask("c", first=100))
    assert hear(engine)["c"] == expected


def test_a_pass_that_fails_once_is_tried_again(
    runner: MlxRunner, device: Device, caplog: pytest.LogCaptureFixture
) -> None:
    """Where memory can be cut nobody notices; where it can't, the requests of that pass fail."""
    caplog.set_level("CRITICAL")
    expected = [answer(runner, ask("a")), answer(runner, ask("b", first=60))]
    engine = StepEngine(runner, max_cache_bytes=0)
    engine.add(ask("a"))
    engine.add(ask("b", first=60))
    begun = hear(engine, 3)
    device.refuse(1)
    heard = hear(engine)
    for said, request_id in zip(expected, ("a", "b"), strict=True):
        before, rest = begun.get(request_id, []), heard[request_id]
        if isinstance(rest, list) and isinstance(before, list):
            assert before + rest == said
        else:
            assert not runner.can_splice or runner.chooser is not None
    assert engine.scheduler.slots.num_held == 0
    engine.add(ask("c"))
    assert hear(engine)["c"] == expected[0]


def test_memory_comes_back(name: str, runner: MlxRunner) -> None:
    """Slots, cached prefixes and what passes needed: after the last of them only the weights are left."""
    gc.collect()
    before = mx.get_active_memory()
    engine = StepEngine(runner, max_cache_bytes=CACHE)
    for index in range(6):
        engine.add(ask(f"r{index}", first=20 + index, length=100, max_tokens=6))
    hear(engine, 4)
    assert mx.get_active_memory() > before + 3 * 100 * runner.info.kv_bytes_per_token // 2
    for index in range(3):
        engine.cancel(f"r{index}")
    hear(engine)
    engine.scheduler.rest()
    gc.collect()
    held = mx.get_active_memory() - before
    # MLX gives a small array a buffer that may be half as large again.
    assert engine.cache.num_bytes <= held < 1.7 * engine.cache.num_bytes, "slots keep what nobody can use"
    assert mx.get_cache_memory() < 65536
    engine.cache.clear()
    assert abs(mx.get_active_memory() - before) < 4096
