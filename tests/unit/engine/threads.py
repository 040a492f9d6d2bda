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
from tests.polling import HANG_S
from tests.unit.engine.driven import ENDLESS

Start = Callable[..., Worker]  # starts a worker that is stopped after the test
FOREVER = 5000  # tokens; on a `slow` runner what needs so many is still running when a test looks
LANES = (Lane(4, 1024), Lane(1, 8192))


def slow(lanes: Sequence[Lane] = LANES) -> FakeRunner:
    return FakeRunner(lanes=lanes, end_bias=ENDLESS, step_seconds=lambda num_tokens: 0.005)


class Gate:
    """Holds the engine thread inside its forward passes until opened."""

    def __init__(self, *, is_open: bool = False, seconds: float = HANG_S) -> None:
        """`seconds`: a test that lets it wait for longer has failed."""
        self.is_entered = threading.Event()
        self._opened = threading.Event()
        self._seconds = seconds
        if is_open:
            self.open()

    def sleep(self, seconds: float) -> None:
        self.is_entered.set()
        assert self._opened.wait(self._seconds)

    def open(self) -> None:
        self._opened.set()

    def runner(self, lanes: Sequence[Lane] = LANES) -> FakeRunner:
        return FakeRunner(lanes=lanes, end_bias=ENDLESS, step_seconds=lambda num_tokens: 1.0, sleep=self.sleep)


class BreakableClock:
    """While it is broken, the engine has no answer to it: it dies."""

    def __init__(self, error: type[BaseException] = RuntimeError) -> None:
        self.is_broken = False
        self._error = error
        self._num_left: int | None = None

    def break_once(self, num_calls: int) -> None:
        """Be broken for one call, after so many good ones."""
        self._num_left = num_calls

    def __call__(self) -> float:
        if self._num_left is not None:
            self._num_left = None if self._num_left == 0 else self._num_left - 1
            if self._num_left is None:
                raise self._error("injected fault")
        if self.is_broken:
            raise self._error("injected fault")
        return time.perf_counter()


async def everything(stream: WorkerStream) -> list[Item]:
    async with asyncio.timeout(HANG_S):
        return [item async for items in stream for item in items]


def token_ids(items: list[Item], choice: int = 0) -> list[int]:
    return [item.output.id for item in items if item.choice == choice and isinstance(item.output, Token)]


def failure(items: list[Item]) -> str | None:
    output = items[-1].output
    assert isinstance(output, Failed)
    return output.error.code


def is_forgotten(worker: Worker) -> bool:
    """Nobody holds anything for any request."""
    return worker._life.ledger.num_streams == 0 and not worker._book.unanswered and worker.stats().num_running == 0
