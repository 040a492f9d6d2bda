"""Bugs found once, each by the test that shows it: they must not come back."""

import asyncio
import time
from functools import partial

import pytest

from proxy_inference_engine.cache.prefix import PrefixCache
from proxy_inference_engine.engine.pace import Pace
from proxy_inference_engine.runners.base import Lane
from proxy_inference_engine.runners.fake import TEXT_END, TURN_END, FakeRunner, FakeSegment
from proxy_inference_engine.runners.llama_cpp.blob import Layout
from proxy_inference_engine.runners.plan import plan_lanes
from proxy_inference_engine.types import Limits, Sampling
from tests.clock import Clock
from tests.requests import make_request
from tests.unit.cache.text_cache import TOKEN_BYTES, Cache, ids_of
from tests.unit.engine.driven import ABRUPT, ENDLESS, Driven, Faults
from tests.unit.engine.test_worker import Start, start
from tests.unit.engine.threads import (
    FOREVER,
    BreakableClock,
    Gate,
    everything,
    failure,
    is_forgotten,
    slow,
    until,
)
from tests.unit.runners.states import make_state

__all__ = ["start"]


def test_an_edge_can_be_split_again_and_again() -> None:
    texts = "abcdefgh", "abcdefgX", "abcdXXXX", "abXXXXXX", "abcdefXX"
    cache = Cache()
    for text in texts:
        cache.insert(text)
    for text in texts:
        assert cache.match(text) == text


def test_kv_computed_after_other_tokens_is_never_served() -> None:
    """A split in the second half of an edge let the insertion go on below the split, into a stranger's branch."""
    cache = Cache()
    for text in "abcd", "abcdX", "abXYZ":
        cache.insert(text)
    assert cache.match("abcdXYZ") == "abcdX"
    assert cache.match("abXYZ") == "abXYZ"


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


def test_every_long_lane_is_used() -> None:
    driven = Driven(FakeRunner(lanes=[Lane(2, 100), Lane(1, 400), Lane(1, 400)]))
    driven.add(*[make_request(str(number) * 200, id=f"r{number}") for number in range(2)])
    driven.step()
    assert driven.slots() == {"r0": 2, "r1": 3}


def test_a_sequence_that_outgrows_its_slot_moves_to_any_longer_lane() -> None:
    driven = Driven(FakeRunner(lanes=[Lane(2, 160), Lane(1, 400), Lane(1, 400)], end_bias=ENDLESS))
    driven.run(*[make_request(f"{number} grows", id=f"r{number}", max_tokens=250) for number in range(2)])
    assert driven.engine.scheduler.counters.num_preemptions == 0


def test_as_many_echoed_prompts_as_slots_make_progress() -> None:
    driven = Driven(FakeRunner(lanes=[Lane(64, 100)]))
    driven.run(*[make_request(f"{number} echo", id=f"r{number}", num_prompt_logprobs=0) for number in range(64)])


def test_ignore_eos_draws_no_end_token_before_min_tokens_either() -> None:
    limits = Limits(10, min_tokens=5, ignore_eos=True)
    heard = Driven(FakeRunner(end_bias=ABRUPT)).run(make_request(limits=limits))
    assert {TURN_END, TEXT_END}.isdisjoint(heard.token_ids)


async def test_cancelling_the_last_choice_that_runs_leaves_nothing_behind(start: Start) -> None:
    """The stream does not know yet that the other choice has finished."""
    sampling = Sampling(seed=3)
    runner = FakeRunner(lanes=[Lane(2, 8192)], step_seconds=lambda num_tokens: 0.002)
    worker = start(runner)
    stream = worker.submit(make_request(max_tokens=FOREVER, num_choices=2, sampling=sampling))
    while worker.stats().num_running != 2:
        time.sleep(0.001)
    while worker.stats().num_running == 2:
        time.sleep(0.001)
    assert worker.stats().num_running == 1
    (left,) = (sequence.choice for sequence in worker._engine.scheduler.running)
    stream.cancel(left)
    await everything(stream)
    await until(lambda: worker.stats().num_running == 0)
    await asyncio.sleep(0.05)
    assert is_forgotten(worker)


# 9 engine/test_worker.py (with test_a_closed_event_loop...)
def test_a_closed_event_loop_leaves_nothing_behind(start: Start) -> None:
    worker = start(slow())

    async def leave() -> None:
        worker.submit(make_request(id="left", max_tokens=FOREVER))

    asyncio.run(leave())
    time.sleep(0.3)
    assert worker.stats().num_running == 0
    assert is_forgotten(worker)


def _segment(text: str, start: int) -> FakeSegment:
    return FakeSegment.of(ids_of(text[start:]))


def test_a_snapshot_larger_than_estimated_does_not_break_the_budget() -> None:
    cache = PrefixCache(10 * TOKEN_BYTES, can_splice=False)
    for text in "aaaa", "bbbb":  # estimated at half of its size
        cache.insert("a", ids_of(text), partial(_segment, text), TOKEN_BYTES // 2)
    cache.insert("a", ids_of("cccc"), lambda start: FakeSegment.of(ids_of("cccc")), TOKEN_BYTES // 2)
    cache.check()


def test_a_model_that_cannot_take_tokens_back_fails_the_step_not_the_engine() -> None:
    """Recurrent memory can't be truncated; the real runner raises then."""

    class Recurrent(FakeRunner):
        def truncate(self, slot: int, num_tokens: int) -> None:
            if num_tokens < self.num_slot_tokens(slot):
                raise RuntimeError("this model's memory can't forget a part of a sequence")

    driven = Driven(Recurrent(can_splice=False, on_forward=Faults(3)))
    driven.run(make_request())
    driven.run(make_request(id="later"))


def test_a_failing_split_leaves_the_books_right() -> None:
    class Stubborn(FakeSegment):
        def split(self, at: int) -> tuple[FakeSegment, FakeSegment]:
            raise MemoryError

    cache = PrefixCache(1000 * TOKEN_BYTES)
    cache.insert("a", ids_of("hello"), lambda start: Stubborn.of(ids_of("hello")), TOKEN_BYTES)
    with pytest.raises(MemoryError):
        cache.insert("a", ids_of("help"), lambda start: FakeSegment.of(ids_of("help"[start:])), TOKEN_BYTES)
    cache.check()


def test_a_tenant_whose_export_failed_is_forgotten() -> None:
    cache = PrefixCache(1000 * TOKEN_BYTES)

    def fail(start: int) -> FakeSegment:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        cache.insert("a", ids_of("hello"), fail, TOKEN_BYTES)
    assert not cache._roots


def test_a_long_chain_of_forks_can_be_evicted() -> None:
    cache = Cache(max_tokens=1500, can_splice=False)
    cache.insert("a" * 1500)
    for length in range(1, 1400):
        cache.insert("a" * length + "b" * 1500)  # too large to store, but each leaves its fork
    cache.real.clear()
    cache.real.check()


def test_a_chunk_never_exceeds_the_batch() -> None:
    pace = Pace(target_s=0.2, alone_target_s=1.0)
    pace.observe(0, 100, 0.1)
    assert pace.chunk(8, 10) <= 10


def test_timings_hold_for_a_clock_that_starts_at_zero() -> None:
    clock = Clock()
    clock.now = 0.0
    runner = FakeRunner(end_bias=ENDLESS, step_seconds=lambda num_tokens: 0.1, sleep=clock.sleep)
    timings = Driven(runner, clock=clock).run(make_request(max_tokens=3)).finished.timings
    assert (timings.queued_ms, timings.prompt_ms, timings.predicted_ms) == pytest.approx((0, 100, 200))


@pytest.mark.parametrize("context_tokens", [768, 1280, 1792])
def test_slots_are_of_a_size_the_library_allocates(context_tokens: int) -> None:
    for max_tokens in range(context_tokens, 20 * context_tokens, 256):
        lanes = plan_lanes(context_tokens=context_tokens, num_slots=16, token_bytes=1024, max_bytes=max_tokens * 1024)
        assert all(lane.slot_tokens % 256 == 0 for lane in lanes), lanes


@pytest.mark.parametrize("is_transposed", [False, True])
def test_a_blob_cut_anywhere_is_refused_not_an_error(is_transposed: bool) -> None:
    blob = make_state(5, is_transposed=is_transposed).blob
    for length in range(len(blob)):
        assert Layout.read(blob[:length], 5, 3) is None


def test_cells_of_another_form_are_refused() -> None:
    """The form is read byte for byte: positions 0, 1, … of one sequence."""
    for offset in (16, 20, 24):
        blob = make_state(5).blob
        blob[offset] = 9
        assert Layout.read(blob, 5, 3) is None
