"""The thread border, with a real thread: streams, refusals, cancelling, and every way in which it ends."""

import asyncio

import pytest

from proxy_inference_engine.engine import life
from proxy_inference_engine.engine.base import Answerer, Item
from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.engine.queue import Admission
from proxy_inference_engine.engine.worker import Worker
from proxy_inference_engine.errors import ContextLengthExceeded, QueueFull, Unavailable
from proxy_inference_engine.runners.base import Lane
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.types import Failed, Finished, Prefilled, Token
from tests.polling import HANG_S, until, wait_until
from tests.requests import make_request, random_draws
from tests.unit.engine.driven import ENDLESS, Faults, alone
from tests.unit.engine.threads import (
    FOREVER,
    Gate,
    Start,
    everything,
    failure,
    is_forgotten,
    slow,
    token_ids,
)

# Streams


async def test_a_stream_carries_one_request_from_its_prompt_to_its_end(start: Start) -> None:
    worker = start()
    request = make_request("hello")
    items = await everything(worker.submit(request))
    assert [type(item.output) for item in items] == [Prefilled, *[Token] * 8, Finished]
    assert token_ids(items) == alone(request).token_ids
    assert is_forgotten(worker)


async def test_choices_come_interleaved_each_in_its_order(start: Start) -> None:
    items = await everything(start().submit(make_request(num_choices=3, sampling=random_draws(1))))
    for choice in range(3):
        outputs = [type(item.output) for item in items if item.choice == choice]
        assert outputs == [Prefilled, *[Token] * 8, Finished]


async def test_outputs_come_while_the_request_runs(start: Start) -> None:
    stream = start(slow()).submit(make_request(max_tokens=FOREVER))
    async with asyncio.timeout(HANG_S):
        async for items in stream:
            assert not any(isinstance(item.output, Finished) for item in items)
            if any(isinstance(item.output, Token) for item in items):
                break
    stream.cancel()


async def test_sixty_four_streams_at_once_each_get_their_own_answer(start: Start) -> None:
    worker = start()
    requests = [
        make_request(f"{number} asks", id=f"r{number}", tenant=f"t{number % 3}", sampling=random_draws(number))
        for number in range(64)
    ]
    answers = await asyncio.gather(*[everything(worker.submit(request)) for request in requests])
    for request, items in zip(requests, answers, strict=True):
        assert token_ids(items) == alone(request).token_ids
        assert isinstance(items[-1].output, Finished)
    assert is_forgotten(worker)


async def test_requests_that_come_together_start_in_one_pass(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(life, "_BURST_SECONDS", HANG_S)  # the event loop may be slow to bring them
    passes: list[int] = []
    runner = FakeRunner(lanes=(Lane(8, 1024),), end_bias=ENDLESS, on_forward=lambda rows: passes.append(len(rows)))
    worker = start(runner)

    async def ask(number: int) -> list[Item]:
        for _ in range(number % 4):  # some turns of the event loop later than others
            await asyncio.sleep(0)
        return await everything(worker.submit(make_request(f"{number} asks", id=f"r{number}")))

    await asyncio.gather(*[ask(number) for number in range(8)])
    assert passes[0] == 8


async def test_an_answer_that_was_not_read_in_time_is_not_lost(start: Start) -> None:
    worker = start()
    stream = worker.submit(make_request("hello"))
    await until(lambda: is_forgotten(worker))
    assert len(token_ids(await everything(stream))) == 8


async def test_a_failure_ends_the_stream(start: Start) -> None:
    worker = start(FakeRunner(poison_id=7))
    items = await everything(worker.submit(make_request([1, 7], num_choices=2)))
    assert failure(items) == "model_output_invalid"
    assert is_forgotten(worker)
    assert worker.stats().total_failures == 1


async def test_it_is_an_engine(start: Start) -> None:
    engine: Answerer = start()
    assert engine.context_tokens == 8192
    assert engine.info.name == "fake"
    assert engine.tokenizer.encode("a") == [97]
    assert engine.is_ready


# Cancelling


async def test_cancelling_ends_the_stream_and_frees_the_slot(start: Start) -> None:
    worker = start(slow())
    stream = worker.submit(make_request(max_tokens=FOREVER, num_choices=2))
    await until(lambda: worker.stats().num_running == 2)
    stream.cancel()
    items = await everything(stream)
    assert not any(isinstance(item.output, Finished | Failed) for item in items)
    await until(lambda: is_forgotten(worker))


async def test_cancelling_one_choice_leaves_the_other(start: Start) -> None:
    worker = start()
    request = make_request(max_tokens=300, num_choices=2, sampling=random_draws(1))
    stream = worker.submit(request)
    stream.cancel(0)
    items = await everything(stream)
    assert {item.choice for item in items} == {1}
    assert len(token_ids(items, choice=1)) == 300
    assert is_forgotten(worker)


async def test_cancelling_every_choice_is_cancelling_the_request(start: Start) -> None:
    worker = start(slow())
    stream = worker.submit(make_request(max_tokens=FOREVER, num_choices=2))
    stream.cancel(1)
    stream.cancel(0)
    assert await everything(stream) == []
    await until(lambda: is_forgotten(worker))


async def test_cancelling_wakes_whoever_waits(start: Start) -> None:
    gate = Gate()
    stream = start(gate.runner()).submit(make_request())
    reader = asyncio.create_task(everything(stream))
    await until(gate.is_entered.is_set)
    stream.cancel()
    assert await reader == []
    gate.open()


async def test_cancelling_what_is_over_is_harmless(start: Start) -> None:
    worker = start()
    stream = worker.submit(make_request())
    await everything(stream)
    stream.cancel()
    stream.cancel(0)
    assert await everything(stream) == []
    assert worker.is_ready


async def test_a_request_cancelled_in_line_never_runs(start: Start) -> None:
    gate = Gate()
    runner = gate.runner([Lane(1, 100)])
    worker = start(runner)
    first, second = worker.submit(make_request("hello", max_tokens=1)), worker.submit(make_request("x" * 50, id="s"))
    await until(gate.is_entered.is_set)
    second.cancel()
    gate.open()
    await everything(first)
    await until(lambda: is_forgotten(worker))
    assert runner.num_computed_tokens == 5


# Refusals


@pytest.mark.parametrize(
    ("admission", "message"),
    [
        (Admission(max_waiting=2), "4 answers are waited for already"),
        (Admission(max_waiting_per_tenant=2), "this key waits for 4 answers already"),
        (Admission(max_waiting_tokens=20), "too many prompt tokens"),
    ],
)
async def test_too_much_waiting_is_refused(start: Start, admission: Admission, message: str) -> None:
    gate = Gate()
    worker = start(gate.runner([Lane(2, 100)]), admission)
    streams = [worker.submit(make_request("hello", id=f"r{number}", tenant="a")) for number in range(4)]
    with pytest.raises(QueueFull, match=message) as info:
        worker.submit(make_request("hello", id="more", tenant="a"))
    assert (info.value.status, info.value.code) == (429, "queue_full")
    assert info.value.retry_after_s >= 1
    gate.open()
    for stream in streams:
        assert len(token_ids(await everything(stream))) == 8
    assert len(token_ids(await everything(worker.submit(make_request(id="later", tenant="a"))))) == 8


async def test_one_tenant_s_line_does_not_refuse_another(start: Start) -> None:
    gate = Gate()
    worker = start(gate.runner([Lane(1, 100)]), Admission(max_waiting_per_tenant=1))
    for number in range(2):
        worker.submit(make_request(id=f"a{number}", tenant="a"))
    worker.submit(make_request(id="b", tenant="b"))
    with pytest.raises(QueueFull):
        worker.submit(make_request(id="a2", tenant="a"))
    gate.open()


async def test_choices_count_as_so_many_answers(start: Start) -> None:
    gate = Gate()
    worker = start(gate.runner([Lane(1, 100)]), Admission(max_waiting=3))
    worker.submit(make_request(num_choices=4))
    with pytest.raises(QueueFull):
        worker.submit(make_request(id="more"))
    gate.open()


async def test_a_cancelled_request_no_longer_waits(start: Start) -> None:
    gate = Gate()
    worker = start(gate.runner([Lane(1, 100)]), Admission(max_waiting=1))
    streams = [worker.submit(make_request(id=f"r{number}")) for number in range(2)]
    streams[1].cancel()
    worker.submit(make_request(id="instead"))
    gate.open()


async def test_a_prompt_over_the_token_limit_may_wait_alone(start: Start) -> None:
    worker = start(admission=Admission(max_waiting_tokens=10))
    assert len(token_ids(await everything(worker.submit(make_request("x" * 100))))) == 8


async def test_a_request_that_can_never_fit_is_refused(start: Start) -> None:
    worker = start(FakeRunner(lanes=[Lane(1, 100)]))
    (item,) = await everything(worker.submit(make_request("x" * 60, max_tokens=42)))
    assert isinstance(item.output, Failed)
    with pytest.raises(ContextLengthExceeded, match="needs 102 tokens; a sequence can have 100"):
        raise item.output.error
    assert is_forgotten(worker)


# Ends


async def test_draining_refuses_what_comes_and_finishes_what_runs(start: Start) -> None:
    worker = start()
    stream = worker.submit(make_request(max_tokens=200))
    worker.drain()
    assert not worker.is_ready
    with pytest.raises(Unavailable) as info:
        worker.submit(make_request(id="late"))
    assert (info.value.status, info.value.code) == (503, "shutting_down")
    assert len(token_ids(await everything(stream))) == 200


async def test_stopping_ends_what_runs_and_what_waits(start: Start) -> None:
    worker = start(slow([Lane(1, 8192)]))
    streams = [worker.submit(make_request(id=f"r{number}", max_tokens=FOREVER)) for number in range(3)]
    await until(lambda: worker.stats().num_running == 1)
    worker.stop()
    for stream in streams:
        assert failure(await everything(stream)) == "shutting_down"
    assert not worker.is_ready
    assert is_forgotten(worker)


async def test_stopping_twice_or_before_the_start_is_harmless() -> None:
    worker = Worker(StepEngine(FakeRunner(), max_cache_bytes=0))
    assert not worker.is_ready
    worker.stop()
    worker.stop()


async def test_forward_passes_that_keep_failing_make_it_not_ready_until_one_succeeds(start: Start) -> None:
    worker = start(FakeRunner(on_forward=Faults(1, 2, 3, 4, 5, 6)))
    for number in range(3):
        assert worker.is_ready
        assert failure(await everything(worker.submit(make_request(id=f"r{number}")))) == "engine_failure"
    assert not worker.is_ready
    assert isinstance((await everything(worker.submit(make_request())))[-1].output, Finished)
    assert worker.is_ready


def test_a_closed_event_loop_does_not_break_the_thread(start: Start) -> None:
    worker = start(slow())

    async def leave() -> None:
        worker.submit(make_request(id="left", max_tokens=FOREVER))

    async def ask() -> list[Item]:
        return await everything(worker.submit(make_request("hello")))

    asyncio.run(leave())
    assert token_ids(asyncio.run(ask())) == alone(make_request("hello")).token_ids
    wait_until(lambda: worker.stats().num_running == 0)  # what nobody waits for is cancelled
    assert worker.is_ready


# Numbers


async def test_stats(start: Start) -> None:
    worker = start()
    for number in range(2):
        await everything(worker.submit(make_request("hello", id=f"r{number}", num_choices=1)))
    stats = worker.stats()
    assert (stats.num_running, stats.num_waiting, stats.num_slots) == (0, 0, 5)
    assert (stats.total_prompt_tokens, stats.total_prompt_tokens_cached, stats.total_generated_tokens) == (10, 4, 16)
    assert stats.num_cached_tokens == 5 + 7
    assert stats.cached_bytes == 64 * stats.num_cached_tokens <= stats.max_cached_bytes == 1 << 20
    assert stats.total_steps == 16
    assert 0 < stats.total_forward_seconds < stats.total_step_seconds
    assert (stats.total_preemptions, stats.total_failures) == (0, 0)
