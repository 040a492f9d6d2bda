"""Engines that hang or die, in real threads under a clock that only the test moves: who hears what, what follows."""

import asyncio
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from proxy_inference_engine.config import Config
from proxy_inference_engine.engine import supervisor as supervisor_module
from proxy_inference_engine.engine.base import Item
from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.engine.worker import Worker
from proxy_inference_engine.errors import Unavailable
from proxy_inference_engine.models.load.engine import use_disk
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.types import Failed, Finished
from tests.clock import Clock
from tests.polling import HANG_S, until
from tests.requests import make_request
from tests.unit.engine.driven import ENDLESS, alone
from tests.unit.engine.threads import (
    FOREVER,
    LANES,
    BreakableClock,
    Gate,
    Start,
    everything,
    failure,
    is_forgotten,
    slow,
    token_ids,
)

LATE, LOST = 12, 35  # seconds of silence


class Closable(FakeRunner):
    """Notes that it was closed."""

    num_closed = 0

    @property
    def is_closed(self) -> bool:
        return self.num_closed > 0

    def close(self) -> None:
        self.num_closed += 1


def pass_by(worker: Worker, clock: Clock, seconds: int) -> None:
    """Seconds in which the watcher looks and the engine's thread does nothing."""
    worker._supervisor.look()
    for _ in range(seconds):
        clock.sleep(1)
        worker._supervisor.look()


async def hung(worker: Worker, gate: Gate, num_choices: int = 1) -> "asyncio.Task[list[Item]]":
    """A request that is being read, and whose pass does not end."""
    reader = asyncio.create_task(everything(worker.submit(make_request(id="hung", num_choices=num_choices))))
    await until(gate.is_entered.is_set)
    return reader


def refused(worker: Worker) -> tuple[str | None, int | None]:
    with pytest.raises(Unavailable) as info:
        worker.submit(make_request(id="refused"))
    return info.value.code, info.value.retry_after_s


def lines(caplog: pytest.LogCaptureFixture, text: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if text in record.getMessage()]


def held_stacks(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Of engines that a gate holds: other tests may have left their own."""
    return [line for line in lines(caplog, "thread engine: ") if "fake.py" in line and "threads.py" in line]


async def answers(worker: Worker) -> None:
    """It answers as an engine without a past does."""
    request = make_request("hello", id="later")
    assert token_ids(await everything(worker.submit(request))) == alone(request).token_ids
    assert is_forgotten(worker)


# Hanging


async def test_a_pass_that_takes_long_makes_it_not_ready_and_new_requests_are_refused(start: Start) -> None:
    gate, clock = Gate(), Clock()
    worker = start(gate.runner(), watch_clock=clock)
    reader = await hung(worker, gate)
    pass_by(worker, clock, LATE)
    assert not worker.is_ready and worker.stats().heartbeat_age_s >= LATE
    assert refused(worker) == ("engine_stuck", 5)
    with pytest.raises(Unavailable, match="no progress"):
        await worker.embed([[1]], "a")
    gate.open()
    assert len(token_ids(await reader)) == 8, "it was only slow: nobody gave it up"
    assert worker.is_ready
    await answers(worker)


async def test_idle_is_not_stuck(start: Start) -> None:
    clock = Clock()
    worker = start(watch_clock=clock)
    beats = worker._life.pulse.num_beats
    await until(lambda: worker._life.pulse.num_beats > beats + 1)
    assert worker.is_ready


async def test_a_pass_that_hangs_is_given_up_and_everyone_hears_of_it(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    gate, clock = Gate(), Clock()
    worker = start(gate.runner(), watch_clock=clock)
    reader = await hung(worker, gate, num_choices=2)
    waiting = [asyncio.create_task(everything(worker.submit(make_request(id=f"w{i}")))) for i in range(3)]
    job = asyncio.create_task(worker.embed([[1, 2]], "a"))
    await until(lambda: worker.num_embedding == 1)
    pass_by(worker, clock, LOST)
    for task in (reader, *waiting):
        (item,) = await task
        assert isinstance(item.output, Failed) and item.output.error.code == "engine_stuck"
        assert isinstance(item.output.error, Unavailable) and item.output.error.retry_after_s == 5
    with pytest.raises(Unavailable, match="given up"):
        await job
    assert not worker.is_ready and refused(worker) == ("engine_stuck", 5)
    assert not worker._book.unanswered and worker.num_waiting == 0
    assert len(lines(caplog, "given up, 5 requests failed")) == 1
    assert {record.fields["model"] for record in caplog.records} == {"fake"}, "of several models, which"  # type: ignore[attr-defined]  # ours
    stacks = held_stacks(caplog)
    assert len(stacks) == 1 and stacks[0].endswith("wait")
    assert lines(caplog, "thread MainThread: ")
    pass_by(worker, clock, LOST)
    assert held_stacks(caplog) == stacks, "once"
    assert len(lines(caplog, "cannot be loaded again")) == 1
    gate.open()


async def test_a_pass_that_comes_back_after_it_was_given_up_brings_nothing_and_the_engine_begins_again(
    start: Start,
) -> None:
    gate, clock = Gate(), Clock()
    runner = gate.runner()
    worker = start(runner, watch_clock=clock)
    stream = worker.submit(make_request(id="hung"))
    await until(gate.is_entered.is_set)
    pass_by(worker, clock, LOST)
    assert failure(await everything(stream)) == "engine_stuck"
    gate.open()
    await until(lambda: worker.is_ready)
    assert await everything(stream) == []
    assert worker._engine.cache.num_tokens == 0
    assert not any(runner.num_slot_tokens(slot) for slot in range(5))
    await answers(worker)
    worker._engine.check()


async def test_a_pass_that_came_back_has_shown_how_long_one_may_take(start: Start) -> None:
    gate, clock = Gate(), Clock()
    worker = start(gate.runner(), watch_clock=clock)
    reader = await hung(worker, gate)
    pass_by(worker, clock, LOST)
    await reader
    gate.open()
    await until(lambda: worker.is_ready)
    assert worker._supervisor._watch.limit_s > 5 * LOST


@dataclass
class Another:
    """Loads an engine when it is asked to, once it is allowed to."""

    make: Callable[[], FakeRunner] = lambda: Closable(lanes=LANES, end_bias=ENDLESS)
    is_allowed: threading.Event = field(default_factory=threading.Event)
    runners: list[FakeRunner] = field(default_factory=list)
    num_left: int = 0

    def __call__(self, run: Callable[[StepEngine], None]) -> None:
        assert self.is_allowed.wait(HANG_S)
        self.runners.append(self.make())
        run(StepEngine(self.runners[-1], max_cache_bytes=1 << 20))
        self.num_left += 1


async def test_another_engine_takes_over_from_one_that_hangs(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    gate, clock, another = Gate(), Clock(), Another()
    worker = start(gate.runner(), watch_clock=clock, reload=another)
    first = worker.tokenizer
    stream = worker.submit(make_request(id="hung"))
    await until(gate.is_entered.is_set)
    old = worker._supervisor._thread
    pass_by(worker, clock, LOST)
    assert failure(await everything(stream)) == "engine_stuck"
    assert not worker.is_ready and refused(worker) == ("engine_stuck", 5)
    another.is_allowed.set()
    await until(lambda: worker.is_ready)
    await answers(worker)
    assert first.encode("a") == worker.tokenizer.encode("a") == [97], "what holds the old one's tokenizer may go on"
    gate.open()
    await asyncio.to_thread(old.join, HANG_S)
    assert not old.is_alive() and worker.is_ready and await everything(stream) == []
    assert lines(caplog, "another engine has taken over")
    await answers(worker)
    worker.stop()
    assert [runner for runner in another.runners if isinstance(runner, Closable) and runner.is_closed]
    assert another.num_left == 1, "its thread tidied up"


async def test_an_engine_that_cannot_be_loaded_again_stays_refused_until_its_pass_comes_back(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    def no_memory() -> FakeRunner:
        raise MemoryError("not enough for two")

    gate, clock, another = Gate(), Clock(), Another(no_memory)
    another.is_allowed.set()
    worker = start(gate.runner(), watch_clock=clock, reload=another)
    reader = await hung(worker, gate)
    pass_by(worker, clock, LOST)
    await reader
    await until(lambda: bool(lines(caplog, "could not be loaded again")))
    await until(lambda: not worker._supervisor._is_replacing)
    assert not worker.is_ready and refused(worker) == ("engine_stuck", 5)
    gate.open()
    await until(lambda: worker.is_ready)
    await answers(worker)


async def test_it_is_not_loaded_again_and_again(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """Each that is given up keeps its memory."""
    gates = [Gate() for _ in range(3)]
    clock, another = Clock(), Another(lambda: gates[len(another.runners) + 1].runner())
    another.is_allowed.set()
    worker = start(gates[0].runner(), watch_clock=clock, reload=another)
    for number, gate in enumerate(gates):
        await until(lambda: worker.is_ready)
        reader = await hung(worker, gate)
        pass_by(worker, clock, LOST)
        assert failure(await reader) == "engine_stuck"
        await until(lambda number=number: len(another.runners) == min(number + 1, 2))  # type: ignore[misc]
    assert len(lines(caplog, "given up too often")) == 1
    assert refused(worker)[0] == "engine_stuck"
    for gate in gates:
        gate.open()


# Dying


async def test_a_death_ends_every_stream_and_the_engine_begins_again(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    clock = BreakableClock()
    worker = start(slow(), clock=clock)
    streams = [worker.submit(make_request(id=f"r{number}", max_tokens=FOREVER)) for number in range(7)]
    await until(lambda: worker.stats().total_generated_tokens > 10)
    thread = worker._supervisor._thread
    clock.is_broken = True
    for stream in streams:
        assert failure(await everything(stream)) == "engine_failure"
    clock.is_broken = False
    await until(lambda: worker.is_ready)
    assert worker._supervisor._thread is thread and thread.is_alive(), "what was loaded in a thread runs there"
    await answers(worker)
    worker._engine.check()
    (record,) = (record for record in caplog.records if "the engine died, 7 requests failed" in record.getMessage())
    assert record.exc_info is not None


async def die(worker: Worker, clock: BreakableClock) -> str | None:
    """A request is set up, and with its first step the engine dies."""
    clock.break_once(1)
    return failure(await everything(worker.submit(make_request(id="dies"))))


async def test_an_engine_that_dies_again_and_again_stays_down(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    clock = BreakableClock()
    worker = start(clock=clock, watch_clock=Clock())
    for _ in range(3):
        await until(lambda: worker.is_ready)
        assert await die(worker, clock) == "engine_failure"
    await until(lambda: not worker._supervisor._thread.is_alive())
    assert not worker.is_ready and refused(worker) == ("engine_unavailable", 30)
    with pytest.raises(Unavailable, match="stopped"):
        await worker.embed([[1]], "a")
    assert lines(caplog, "died 3 times within a minute")


async def test_deaths_that_are_far_apart_do_not_add_up(start: Start) -> None:
    clock, watch_clock = BreakableClock(), Clock()
    worker = start(clock=clock, watch_clock=watch_clock)
    for _ in range(5):
        await until(lambda: worker.is_ready)
        assert await die(worker, clock) == "engine_failure"
        watch_clock.sleep(40)
    await until(lambda: worker.is_ready)
    await answers(worker)


async def test_a_runner_that_cannot_be_cleared_stays_down(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(FakeRunner):
        def release(self, slot: int) -> None:
            raise RuntimeError("injected fault")

    gate, clock = Gate(), BreakableClock()
    worker = start(Broken(step_seconds=lambda num_tokens: 1.0, sleep=gate.sleep), clock=clock)
    stream = worker.submit(make_request())
    await until(gate.is_entered.is_set)
    clock.is_broken = True
    gate.open()
    assert failure(await everything(stream)) == "engine_failure"
    await until(lambda: not worker._supervisor._thread.is_alive())
    assert not worker.is_ready and refused(worker) == ("engine_unavailable", 30)
    assert lines(caplog, "could not be cleared")


@pytest.mark.parametrize("end", [SystemExit, KeyboardInterrupt, GeneratorExit, MemoryError])
async def test_whatever_ends_the_thread_s_life_ends_no_wait(
    start: Start, caplog: pytest.LogCaptureFixture, end: type[BaseException]
) -> None:
    caplog.set_level(logging.CRITICAL)
    clock = BreakableClock(end)
    worker = start(clock=clock)
    assert await die(worker, clock) == "engine_failure"
    await until(lambda: worker.is_ready)
    await answers(worker)


# Ending


async def test_a_thread_that_still_computes_keeps_its_engine(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor_module, "_MOMENT_SECONDS", 0.01)
    gate = Gate()
    runner = Closable(lanes=LANES, step_seconds=lambda num_tokens: 1.0, sleep=gate.sleep)
    worker = start(runner)
    reader = await hung(worker, gate)
    worker.stop()
    assert failure(await reader) == "shutting_down", "nobody waits for a pass that goes on"
    assert not runner.is_closed and worker._supervisor._thread.is_alive()
    gate.open()
    monkeypatch.undo()
    await until(lambda: runner.is_closed)  # by its thread: nobody else knows when
    worker.stop()
    assert runner.num_closed == 1


async def test_the_end_does_not_wait_for_a_thread_that_was_given_up(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading.Thread, "join", _join_if_ended)
    gate, clock = Gate(), Clock()
    worker = start(gate.runner(), watch_clock=clock)
    reader = await hung(worker, gate)
    pass_by(worker, clock, LOST)
    await reader
    worker.stop()
    monkeypatch.undo()
    assert worker._supervisor._thread.is_alive()
    gate.open()


_join = threading.Thread.join


def _join_if_ended(thread: threading.Thread, timeout: float | None = None) -> None:
    assert thread.name != "engine", "waits for the engine's thread"
    _join(thread, timeout)


async def test_an_engine_that_is_loaded_when_all_is_over_is_closed(start: Start) -> None:
    gate, clock, another = Gate(), Clock(), Another()
    worker = start(gate.runner(), watch_clock=clock, reload=another)
    reader = await hung(worker, gate)
    pass_by(worker, clock, LOST)
    await reader
    worker.stop()
    another.is_allowed.set()
    await until(lambda: another.num_left == 1)
    (runner,) = another.runners
    assert isinstance(runner, Closable) and runner.is_closed
    gate.open()


async def test_one_that_was_given_up_is_freed_in_the_end_and_not_before(start: Start) -> None:
    """Before, its words are still read; and after the end nobody would have freed it."""
    gate, clock, another = Gate(), Clock(), Another()
    first = Closable(lanes=LANES, end_bias=ENDLESS, step_seconds=lambda num_tokens: 1.0, sleep=gate.sleep)
    worker = start(first, watch_clock=clock, reload=another)
    old = worker._supervisor._thread
    reader = await hung(worker, gate)
    pass_by(worker, clock, LOST)
    await reader
    another.is_allowed.set()
    await until(lambda: worker.is_ready)
    gate.open()
    await asyncio.to_thread(old.join, HANG_S)
    assert not first.is_closed
    worker.stop()
    worker.stop()
    (second,) = another.runners
    assert isinstance(second, Closable) and (first.num_closed, second.num_closed) == (1, 1)


async def test_one_that_stayed_down_is_freed_with_its_disk(start: Start, tmp_path: Path) -> None:
    """The folder would be held for as long as the process lives: nobody else could use it."""
    clock, runner = BreakableClock(), Closable(lanes=LANES, end_bias=ENDLESS)
    worker = start(runner, clock=clock, watch_clock=Clock())
    use_disk(worker._engine, Config(disk_cache=1 << 20, cache_dir=tmp_path))
    assert worker._engine.scheduler.disk is not None
    for _ in range(3):
        await until(lambda: worker.is_ready)
        assert await die(worker, clock) == "engine_failure"
    await until(lambda: not worker._supervisor._thread.is_alive())
    worker.stop()
    assert runner.num_closed == 1
    again = StepEngine(FakeRunner(lanes=LANES), max_cache_bytes=1 << 20)
    use_disk(again, Config(disk_cache=1 << 20, cache_dir=tmp_path))
    assert again.scheduler.disk is not None, "the folder is still held"
    again.close()


async def test_the_death_of_one_that_was_given_up_is_not_its_successor_s(start: Start) -> None:
    gate, clock, engine_clock, another = Gate(), Clock(), BreakableClock(), Another()
    another.is_allowed.set()
    worker = start(gate.runner(), clock=engine_clock, watch_clock=clock, reload=another)
    old = worker._supervisor._thread
    reader = await hung(worker, gate)
    pass_by(worker, clock, LOST)
    await reader
    await until(lambda: worker.is_ready)
    engine_clock.is_broken = True  # the old one's
    gate.open()
    await asyncio.to_thread(old.join, HANG_S)
    assert not worker._supervisor._deaths and worker.is_ready
    await answers(worker)


async def test_the_order_to_stop_ends_an_engine_that_is_being_cleared(start: Start) -> None:
    is_clearing, may_clear = threading.Event(), threading.Event()

    class Slow(Closable):
        def release(self, slot: int) -> None:
            is_clearing.set()
            assert may_clear.wait(HANG_S)
            super().release(slot)

    clock = BreakableClock()
    runner = Slow(lanes=LANES, end_bias=ENDLESS)
    worker = start(runner, clock=clock)
    assert await die(worker, clock) == "engine_failure"
    await until(is_clearing.is_set)
    assert not worker.is_ready and refused(worker) == ("engine_unavailable", 5)
    stopping = asyncio.create_task(asyncio.to_thread(worker.stop))
    await until(lambda: worker._supervisor._has_ended.is_set())
    may_clear.set()
    await stopping
    assert runner.is_closed and not worker._supervisor._thread.is_alive()


async def test_a_finished_answer_stays_finished_whatever_comes_after(start: Start) -> None:
    worker = start()
    stream = worker.submit(make_request())
    items = await everything(stream)
    assert isinstance(items[-1].output, Finished)
    worker._life.ledger.close(Unavailable("too late"))
    assert await everything(stream) == []
