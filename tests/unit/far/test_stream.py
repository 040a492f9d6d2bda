"""One request at a far engine: what comes in which order, and who waits for whom."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from proxy_inference_engine.errors import Busy, EngineFailure, QueueFull, Unavailable
from proxy_inference_engine.far.connections import Connections, FarAddress
from proxy_inference_engine.far.model import FarModel
from proxy_inference_engine.types import Failed, Finished, Limits, Output, Prefilled, Request, Sampling, Token
from tests.far import NUM_CACHED, FarSide, far_model, far_side
from tests.polling import HANG_S, until


def request(name: str = "r", max_tokens: int = 20, num_choices: int = 1, **more: object) -> Request:
    limits = Limits(max_tokens, ignore_eos=True)
    return Request(name, "me", (5, 6, 7), Sampling(seed=1), limits, num_choices, **more)  # type: ignore[arg-type]


async def outputs(model: FarModel, asked: Request) -> dict[int, list[Output]]:
    found: dict[int, list[Output]] = {number: [] for number in range(asked.num_choices)}
    async for items in model.submit(asked):
        for choice, output in items:
            found[choice].append(output)
    return found


async def test_every_choice_is_read_to_one_end() -> None:
    with far_side() as far, far_model(far.url) as model:
        found = await outputs(model, request(num_choices=3))
        for came in found.values():
            first, *tokens, last = came
            assert first == Prefilled(0) and all(isinstance(token, Token) for token in tokens) and len(tokens) == 20
            assert isinstance(last, Finished) and (last.reason, last.num_cached_tokens) == ("length", NUM_CACHED)
        assert sorted(asked["request_id"] for asked in far.asked) == ["r-0", "r-1", "r-2"]
        assert model.stats().total_generated_tokens == 60 and all(not engine.work for engine in model.engines.all)


async def test_who_wants_no_token_gets_none() -> None:
    with far_side() as far, far_model(far.url) as model:
        prefilled, finished = (await outputs(model, request(max_tokens=0)))[0]
        assert isinstance(prefilled, Prefilled) and isinstance(finished, Finished) and finished.reason == "length"


async def test_one_choice_is_cancelled_and_the_others_go_on() -> None:
    with far_side() as far, far_model(far.url) as model:
        far.holds_after = 10
        stream = model.submit(request(num_choices=2))
        await until(lambda: far.num_running == 2)
        stream.cancel(0)
        await until(lambda: far.num_running == 1)
        stream.cancel()
        await until(lambda: far.num_running == 0)
        assert not model.stats().num_running and not model.engines.all[0].work
        stream.cancel()


async def test_a_stream_that_nobody_reads_is_not_read_from_the_far_side() -> None:
    with far_side() as far, far_model(far.url) as model:
        stream = model.submit(request(max_tokens=4000))
        (choice,) = stream.choices
        await until(lambda: choice.is_paused)
        num_tokens = 0
        async for items in stream:
            num_tokens += sum(isinstance(item.output, Token) for item in items)
        assert num_tokens == 4000


async def test_a_stream_of_an_engine_that_answers_nobody_ends_long_before_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A host that is gone closes no connection."""
    monkeypatch.setattr("proxy_inference_engine.far.model._SILENT_S", 0.1)
    with far_side() as far, far_model(far.url, silence_s=10 * HANG_S) as model:
        far.holds_after = 3
        stream = model.submit(request())
        assert await asyncio.to_thread(far.is_holding.wait, HANG_S)
        model.engines.all[0].is_silent = True
        async with asyncio.timeout(HANG_S):
            found = [item.output async for items in stream for item in items]
        assert isinstance(found[-1], Failed) and isinstance(found[-1].error, EngineFailure)
        assert await asyncio.to_thread(far.has_left.wait, HANG_S), "it was given up here, before the far side ended it"


async def test_a_kept_connection_that_was_closed_is_no_failure() -> None:
    with far_side() as far, far_model(far.url) as model:
        await outputs(model, request())
        idle = model.engines.all[0].connections._idle
        await until(lambda: idle)
        (connection,) = idle
        answered = len(far.asked)
        # The far side closes it in the very moment in which it is used again.
        connection._was_used = True
        stream = model.submit(request("again"))
        assert connection._transport is not None
        connection._transport.abort()
        found = [item.output async for items in stream for item in items]
        assert isinstance(found[-1], Finished) and len(far.asked) >= answered + 1 and model.is_ready


async def failure(model: FarModel, asked: Request) -> Failed:
    found = (await outputs(model, asked))[0][-1]
    assert isinstance(found, Failed)
    return found


async def test_what_nobody_understands_is_a_failure() -> None:
    with far_side() as far, far_model(far.url) as model:
        far.fails = {"message": "the engine is dead", "code": 500}
        assert isinstance((await failure(model, request())).error, Unavailable), "nobody else is left to ask"
        far.fails = {"message": "too much", "code": 429}
        assert isinstance((await failure(model, request("b"))).error, QueueFull)


async def test_too_many_that_wait_are_refused() -> None:
    with far_side() as far, far_model(far.url) as model:
        far.holds_after = 0
        model._limits = model._limits.__class__(None, 2, 10.0)
        model._admission = model._admission.__class__(max_waiting=1, max_waiting_per_tenant=100)
        streams = [model.submit(request(str(number))) for number in range(3)]
        with pytest.raises(QueueFull):
            model.submit(request("one too many"))
        for stream in streams:
            stream.cancel()
        assert model.stats().num_waiting == 0


async def test_the_end_of_the_server_is_everyones() -> None:
    with far_side() as far, far_model(far.url) as model:
        far.holds_after = 3
        stream = model.submit(request())
        await until(far.is_holding.is_set)
        await asyncio.to_thread(model.stop)
        found = [item.output async for items in stream for item in items]
        assert isinstance(found[-1], Failed) and isinstance(found[-1].error, Unavailable)
        with pytest.raises(Unavailable):
            model.submit(request("late"))


async def test_an_address_where_nobody_listens() -> None:
    with FarSide() as gone:
        address = FarAddress.parse(gone.url)
    with pytest.raises(OSError):
        await Connections(address, {}).connect()


@contextmanager
def no_files_left() -> Iterator[None]:
    """This process may open none."""
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/dev/fd"))) + 1, hard))
    held: list[int] = []
    try:
        with suppress(OSError):
            while True:
                held.append(os.dup(2))
        yield
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_files_that_are_used_up_here_are_nothing_of_the_engine(caplog: pytest.LogCaptureFixture) -> None:
    """It stays, also for those who look after it, and is asked again as soon as there is one."""
    with far_side() as far, far_model(far.url) as model:
        await outputs(model, request())
        connections = model.engines.all[0].connections
        connections.close()
        await until(lambda: not connections.num_open)
        with no_files_left():
            refused = (await failure(model, request("none left"))).error
            with pytest.raises(Busy):
                await model.embed([[1, 2]], "me")
            for watch in model._monitor._watches:
                watch.look()
            assert model.is_ready and not caplog.records
        assert isinstance(refused, Busy) and refused.code == "too_many_connections"
        assert isinstance((await outputs(model, request("next")))[0][-1], Finished) and len(far.asked) == 2


async def test_an_answer_that_breaks_off_is_a_failure_of_the_request() -> None:
    with far_side() as far, far_model(far.url) as model:
        far.breaks_after = 5
        assert isinstance((await failure(model, request())).error, EngineFailure)
        far.breaks_after = None
        await until(lambda: model.is_ready)
        assert isinstance((await outputs(model, request("next")))[0][-1], Finished)
