"""Who waits for what an engine computes: streams of requests and futures of jobs, each in its own event loop.

Event loops enter themselves, the engine's thread hands out. Whoever sees that nothing more will come closes it, from
any thread: then everyone hears of it, and what an engine still hands out reaches nobody.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import suppress

from proxy_inference_engine.engine.base import Item, Place
from proxy_inference_engine.engine.embedding import EmbeddingJob
from proxy_inference_engine.engine.engine import Delivery, StepEngine
from proxy_inference_engine.engine.queue import RequestBook
from proxy_inference_engine.errors import PieError
from proxy_inference_engine.runners.base import Vector
from proxy_inference_engine.types import Failed, Finished, Request


class News:
    """How a stream wakes whoever reads it: an `asyncio.Event` for one who waits, cheaper, as it is told every token.

    Event loop only. Who waits looks first whether there is something: what was told before is forgotten.
    """

    __slots__ = ("_waiter",)

    def __init__(self) -> None:
        self._waiter: asyncio.Future[None] | None = None

    def tell(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def wait(self) -> asyncio.Future[None]:
        """What to await."""
        self._waiter = waiter = asyncio.get_running_loop().create_future()
        return waiter


class WorkerStream:
    """Made and used in one event loop. The book hears what becomes of it, `on_cancel` which choice nobody wants."""

    def __init__(
        self, request: Request, book: RequestBook, num_slots: int, on_cancel: Callable[[int | None], None]
    ) -> None:
        self.request = request
        self.loop = asyncio.get_running_loop()
        self._book = book
        self._num_slots = num_slots
        self._on_cancel = on_cancel
        self._items: list[Item] = []
        self._open = set(range(request.num_choices))
        self._news = News()

    def put(self, items: list[Item]) -> None:
        """What a step brought. After the end of a choice nothing more of it is taken, whoever may still send some."""
        self._book.begin(self.request.id)
        for item in items:
            is_failure = isinstance(item.output, Failed)  # concerns every choice, whichever it names
            if item.choice not in self._open and not (is_failure and self._open):
                continue
            self._items.append(item)
            if isinstance(item.output, Finished):
                self._open.discard(item.choice)
            elif is_failure:
                self._open.clear()
        if not self._open:
            self._book.leave(self.request.id)
        self._news.tell()

    def place(self) -> Place | None:
        return self._book.place(self.request, self._num_slots)

    def drop(self) -> None:
        """Forget the stream: its event loop is closed, so nobody reads it any more."""
        self._book.leave(self.request.id)

    def cancel(self, choice: int | None = None) -> None:
        if not self._open:
            return
        self._open = set() if choice is None else self._open - {choice}
        if not self._open:
            self._book.leave(self.request.id)
        self._on_cancel(choice if self._open else None)
        self._news.tell()

    async def __aiter__(self) -> AsyncIterator[list[Item]]:
        while True:
            items, self._items = self._items, []
            if items:
                yield items
            elif not self._open:
                return
            else:
                await self._news.wait()


_Outcome = asyncio.Future[list[Vector]]
_News = list[tuple[WorkerStream, list[Item]]]


class Ledger:
    """Everyone entered hears one end: what the engine says, or the error of `close`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._streams: dict[str, WorkerStream] = {}
        self._outcomes: dict[EmbeddingJob, _Outcome] = {}
        self.is_closed = False

    @property
    def num_streams(self) -> int:
        return len(self._streams)

    @property
    def num_jobs(self) -> int:
        return len(self._outcomes)

    def enter(self, stream: WorkerStream) -> bool:
        """False: it is closed."""
        with self._lock:
            if not self.is_closed:
                self._streams[stream.request.id] = stream
            return not self.is_closed

    def enter_job(self, job: EmbeddingJob, outcome: _Outcome) -> bool:
        """False: it is closed."""
        with self._lock:
            if not self.is_closed:
                self._outcomes[job] = outcome
            return not self.is_closed

    def strike(self, request_id: str) -> None:
        """Nobody waits for this request any more."""
        with self._lock:
            self._streams.pop(request_id, None)

    def strike_job(self, job: EmbeddingJob) -> None:
        """Nobody waits for this job any more."""
        with self._lock:
            self._outcomes.pop(job, None)

    def hand_out(self, deliveries: list[Delivery], engine: StepEngine) -> list[str]:
        """One call into each event loop, however many streams have news. The engine knows which requests go on.

        Returns the requests whose event loop is closed: nobody waits for them.
        """
        by_stream: dict[WorkerStream, list[Item]] = {}
        with self._lock:
            for request_id, choice, output in deliveries:
                stream = self._streams.get(request_id)
                if stream is not None:
                    by_stream.setdefault(stream, []).append(Item(choice, output))
            for stream in by_stream:
                if stream.request.id not in engine:
                    del self._streams[stream.request.id]
        by_loop: dict[asyncio.AbstractEventLoop, _News] = {}
        for stream, items in by_stream.items():
            by_loop.setdefault(stream.loop, []).append((stream, items))
        return [request_id for loop, news in by_loop.items() for request_id in self._call(loop, news)]

    def settle(self, jobs: Collection[EmbeddingJob]) -> None:
        """Hand out the vectors of jobs that are over, or their errors."""
        for job in jobs:
            with self._lock:
                outcome = self._outcomes.pop(job, None)
            if outcome is not None:
                _settle(outcome, job.vectors if job.error is None else job.error)

    def close(self, error: PieError) -> int:
        """End everyone with an error; returns how many that are. Harmless when it is closed."""
        with self._lock:
            self.is_closed = True
            streams, self._streams = self._streams, {}
            outcomes, self._outcomes = self._outcomes, {}
        for stream in streams.values():
            self._call(stream.loop, [(stream, [Item(0, Failed(error))])])
        for outcome in outcomes.values():
            _settle(outcome, error)
        return len(streams) + len(outcomes)

    def _call(self, loop: asyncio.AbstractEventLoop, news: _News) -> list[str]:
        try:
            loop.call_soon_threadsafe(_deliver, news)
        except RuntimeError:  # that loop is closed
            for stream, _ in news:
                stream.drop()
                self.strike(stream.request.id)
            return [stream.request.id for stream, _ in news]
        return []


def _deliver(news: _News) -> None:
    for stream, items in news:
        stream.put(items)


def _settle(outcome: _Outcome, result: list[Vector] | PieError) -> None:
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
