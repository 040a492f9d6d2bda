"""The thread border: the engine's thread on one side, the event loop on the other. The only file that knows both.

Messages go in through one queue; what a step brought goes out in one call into each event loop that waits for it.
"""

import asyncio
import logging
import queue
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from proxy_inference_engine.cache.disk import DiskStats
from proxy_inference_engine.engine.admission import Admission
from proxy_inference_engine.engine.base import Item, Stats
from proxy_inference_engine.engine.embedding import EmbeddingJob, EmbeddingQueue
from proxy_inference_engine.engine.engine import Delivery, StepEngine
from proxy_inference_engine.errors import ContextLengthExceeded, EngineFailure, InvalidRequest, PieError, Unavailable
from proxy_inference_engine.runners.base import EmbeddingInfo, Eyes, Lane, ModelInfo, Tokenizer, Vector
from proxy_inference_engine.types import Failed, Finished, Request

_log = logging.getLogger(__name__)

_IDLE_SECONDS = 0.5  # an idle thread shows that it lives this often
_STUCK_SECONDS = 10.0
_BURST_SECONDS = 0.05  # waited at most for requests that come at the same moment
_IDLE_ROUNDS = 4  # of the event loop: accept, read, parse, submit
_MAX_FORWARD_FAILURES = 3  # in a row, then the engine is no longer ready


class _Submit(NamedTuple):
    stream: "WorkerStream"


class _Cancel(NamedTuple):
    request_id: str
    choice: int | None


class _Embed(NamedTuple):
    job: EmbeddingJob
    outcome: "asyncio.Future[list[Vector]]"


class _CancelEmbed(NamedTuple):
    job: EmbeddingJob


class _Stop(NamedTuple):
    error: PieError


_Message = _Submit | _Cancel | _Embed | _CancelEmbed | _Stop


class WorkerStream:
    """The event loop's end of one request."""

    def __init__(self, worker: "Worker", request: Request) -> None:
        self.request = request
        self.loop = asyncio.get_running_loop()
        self._worker = worker
        self._items: list[Item] = []
        self._open = set(range(request.num_choices))
        self._has_news = asyncio.Event()

    def put(self, items: list[Item]) -> None:
        """Called in the event loop with what a step brought."""
        for item in items:
            is_failure = isinstance(item.output, Failed)  # concerns every choice, whichever it names
            if item.choice not in self._open and not (is_failure and self._open):
                continue
            self._items.append(item)
            if isinstance(item.output, Finished):
                self._open.discard(item.choice)
            elif is_failure:
                self._open.clear()
        self._has_news.set()

    def cancel(self, choice: int | None = None) -> None:
        if not self._open:
            return
        self._open = set() if choice is None else self._open - {choice}
        self._worker.send(_Cancel(self.request.id, choice if self._open else None))
        if not self._open:
            self._worker.forget(self.request.id)
        self._has_news.set()

    async def __aiter__(self) -> AsyncIterator[list[Item]]:
        while True:
            items, self._items = self._items, []
            if items:
                yield items
            elif not self._open:
                return
            else:
                self._has_news.clear()
                await self._has_news.wait()


class Worker:
    """Runs a StepEngine in its own thread and implements `engine.base.Engine` for the event loop."""

    def __init__(self, engine: StepEngine, admission: Admission | None = None) -> None:
        self._engine = engine
        self._admission = admission or Admission()
        self._inbox: queue.SimpleQueue[_Message] = queue.SimpleQueue()
        self._streams: dict[str, WorkerStream] = {}  # engine thread only
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._heartbeat = time.monotonic()
        self._num_waiting = 0  # as of the last step
        self._is_draining = False
        self._unanswered: dict[str, Request] = {}  # submitted, nothing came yet; event loop only
        self._embeddings = EmbeddingQueue(engine.runner.embedder, step_target_s=engine.pace.target_s)
        self._outcomes: dict[EmbeddingJob, asyncio.Future[list[Vector]]] = {}  # engine thread only
        self._awaited: set[EmbeddingJob] = set()  # event loop only

    # Any thread

    @property
    def info(self) -> ModelInfo:
        return self._engine.runner.info

    @property
    def tokenizer(self) -> Tokenizer:
        return self._engine.runner.tokenizer

    @property
    def eyes(self) -> Eyes | None:
        return self._engine.runner.eyes

    @property
    def context_tokens(self) -> int:
        return self._engine.context_tokens

    @property
    def embedding(self) -> EmbeddingInfo:
        return self._engine.runner.embedder.info

    @property
    def lanes(self) -> tuple[Lane, ...]:
        return self._engine.runner.lanes

    @property
    def is_ready(self) -> bool:
        is_beating = time.monotonic() - self._heartbeat < _STUCK_SECONDS
        is_sound = self._engine.num_forward_failures < _MAX_FORWARD_FAILURES
        return self._thread.is_alive() and is_beating and is_sound and not self._is_draining

    def start(self) -> None:
        """Run in a thread of its own."""
        self._heartbeat = time.monotonic()
        self._thread.start()

    def run(self, on_started: Callable[[], None]) -> None:
        """Run in the calling thread, until `stop`."""
        self._thread = threading.current_thread()
        self._heartbeat = time.monotonic()
        on_started()
        self._run()

    def drain(self) -> None:
        """Refuse what comes from now on; what runs goes on."""
        self._is_draining = True

    def stop(self) -> None:
        """End what still runs with an error, then the thread."""
        self.drain()
        self.send(_Stop(Unavailable("the server is shutting down", code="shutting_down")))
        if self._thread.is_alive():
            self._thread.join(timeout=30)
        if not self._thread.is_alive():  # or it would compute with what is gone
            self._engine.close()

    def send(self, message: _Message) -> None:
        self._inbox.put(message)

    def stats(self) -> Stats:
        """Read without a lock: single numbers of another thread, good enough for a gauge."""
        engine, totals, scheduler = self._engine, self._engine.totals, self._engine.scheduler
        return Stats(
            num_running=len(scheduler.running),
            num_waiting=self._num_waiting + self._inbox.qsize(),
            num_slots=scheduler.slots.num_slots,
            num_cached_tokens=engine.cache.num_tokens,
            cached_bytes=engine.cache.num_bytes,
            max_cached_bytes=engine.cache.max_bytes,
            total_prompt_tokens=totals.prompt_tokens,
            total_prompt_tokens_cached=totals.prompt_tokens_cached,
            total_generated_tokens=totals.generated_tokens,
            total_steps=totals.steps,
            total_step_seconds=totals.step_seconds,
            total_forward_seconds=totals.forward_seconds,
            total_preemptions=scheduler.counters.num_preemptions,
            total_failures=totals.failures,
            heartbeat_age_s=time.monotonic() - self._heartbeat,
            num_embedding=len(self._outcomes),
            total_embedded_tokens=self._embeddings.num_tokens,
            total_draft_tokens=totals.draft_tokens,
            total_draft_tokens_accepted=totals.draft_tokens_accepted,
            total_model_draft_tokens=engine.drafting.num_drafted,
            total_model_draft_tokens_accepted=engine.drafting.num_accepted,
            disk=DiskStats() if scheduler.disk is None else scheduler.disk.stats,
        )

    # Engine thread

    def _run(self) -> None:
        try:
            with np.errstate(over="ignore"):  # the sampler sees it in its sums
                while self._turn():
                    self._heartbeat = time.monotonic()
        except Exception:
            _log.exception("the engine thread failed")
            self._fail_everyone(EngineFailure("the engine failed"))

    def _fail_everyone(self, error: PieError) -> None:
        """Counts on nothing of an engine that may be broken; whoever is still in the inbox is told too."""
        self._is_draining = True
        try:
            self._engine.fail_all(error)
        except Exception:
            _log.exception("the engine could not be cleared")
        outcomes = list(self._outcomes.values())
        with suppress(queue.Empty):
            while True:
                message = self._inbox.get_nowait()
                if isinstance(message, _Submit):
                    self._streams[message.stream.request.id] = message.stream
                elif isinstance(message, _Embed):
                    outcomes.append(message.outcome)
        self._outcomes = {}
        for outcome in outcomes:
            _settle(outcome, error)
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            self._call(stream.loop, [(stream, [Item(0, Failed(error))])])

    def _turn(self) -> bool:
        """Take in what was sent, step once; False when told to stop."""
        stop = self._take_in()
        if stop is not None:
            self._hand_out(self._engine.fail_all(stop.error))
            self._settle_all(self._embeddings.fail_all(stop.error))
            if self._engine.scheduler.disk is not None:
                self._engine.scheduler.disk.close()
            return False
        if self._engine.has_work:
            self._hand_out(self._engine.step())
        if self._embeddings.has_work:
            self._settle_all(self._embeddings.step(is_busy=bool(self._engine.scheduler.running)))
        self._num_waiting = len(self._engine.scheduler.waiting)
        return True

    def _take_in(self) -> _Stop | None:
        """Every message that is there; wait for one only when there is nothing to do."""
        try:
            has_work = self._engine.has_work or self._embeddings.has_work
            message = self._inbox.get(block=not has_work, timeout=_IDLE_SECONDS)
            if not has_work and isinstance(message, _Submit):
                self._let_in(message.stream.loop)
            while True:
                if isinstance(message, _Stop):
                    return message
                self._handle(message)
                message = self._inbox.get_nowait()
        except queue.Empty:
            if not (self._engine.has_work or self._embeddings.has_work):
                self._engine.scheduler.rest()
            return None

    def _let_in(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wait while the event loop is bringing more: prompts that come together cost less in one pass than in turn."""
        deadline, num_idle = time.monotonic() + _BURST_SECONDS, 0
        while num_idle < _IDLE_ROUNDS and time.monotonic() < deadline:
            num_before, turned = self._inbox.qsize(), threading.Event()
            with suppress(RuntimeError):  # that loop is closed
                loop.call_soon_threadsafe(turned.set)
            turned.wait(deadline - time.monotonic())
            num_idle = num_idle + 1 if self._inbox.qsize() == num_before else 0

    def _handle(self, message: _Submit | _Cancel | _Embed | _CancelEmbed) -> None:
        if isinstance(message, _Embed):
            self._outcomes[message.job] = message.outcome
            self._embeddings.add(message.job)
            return
        if isinstance(message, _CancelEmbed):
            self._embeddings.cancel(message.job)
            self._outcomes.pop(message.job, None)
            return
        if isinstance(message, _Cancel):
            self._engine.cancel(message.request_id, message.choice)
            if message.request_id not in self._engine:
                self._streams.pop(message.request_id, None)
            return
        request = message.stream.request
        self._streams[request.id] = message.stream
        try:
            self._engine.add(request)
        except PieError as error:
            self._hand_out([Delivery(request.id, 0, Failed(error))])

    def _hand_out(self, deliveries: list[Delivery]) -> None:
        """One call into the event loop per step, however many streams have news."""
        by_stream: dict[WorkerStream, list[Item]] = {}
        ended: set[str] = set()
        for request_id, choice, output in deliveries:
            stream = self._streams.get(request_id)
            if stream is not None:
                by_stream.setdefault(stream, []).append(Item(choice, output))
                if request_id not in self._engine:
                    ended.add(request_id)
        for request_id in ended:
            del self._streams[request_id]
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[WorkerStream, list[Item]]]] = {}
        for stream, items in by_stream.items():
            by_loop.setdefault(stream.loop, []).append((stream, items))
        for loop, news in by_loop.items():
            self._call(loop, news)

    def _call(self, loop: asyncio.AbstractEventLoop, news: list[tuple[WorkerStream, list[Item]]]) -> None:
        try:
            loop.call_soon_threadsafe(self._deliver, news)
        except RuntimeError:  # that loop is closed: nobody waits for these any more
            for stream, _ in news:
                self._engine.cancel(stream.request.id)
                self._streams.pop(stream.request.id, None)
                self._unanswered.pop(stream.request.id, None)

    def _settle_all(self, jobs: Collection[EmbeddingJob]) -> None:
        for job in jobs:
            outcome = self._outcomes.pop(job, None)
            if outcome is not None:
                _settle(outcome, job.vectors if job.error is None else job.error)

    # Event loop

    def submit(self, request: Request) -> WorkerStream:
        self._check_alive()
        if not self.info.can_generate:
            raise InvalidRequest("This model does not generate text: it makes embeddings or ranks.", param="model")
        num_needed = len(request.prompt_ids) + max(1, request.limits.max_tokens)
        if num_needed > self.context_tokens + 1:
            raise ContextLengthExceeded(
                f"the request needs {num_needed} tokens; a sequence can have {self.context_tokens} here"
            )
        self._admission.check_request(request, self._unanswered.values(), self._engine.scheduler.slots.num_slots)
        stream = WorkerStream(self, request)
        self._unanswered[request.id] = request
        self.send(_Submit(stream))
        return stream

    async def embed(self, texts: Sequence[Sequence[int]], tenant: str) -> list[Vector]:
        """One vector a text, as the model made it. Cancelling the call cancels the work."""
        self._check_alive()
        job = EmbeddingJob(tenant, tuple(np.array(ids, np.int32) for ids in texts))
        self._admission.check_job(job, self._awaited)
        outcome: asyncio.Future[list[Vector]] = asyncio.get_running_loop().create_future()
        self._awaited.add(job)
        self.send(_Embed(job, outcome))
        try:
            return await outcome
        finally:
            self._awaited.discard(job)
            if outcome.cancelled():
                self.send(_CancelEmbed(job))

    def _check_alive(self) -> None:
        if self._is_draining:
            raise Unavailable("the server is shutting down", code="shutting_down")
        if not self._thread.is_alive():
            raise Unavailable("the engine has stopped")

    def _deliver(self, news: list[tuple[WorkerStream, list[Item]]]) -> None:
        for stream, items in news:
            self._unanswered.pop(stream.request.id, None)
            stream.put(items)

    def forget(self, request_id: str) -> None:
        """The event loop cancelled a request: it waits for nothing any more."""
        self._unanswered.pop(request_id, None)


def _settle(outcome: "asyncio.Future[list[Vector]]", result: list[Vector] | PieError) -> None:
    """Hand a result into the event loop that waits for it, if it still does."""

    def finish() -> None:
        if outcome.done():
            return
        if isinstance(result, PieError):
            outcome.set_exception(result)
        else:
            outcome.set_result(result)

    with suppress(RuntimeError):  # that loop is closed
        outcome.get_loop().call_soon_threadsafe(finish)
