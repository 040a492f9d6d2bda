"""Streams that end while the engine's thread does something else: bugs found once at the thread border."""

import asyncio
import threading
from collections.abc import Sequence

from proxy_inference_engine.runners.base import Lane, Row
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.types import Sampling
from tests.polling import HANG_S, until, wait_until
from tests.requests import make_request
from tests.unit.engine.driven import Faults
from tests.unit.engine.threads import FOREVER, BreakableClock, Gate, Start, everything, failure, is_forgotten, slow


async def test_a_failure_reaches_a_stream_that_just_cancelled_its_first_choice(start: Start) -> None:
    """The engine names the first choice it thinks alive; the stream must not ignore the failure for that."""
    gate = Gate()
    runner = FakeRunner(step_seconds=lambda n: 1.0, sleep=gate.sleep, on_forward=Faults(1, 2))
    stream = start(runner).submit(make_request("hello", num_choices=2))
    await until(gate.is_entered.is_set)
    stream.cancel(0)
    gate.open()
    assert failure(await everything(stream)) == "engine_failure"


async def test_a_request_submitted_while_the_engine_thread_fails_hears_of_it(start: Start) -> None:
    gate = Gate()
    clock = BreakableClock()
    worker = start(gate.runner(), clock=clock)
    first = worker.submit(make_request(id="first"))
    await until(gate.is_entered.is_set)
    second = worker.submit(make_request(id="second"))
    clock.is_broken = True
    gate.open()
    assert failure(await everything(first)) == "engine_failure"
    assert failure(await everything(second)) == "engine_failure"


async def test_a_thread_that_cannot_even_clean_up_ends_every_stream(start: Start) -> None:
    class Broken(FakeRunner):
        def release(self, slot: int) -> None:
            raise RuntimeError("injected fault")

    gate, clock = Gate(), BreakableClock()
    runner = Broken(step_seconds=lambda num_tokens: 1.0, sleep=gate.sleep)
    stream = start(runner, clock=clock).submit(make_request())
    await until(gate.is_entered.is_set)
    clock.is_broken = True
    gate.open()
    assert failure(await everything(stream)) == "engine_failure"


async def test_cancelling_the_last_choice_that_runs_leaves_nothing_behind(start: Start) -> None:
    """The stream does not know yet that the other choice has finished."""
    has_both, is_alone, may_go = threading.Event(), threading.Event(), threading.Event()

    def hold(rows: Sequence[Row]) -> None:
        """In the first pass that computes one choice alone."""
        if len(rows) == 2:
            has_both.set()
        elif has_both.is_set():
            is_alone.set()
            assert may_go.wait(HANG_S)

    worker = start(FakeRunner(lanes=[Lane(2, 8192)], on_forward=hold))
    stream = worker.submit(make_request(max_tokens=FOREVER, num_choices=2, sampling=Sampling(seed=3)))
    wait_until(is_alone.is_set)
    (left,) = (sequence.choice for sequence in worker._engine.scheduler.running)
    stream.cancel(left)
    may_go.set()
    await everything(stream)
    await until(lambda: is_forgotten(worker))


def test_a_closed_event_loop_leaves_nothing_behind(start: Start) -> None:
    worker = start(slow())

    async def leave() -> None:
        worker.submit(make_request(id="left", max_tokens=FOREVER))

    asyncio.run(leave())
    wait_until(lambda: is_forgotten(worker))
