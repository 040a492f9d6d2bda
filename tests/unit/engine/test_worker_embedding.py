"""Embeddings over the thread border: results, cancelling, refusals, and every way in which it ends."""

import asyncio

import numpy as np
import pytest

from proxy_inference_engine.engine.embedding import EmbeddingJob
from proxy_inference_engine.engine.life import Embed
from proxy_inference_engine.engine.queue import Admission
from proxy_inference_engine.engine.worker import Worker
from proxy_inference_engine.errors import EngineFailure, InvalidRequest, PieError, QueueFull, Unavailable
from proxy_inference_engine.runners.base import Vector
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.types import Finished, Token
from tests.polling import HANG_S, until
from tests.requests import make_request
from tests.unit.engine.driven import ENDLESS
from tests.unit.engine.threads import FOREVER, LANES, BreakableClock, Gate, Start, everything, slow, token_ids


def is_forgotten(worker: Worker) -> bool:
    return worker.num_embedding == 0 and not worker._awaited and not worker._embeddings.has_work


async def embed(worker: Worker, *texts: str, tenant: str = "a") -> list[Vector]:
    async with asyncio.timeout(HANG_S):
        return await worker.embed([list(text.encode()) for text in texts], tenant)


async def test_each_text_gets_its_vector(start: Start) -> None:
    worker = start()
    together = await embed(worker, "one", "two", "three" * 100)
    for vector, text in zip(together, ["one", "two", "three" * 100], strict=True):
        (alone,) = await embed(worker, text)
        assert np.array_equal(vector, alone)
    assert len({vector.tobytes() for vector in together}) == 3
    assert is_forgotten(worker)
    assert worker.stats().total_embedded_tokens == 2 * 506


async def test_many_at_once_beside_streams(start: Start) -> None:
    """Nobody gets what belongs to another, and streams go on."""
    worker = start(slow())
    streams = [worker.submit(make_request(id=f"r{number}", max_tokens=40)) for number in range(4)]
    jobs = [embed(worker, *[f"{number} {text}" for text in range(5)], tenant=f"t{number % 3}") for number in range(40)]
    found, answers = await asyncio.gather(asyncio.gather(*jobs), asyncio.gather(*map(everything, streams)))
    for number, vectors in enumerate(found):
        for text, vector in enumerate(vectors):
            (alone,) = await embed(worker, f"{number} {text}")
            assert np.array_equal(vector, alone)
    assert all(len(token_ids(items)) == 40 and isinstance(items[-1].output, Finished) for items in answers)
    assert is_forgotten(worker)


async def test_streams_go_on_while_a_long_job_is_computed(start: Start) -> None:
    worker = start(FakeRunner(lanes=LANES, end_bias=ENDLESS, step_seconds=lambda num_tokens: num_tokens * 1e-3))
    job = asyncio.create_task(embed(worker, *["x" * 1000] * 60))  # a minute of it
    await until(lambda: worker.stats().num_embedding == 1)
    items = await everything(worker.submit(make_request("hello", max_tokens=5)))
    assert len(token_ids(items)) == 5 and not job.done()
    job.cancel()
    await until(lambda: is_forgotten(worker))


async def test_cancelling_stops_the_work(start: Start) -> None:
    gate = Gate()
    runner = gate.runner()
    worker = start(runner)
    jobs = [asyncio.create_task(embed(worker, *["x" * 250] * 10)) for _ in range(3)]
    await until(gate.is_entered.is_set)
    for job in jobs:
        job.cancel()
    results = await asyncio.gather(*jobs, return_exceptions=True)
    assert all(isinstance(result, asyncio.CancelledError) for result in results)
    gate.open()
    await until(lambda: is_forgotten(worker))
    assert runner.embedder.num_batches == 1
    assert len(await embed(worker, "later")) == 1


@pytest.mark.parametrize(
    ("admission", "message"),
    [
        (Admission(max_waiting=2), "2 embedding requests wait already"),
        (Admission(max_waiting_per_tenant=2), "2 embedding requests of this key"),
        (Admission(max_waiting_tokens=12), "too many tokens"),
    ],
)
async def test_too_much_waiting_is_refused(start: Start, admission: Admission, message: str) -> None:
    gate = Gate()
    worker = start(gate.runner(), admission)
    jobs = [asyncio.create_task(embed(worker, "hello")) for _ in range(2)]
    await until(gate.is_entered.is_set)
    with pytest.raises(QueueFull, match=message):
        await embed(worker, "hello")
    gate.open()
    await asyncio.gather(*jobs)
    assert len(await embed(worker, "hello")) == 1


async def test_a_failure_is_raised(start: Start) -> None:
    worker = start(FakeRunner(poison_id=ord("!")))
    with pytest.raises(EngineFailure) as info:
        await embed(worker, "fine", "bad!")
    assert info.value.code == "model_output_invalid"
    assert len(await embed(worker, "fine")) == 1 and is_forgotten(worker)


async def failures(*jobs: "asyncio.Task[list[Vector]]") -> list[str | None]:
    results = await asyncio.gather(*jobs, return_exceptions=True)
    return [result.code if isinstance(result, PieError) else "no error" for result in results]


async def test_stopping_ends_what_runs_and_what_waits(start: Start) -> None:
    worker = start(slow())
    jobs = [asyncio.create_task(embed(worker, *["x" * 1000] * 200)) for _ in range(3)]
    await until(lambda: worker.stats().num_embedding == 3)
    worker.stop()
    assert await failures(*jobs) == ["shutting_down"] * 3
    assert is_forgotten(worker)
    with pytest.raises(Unavailable):
        await embed(worker, "late")


async def test_a_failing_engine_thread_ends_every_job(start: Start) -> None:
    clock = BreakableClock()
    worker = start(slow(), clock=clock)
    jobs = [asyncio.create_task(embed(worker, *["x" * 1000] * 200)) for _ in range(3)]
    stream = worker.submit(make_request(max_tokens=FOREVER))
    async with asyncio.timeout(HANG_S):
        async for items in stream:
            if any(isinstance(item.output, Token) for item in items):
                break
    clock.is_broken = True
    assert await failures(*jobs) == ["engine_failure"] * 3
    assert worker.num_embedding == 0 and not worker._awaited


def test_a_closed_event_loop_does_not_break_the_thread(start: Start) -> None:
    worker = start(slow())

    loop = asyncio.new_event_loop()
    outcome: asyncio.Future[list[Vector]] = loop.create_future()
    loop.close()
    job = EmbeddingJob("a", (np.ones(3, np.int32),))
    assert worker._life.ledger.enter_job(job, outcome)
    worker._life.send(Embed(job))
    assert len(asyncio.run(embed(worker, "next"))) == 1
    assert worker.is_ready


async def test_a_model_that_only_embeds_does_not_generate(start: Start) -> None:
    worker = start(FakeRunner(can_generate=False))
    with pytest.raises(InvalidRequest, match="does not generate"):
        worker.submit(make_request())
    assert len(await embed(worker, "hello")) == 1
