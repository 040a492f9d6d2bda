"""Embedding jobs without a thread: batches, turns, pieces, and what happens when one goes wrong."""

from collections.abc import Callable

import numpy as np
import pytest

from proxy_inference_engine.engine.embedding import EmbeddingJob, EmbeddingQueue, unit_vectors
from proxy_inference_engine.errors import EngineFailure, Unavailable
from proxy_inference_engine.runners.base import Vector
from proxy_inference_engine.runners.fake import FakeRunner

POISON = 7


class Pieces:
    """Notes the sizes of pieces; fails where a test says so."""

    def __init__(self, fails: Callable[[int], bool] = lambda size: False, error: type[Exception] = OSError) -> None:
        self.sizes: list[int] = []
        self._fails = fails
        self._error = error

    def __call__(self, num_tokens: int) -> None:
        self.sizes.append(num_tokens)
        if self._fails(num_tokens):
            raise self._error("injected fault")


def make_queue(pieces: Pieces | None = None) -> tuple[EmbeddingQueue, FakeRunner]:
    runner = FakeRunner(on_embed=pieces, poison_id=POISON)
    return EmbeddingQueue(runner.embedder, clock=lambda: 0.0), runner


def make_job(*lengths: int, start: int = 10, tenant: str = "a") -> EmbeddingJob:
    """Texts of these lengths, each of its own tokens."""
    texts = [np.full(length, start + number, np.int32) for number, length in enumerate(lengths)]
    return EmbeddingJob(tenant, tuple(texts))


def run(queue: EmbeddingQueue, *, is_busy: bool = False) -> list[EmbeddingJob]:
    """Step until nothing is left; the jobs in the order in which they ended."""
    ended: list[EmbeddingJob] = []
    for _ in range(10_000):
        if not queue.has_work:
            return ended
        ended += queue.step(is_busy=is_busy)
    raise AssertionError("never done")


def alone(job: EmbeddingJob) -> list[Vector]:
    """What each text of a job gets in a batch of its own."""
    vectors = []
    for ids in job.texts:
        single = EmbeddingJob("alone", (ids,))
        queue, _ = make_queue()
        queue.add(single)
        run(queue)
        vectors += single.vectors
    return vectors


def same(job: EmbeddingJob) -> bool:
    return all(np.array_equal(one, other) for one, other in zip(job.vectors, alone(job), strict=True))


def test_texts_are_batched_and_come_back_in_order() -> None:
    queue, runner = make_queue()
    job = make_job(3, 50, 1, 200, 7, 300, 2)
    queue.add(job)
    assert run(queue) == [job]
    assert job.error is None and same(job)
    assert runner.embedder.num_batches == 4  # 3+50+1+200, 7, 300, 2
    assert queue.num_tokens == job.num_tokens == 563


def test_jobs_share_batches_and_take_turns() -> None:
    """A job of one text does not wait for one of a hundred that came first."""
    queue, runner = make_queue()
    large, small = make_job(*[60] * 100), make_job(60, start=200)
    queue.add(large)
    queue.add(small)
    ended = run(queue)
    assert ended == [small, large] and same(small)
    assert runner.embedder.num_batches == 26


def test_pieces_are_small_while_somebody_streams() -> None:
    seconds = iter(range(10**6))
    sizes: dict[bool, list[int]] = {}
    for is_busy in (False, True):
        pieces = Pieces()
        runner = FakeRunner(on_embed=pieces)
        # One second passes between two looks at the clock: a piece costs one, whatever its size.
        queue = EmbeddingQueue(runner.embedder, step_target_s=2.0, clock=lambda: float(next(seconds)))
        job = make_job(2000)
        queue.add(job)
        run(queue, is_busy=is_busy)
        assert sum(pieces.sizes) == 2000 and same(job)
        sizes[is_busy] = pieces.sizes
    assert max(sizes[True]) == 64 and max(sizes[False]) == 256


def test_a_cancelled_job_is_not_computed() -> None:
    queue, runner = make_queue()
    first, second, third = make_job(5, 250), make_job(250, start=100), make_job(250, start=200)
    for job in (first, second, third):
        queue.add(job)
    queue.step(is_busy=True)
    queue.cancel(second)
    queue.cancel(third)
    assert run(queue) == [first] and same(first)
    assert runner.embedder.num_batches == 2
    queue.cancel(first)
    assert not queue.has_work


def test_a_batch_that_nobody_waits_for_is_left() -> None:
    pieces = Pieces()
    queue, _ = make_queue(pieces)
    job = make_job(2000)
    queue.add(job)
    queue.step(is_busy=True)
    queue.cancel(job)
    assert not queue.has_work and len(pieces.sizes) == 1
    later = make_job(5)
    queue.add(later)
    assert run(queue) == [later] and same(later)


@pytest.mark.parametrize(("error", "reason"), [(OSError, "the model failed"), (MemoryError, "not enough memory")])
def test_a_failing_text_ends_its_own_job_only(error: type[Exception], reason: str) -> None:
    """Three jobs in one batch; the batch fails, then the one text of 13 tokens alone."""
    pieces = Pieces(lambda num_tokens: num_tokens in (13, 33), error)
    queue, _ = make_queue(pieces)
    jobs = [make_job(10), make_job(13, start=100), make_job(10, start=200)]
    for job in jobs:
        queue.add(job)
    assert set(run(queue)) == set(jobs)
    assert pieces.sizes == [33, 10, 13, 10]
    assert jobs[0].error is None and jobs[2].error is None and same(jobs[0]) and same(jobs[2])
    assert isinstance(jobs[1].error, EngineFailure) and reason in jobs[1].error.message


def test_a_job_that_fails_is_over_at_once() -> None:
    pieces = Pieces(lambda num_tokens: True)
    queue, _ = make_queue(pieces)
    job = make_job(300, 300, 300)
    queue.add(job)
    assert run(queue) == [job]
    assert len(pieces.sizes) == 1


def test_what_is_not_a_number_fails_its_own_job_only() -> None:
    queue, _ = make_queue()
    good, bad = make_job(4), EmbeddingJob("a", tuple(np.full(4, token, np.int32) for token in (POISON, POISON, 9)))
    queue.add(good)
    queue.add(bad)
    assert sorted(run(queue), key=lambda job: job is bad) == [good, bad]
    assert same(good) and bad.error is not None and bad.error.code == "model_output_invalid"


def test_the_end_of_everything() -> None:
    queue, _ = make_queue()
    jobs = [make_job(*[100] * 5, start=start) for start in (10, 60, 110)]
    for job in jobs:
        queue.add(job)
    queue.step(is_busy=True)
    error = Unavailable("ended")
    assert set(queue.fail_all(error)) == set(jobs)
    assert all(job.is_over and job.error is error for job in jobs) and not queue.has_work
    assert queue.fail_all(error) == []


@pytest.mark.parametrize(
    ("vector", "num_dimensions", "unit"),
    [([3, 4, 0], 3, [0.6, 0.8, 0]), ([3, 4, 12], 2, [0.6, 0.8]), ([-2, 5], 1, [-1]), ([0, 0], 2, [0, 0])],
)
def test_unit_vectors(vector: list[float], num_dimensions: int, unit: list[float]) -> None:
    (found,) = unit_vectors([np.array(vector, np.float32)], num_dimensions)
    assert found.dtype == np.float32 and np.allclose(found, unit)
