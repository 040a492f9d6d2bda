"""The thread border: the engine's thread on one side, event loops on the other. Implements `engine.base.Answerer`."""

import asyncio
import time
from collections.abc import Callable, Sequence

import numpy as np

from proxy_inference_engine.cache.disk.tier import DiskStats
from proxy_inference_engine.cache.view import CacheView
from proxy_inference_engine.engine.embedding import EmbeddingJob, EmbeddingQueue
from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.engine.ledger import WorkerStream as WorkerStream
from proxy_inference_engine.engine.life import Cancel, CancelEmbed, Embed, EngineLife, Show, Submit
from proxy_inference_engine.engine.queue import Admission, RequestBook
from proxy_inference_engine.engine.stats import Stats
from proxy_inference_engine.engine.supervisor import Reload, Supervisor
from proxy_inference_engine.errors import InvalidRequest, Unavailable
from proxy_inference_engine.runners.base import EmbeddingInfo, ImageEncoder, Lane, ModelInfo, Tokenizer, Vector
from proxy_inference_engine.types import IDLE_PRIORITY, Request

_SHOW_SECONDS = 5.0  # that a look into the engine's thread may take
_MAX_FORWARD_FAILURES = 3  # in a row, then the engine is no longer ready


class Worker:
    """A StepEngine in a thread of its own. `reload` loads another one where this one gets stuck."""

    def __init__(
        self,
        engine: StepEngine,
        admission: Admission | None = None,
        *,
        reload: Reload | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._supervisor = Supervisor(engine, reload, clock)
        self._admission = admission or Admission()
        self._is_draining = False
        self._book = RequestBook(clock)  # event loop only
        self._awaited: set[EmbeddingJob] = set()  # event loop only

    # Any thread

    @property
    def _life(self) -> EngineLife:
        return self._supervisor.life

    @property
    def _engine(self) -> StepEngine:
        return self._life.engine

    @property
    def _embeddings(self) -> EmbeddingQueue:
        return self._life.embeddings

    @property
    def info(self) -> ModelInfo:
        return self._engine.runner.info

    @property
    def tokenizer(self) -> Tokenizer:
        return self._engine.runner.tokenizer

    @property
    def image_encoder(self) -> ImageEncoder | None:
        return self._engine.runner.image_encoder

    @property
    def context_tokens(self) -> int:
        return self._engine.context_tokens

    @property
    def walks_grammars(self) -> bool:
        return True

    @property
    def can_draft(self) -> bool:
        return self._engine.runner.can_splice

    @property
    def embedding(self) -> EmbeddingInfo:
        return self._engine.runner.embedder.info

    @property
    def lanes(self) -> tuple[Lane, ...]:
        return self._engine.runner.lanes

    @property
    def is_ready(self) -> bool:
        is_sound = self._engine.passes.num_failures < _MAX_FORWARD_FAILURES
        return is_sound and not self._is_draining and self._supervisor.refusal() is None

    @property
    def heartbeat_age_s(self) -> float:
        """Seconds since the engine's thread last went round its loop."""
        return self._supervisor.heartbeat_age_s

    @property
    def num_waiting(self) -> int:
        return self._life.num_waiting

    @property
    def num_embedding(self) -> int:
        """Embedding requests that wait or are being computed."""
        return self._life.ledger.num_jobs

    def start(self) -> None:
        """Run in a thread of its own."""
        self._supervisor.start()

    def run(self, on_started: Callable[[], None]) -> None:
        """Run in the calling thread, until `stop`."""
        self._supervisor.run(on_started)

    def drain(self) -> None:
        """Refuse what comes from now on; what runs goes on."""
        self._is_draining = True

    def stop(self) -> None:
        """End what still runs with an error, then the thread. Does not wait for one that is stuck."""
        self.drain()
        self._supervisor.stop(_shutting_down())

    def stats(self) -> Stats:
        engine, disk = self._engine, self._engine.scheduler.disk
        return engine.stats.read(
            worker=self,
            engine=engine,
            scheduler=engine.scheduler,
            cache=engine.cache,
            embeddings=self._embeddings,
            disk=DiskStats() if disk is None else disk.stats,
        )

    def check(self, request: Request) -> None:
        """Whatever a request can say, this engine does."""

    # Event loop

    def submit(self, request: Request) -> WorkerStream:
        self._check_alive()
        if not self.info.can_generate:
            raise InvalidRequest("This model does not generate text: it makes embeddings or ranks.", param="model")
        num_slots = self._engine.scheduler.slots.num_slots
        self._admission.check_request(request, self._book.unanswered.values(), num_slots)
        life = self._life
        stream = WorkerStream(request, self._book, num_slots, lambda choice: life.send(Cancel(request.id, choice)))
        if not life.ledger.enter(stream):  # it ended this very moment
            raise self._refusal()
        self._book.enter(request)
        life.send(Submit(stream))
        return stream

    async def embed(self, texts: Sequence[Sequence[int]], tenant: str, priority: int = 0) -> list[Vector]:
        """One vector a text, as the model made it. Cancelling the call cancels the work."""
        self._check_alive()
        ids = tuple(np.array(each, np.int32) for each in texts)
        job = EmbeddingJob(tenant, ids, fills_idle=priority >= IDLE_PRIORITY)
        self._admission.check_job(job, self._awaited)
        outcome: asyncio.Future[list[Vector]] = asyncio.get_running_loop().create_future()
        life = self._life
        if not life.ledger.enter_job(job, outcome):
            raise self._refusal()
        self._awaited.add(job)
        life.send(Embed(job))
        try:
            return await outcome
        finally:
            self._awaited.discard(job)
            if outcome.cancelled():
                life.send(CancelEmbed(job))

    async def show_cache(self, max_nodes: int) -> CacheView:
        """What the prefix cache holds, the most recently used first. Raises Unavailable where the engine is stuck."""
        loop = asyncio.get_running_loop()
        seen: asyncio.Future[CacheView] = loop.create_future()

        def tell(view: CacheView) -> None:
            loop.call_soon_threadsafe(_settle, seen, view)

        self._life.send(Show(max_nodes, tell))
        try:
            return await asyncio.wait_for(seen, _SHOW_SECONDS)
        except TimeoutError:
            raise Unavailable("the engine is busy with one long step; try again soon", retry_after_s=1) from None

    def _check_alive(self) -> None:
        if self._is_draining or self._supervisor.refusal() is not None:
            raise self._refusal()

    def _refusal(self) -> Unavailable:
        if self._is_draining:
            return _shutting_down()
        return self._supervisor.refusal() or Unavailable("the engine begins again; try again soon", retry_after_s=1)


def _shutting_down() -> Unavailable:
    return Unavailable("the server is shutting down", code="shutting_down")


def _settle(seen: "asyncio.Future[CacheView]", view: CacheView) -> None:
    if not seen.done():  # somebody still waits
        seen.set_result(view)
