"""Workers over the fake model."""

import time
from collections.abc import Callable, Iterator

import pytest

from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.engine.queue import Admission
from proxy_inference_engine.engine.supervisor import Reload
from proxy_inference_engine.engine.worker import Worker
from proxy_inference_engine.runners.fake import FakeRunner
from tests.unit.engine.driven import ENDLESS
from tests.unit.engine.threads import LANES, Start


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts workers, which are stopped after the test."""
    workers: list[Worker] = []

    def start(
        runner: FakeRunner | None = None,
        admission: Admission | None = None,
        clock: Callable[[], float] = time.perf_counter,
        watch_clock: Callable[[], float] = time.monotonic,
        reload: Reload | None = None,
    ) -> Worker:
        runner = runner or FakeRunner(lanes=LANES, end_bias=ENDLESS)
        engine = StepEngine(runner, max_cache_bytes=1 << 20, clock=clock)
        workers.append(Worker(engine, admission, reload=reload, clock=watch_clock))
        workers[-1].start()
        return workers[-1]

    yield start
    for worker in workers:
        worker.stop()
