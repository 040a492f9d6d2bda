"""Embedding jobs: the texts of all jobs are gathered into batches, in turn, and computed in pieces between steps.

Synchronous like the engine, and for its thread only. Knows token ids, not text.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from proxy_inference_engine.engine.passes import Pace
from proxy_inference_engine.errors import ENDINGS, EngineFailure, PieError
from proxy_inference_engine.runners.base import Embedder, TokenIds, Vector, Vectors

_log = logging.getLogger(__name__)

_BUSY_SHARE = 0.5  # of the engine's step target that a piece may take while somebody streams
_IDLE_TOKENS = 512  # of a batch that fills idle time: whoever comes waits for it


@dataclass(eq=False, slots=True)
class EmbeddingJob:
    """The texts of one request. Once `is_over`, every text has its vector, or there is an `error`."""

    tenant: str
    texts: tuple[TokenIds, ...]
    vectors: list[Vector] = field(default_factory=list)
    error: PieError | None = None
    is_over: bool = False
    num_begun: int = 0  # texts that are in a batch, or were
    num_done: int = 0
    fills_idle: bool = False  # it is computed where nobody else is kept waiting by it
    num_tokens: int = field(init=False)

    def __post_init__(self) -> None:
        self.num_tokens = sum(len(ids) for ids in self.texts)


class _Part(NamedTuple):
    """One text of a job in a batch."""

    job: EmbeddingJob
    number: int

    @property
    def ids(self) -> TokenIds:
        return self.job.texts[self.number]


class EmbeddingQueue:
    """Jobs that wait and the batch that is being computed. `step` computes one piece."""

    def __init__(
        self, embedder: Embedder, *, step_target_s: float = 0.2, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.num_tokens = 0  # computed so far; only grows
        self._embedder = embedder
        self._pace = Pace(target_s=step_target_s * _BUSY_SHARE, alone_target_s=5 * step_target_s)
        self._clock = clock
        self._waiting: deque[EmbeddingJob] = deque()  # those with texts that are in no batch yet
        self._idle: deque[EmbeddingJob] = deque()  # of them, those that fill idle time
        self._again: deque[_Part] = deque()  # of a batch that failed: each is tried alone
        self._batch: list[_Part] = []
        self._num_left = 0  # tokens of the batch

    @property
    def has_work(self) -> bool:
        return bool(self._batch or self._again or self._waiting or self._idle)

    @property
    def is_wanted(self) -> bool:
        """Whether there is work that does not just fill idle time."""
        return bool(self._waiting) or any(not part.job.fills_idle for part in (*self._batch, *self._again))

    def add(self, job: EmbeddingJob) -> None:
        job.vectors = [np.empty(0, np.float32)] * len(job.texts)
        (self._idle if job.fills_idle else self._waiting).append(job)

    def cancel(self, job: EmbeddingJob) -> None:
        """Drop what is left of a job. Harmless when it is over."""
        self._drop(job)
        if all(part.job.is_over for part in self._batch):
            self._batch = []

    def step(self, *, is_busy: bool) -> list[EmbeddingJob]:
        """Compute a piece, a small one when streams wait for their next token; returns the jobs that it ended."""
        try:
            if not self._batch:
                self._begin()
            vectors = self._advance(is_busy)
        except ENDINGS:
            raise
        except BaseException as error:
            _log.exception("a batch of embeddings failed")
            return self._take_back(error)
        return [] if vectors is None else self._hand_out(vectors)

    def fail_all(self, error: PieError) -> list[EmbeddingJob]:
        """End every job with an error."""
        parts = [*self._batch, *self._again]
        jobs = dict.fromkeys([*self._waiting, *self._idle, *(part.job for part in parts if not part.job.is_over)])
        for job in jobs:
            self._fail(job, error)
        self._batch = []
        return list(jobs)

    def _begin(self) -> None:
        self._batch = [self._again.popleft()] if self._again else self._gather()
        self._num_left = sum(len(part.ids) for part in self._batch)
        self._embedder.begin([part.ids for part in self._batch])

    def _gather(self) -> list[_Part]:
        """One text of each job in turn, as many as a batch holds."""
        batch: list[_Part] = []
        waiting, room = self._waiting, self._embedder.max_batch_tokens
        if not waiting:
            waiting, room = self._idle, min(room, _IDLE_TOKENS)
        while waiting and len(batch) < self._embedder.max_texts:
            job = waiting[0]
            part = _Part(job, job.num_begun)
            if batch and len(part.ids) > room:
                break
            batch.append(part)
            room -= len(part.ids)
            job.num_begun += 1
            waiting.popleft()
            if job.num_begun < len(job.texts):
                waiting.append(job)
        return batch

    def _advance(self, is_busy: bool) -> Vectors | None:
        wanted = self._pace.chunk(int(is_busy), self._embedder.max_batch_tokens)
        began = self._clock()
        vectors = self._embedder.advance(wanted)
        num_tokens = self._num_left if vectors is not None else min(wanted, self._num_left)
        self._pace.observe(0, num_tokens, self._clock() - began)
        self._num_left -= num_tokens
        self.num_tokens += num_tokens
        return vectors

    def _hand_out(self, vectors: Vectors) -> list[EmbeddingJob]:
        batch, self._batch = self._batch, []
        ended: list[EmbeddingJob] = []
        for part, vector in zip(batch, vectors, strict=True):
            job = part.job
            if job.is_over:  # cancelled, or another text of it failed
                continue
            if not np.isfinite(vector).all():
                self._fail(job, EngineFailure("the model's output is not a number", code="model_output_invalid"))
            job.vectors[part.number] = vector
            job.num_done += 1
            job.is_over = job.is_over or job.num_done == len(job.texts)
            if job.is_over:
                ended.append(job)
        return ended

    def _take_back(self, error: BaseException) -> list[EmbeddingJob]:
        """After a batch has failed, try each of its texts alone; a text that was alone already ends its job."""
        batch, self._batch = [part for part in self._batch if not part.job.is_over], []
        if len(batch) > 1:
            self._again.extend(batch)
            return []
        for part in batch:
            lacks_memory = isinstance(error, MemoryError)
            reason = "there is not enough memory for a text of this length" if lacks_memory else "the model failed"
            self._fail(part.job, EngineFailure(f"this text could not be computed: {reason}"))
        return [part.job for part in batch]

    def _fail(self, job: EmbeddingJob, error: PieError) -> None:
        job.error = error
        self._drop(job)

    def _drop(self, job: EmbeddingJob) -> None:
        job.is_over = True
        for line in (self._waiting, self._idle):
            if job in line:
                line.remove(job)
        self._again = deque(part for part in self._again if part.job is not job)


def unit_vectors(vectors: Sequence[Vector], num_dimensions: int) -> Vectors:
    """The first dimensions of each vector, scaled to length one. (texts, dimensions)"""
    cut = np.stack([vector[:num_dimensions] for vector in vectors]).astype(np.float64)
    lengths = np.linalg.norm(cut, axis=1, keepdims=True)
    return (cut / np.where(lengths > 0, lengths, 1)).astype(np.float32)
