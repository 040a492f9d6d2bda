"""What tests of a real engine thread need: runners that keep it busy or hold it, and patience."""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence

from proxy_inference_engine.engine.base import Item
from proxy_inference_engine.engine.worker import Worker, WorkerStream
from proxy_inference_engine.runners.base import Lane
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.types import Failed, Token
from tests.unit.engine.driven import ENDLESS

FOREVER = 5000  # tokens; on a `slow` runner what needs so many is still running when a test looks
LANES = (Lane(4, 1024), Lane(1, 8192))


def slow(lanes: Sequence[Lane] = LANES) -> FakeRunner:
    return FakeRunner(lanes=lanes, end_bias=ENDLESS, step_seconds=lambda num_tokens: 0.001)


class Gate:
    """Holds the engine thread inside its forward passes until opened."""

    def __init__(self) -> None:
        self.is_entered = threading.Event()
        self._opened = threading.Event()

    def sleep(self, seconds: float) -> None:
        self.is_entered.set()
        assert self._opened.wait(10)

    def open(self) -> None:
        self._opened.set()

    def runner(self, lanes: Sequence[Lane] = LANES) -> FakeRunner:
        return FakeRunner(lanes=lanes, end_bias=ENDLESS, step_seconds=lambda num_tokens: 1.0, sleep=self.sleep)


class BreakableClock:
    """Once broken, the engine has no answer to it: its thread fails."""

    def __init__(self) -> None:
        self.is_broken = False

    def __call__(self) -> float:
        if self.is_broken:
            raise RuntimeError("injected fault")
        return time.perf_counter()


async def everything(stream: WorkerStream) -> list[Item]:
    async with asyncio.timeout(10):
        return [item async for items in stream for item in items]


def token_ids(items: list[Item], choice: int = 0) -> list[int]:
    return [item.output.id for item in items if item.choice == choice and isinstance(item.output, Token)]


def failure(items: list[Item]) -> str | None:
    output = items[-1].output
    assert isinstance(output, Failed)
    return output.error.code


async def until(is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not is_true():
            await asyncio.sleep(0.002)


def is_forgotten(worker: Worker) -> bool:
    """Nobody holds anything for any request."""
    return not worker._streams and not worker._unanswered and worker.stats().num_running == 0
