"""Answers that are made apart from the connection that asked for them: a log of events, and who follows it.

Every response is made this way. One in the foreground is given up when its client leaves; one in the background is
not, and both end with an error when the server does. Knows when things happen; what an event says is not its business.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any, Protocol

from proxy_inference_engine.errors import PieError
from proxy_inference_engine.server.failures import as_pie_error
from proxy_inference_engine.server.generation import Step, Steps
from proxy_inference_engine.server.jsons import dumps
from proxy_inference_engine.server.supervise import Drain, shutting_down

_MAX_UNSAVED = 256

Wire = dict[str, Any]
Keep = Callable[[Wire, Sequence[str]], Awaitable[None]]  # saves the object with its frames; may raise PieError


class Log:
    """The frames of one stream, numbered from 0, for any number of followers."""

    def __init__(self, frames: Sequence[str] = (), *, is_over: bool = False) -> None:
        self.frames = list(frames)
        self.is_over = is_over
        self._news = asyncio.Event()

    def add(self, events: Sequence[Wire], *, is_last: bool = False) -> None:
        self.frames += numbered(events, len(self.frames))
        self.is_over = is_last
        self._news.set()
        self._news = asyncio.Event()

    async def wait(self) -> None:
        """Until something is added."""
        if not self.is_over:
            await self._news.wait()


def numbered(events: Sequence[Wire], first: int) -> list[str]:
    return [
        f"event: {event['type']}\ndata: {dumps({**event, 'sequence_number': first + number})}\n\n"
        for number, event in enumerate(events)
    ]


class Following:
    """One follower of a log, from a number on: steps that only say there is news, and the frames that are the news."""

    def __init__(self, log: Log, *, first: int = 0, leave: Callable[[], None] | None = None) -> None:
        self._log = log
        self._next = first
        self._leave = leave

    async def steps(self) -> AsyncGenerator[Step, None]:
        while not self._log.is_over:
            if self._next < len(self._log.frames):
                yield []
            else:
                await self._log.wait()

    def feed(self, _step: Step) -> str:
        news = self._log.frames[self._next :]
        self._next += len(news)
        return "".join(news)

    def finish(self) -> str:
        return self.feed([])

    def cancel(self) -> None:
        if self._leave is not None:
            self._leave()


class Events(Protocol):
    """A wire format of answers: the last event of `finish`, `fail` and `cancel` has the object, as `response`."""

    def start(self) -> list[Wire]: ...

    def feed(self, step: Step) -> list[Wire]: ...

    def finish(self) -> list[Wire]: ...

    def fail(self, error: PieError) -> list[Wire]: ...

    def cancel(self) -> list[Wire]: ...

    def snapshot(self) -> Wire: ...


class Run:
    """One answer being made. `keep` is called before anybody sees its end; None: it is not stored."""

    def __init__(self, events: Events, generation: Steps, keep: Keep | None, *, is_background: bool = False) -> None:
        self.log = Log()
        self.is_background = is_background
        self.is_saved = keep is not None
        self._events = events
        self._generation: Steps | None = generation
        self._keep = keep
        self.error: PieError | None = None
        self._response: Wire | None = None
        self._stopped: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.log.add(events.start())

    @property
    def response(self) -> Wire:
        """The object as it is now."""
        return self._events.snapshot() if self._response is None else self._response

    async def finished(self) -> None:
        while not self.log.is_over:
            await self.log.wait()

    async def result(self) -> Wire:
        """The object at its end. Raises what went wrong."""
        await self.finished()
        if self.error is not None:
            raise self.error
        return self.response

    def cancel(self) -> None:
        """What was said so far is kept."""
        if not self._stopped.done():
            self._stopped.set_result(None)

    def abandon(self) -> None:
        """Nobody will ask for it: nothing is kept."""
        if not self.log.is_over:
            self._keep = None
            self.cancel()

    async def work(self, drain: Drain) -> None:
        making = asyncio.ensure_future(self._make())
        try:
            with drain.watched() as ended:
                ends: list[asyncio.Future[Any]] = [making, ended, self._stopped]
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            await self._conclude(making)
        finally:
            making.cancel()
            if self._generation is not None:
                self._generation.cancel()
            # A run may be remembered for long; what its request held, images above all, is let go.
            self._generation = None

    async def _make(self) -> list[Wire]:
        assert self._generation is not None
        async with aclosing(self._generation.steps()) as steps:
            async for step in steps:
                events = self._events.feed(step)
                if events:
                    self.log.add(events)
        return self._events.finish()

    async def _conclude(self, making: asyncio.Future[list[Wire]]) -> None:
        if making.done():
            last = self._outcome(making)
        else:
            making.cancel()
            await asyncio.gather(making, return_exceptions=True)
            last = self._events.cancel() if self._stopped.done() else self._fail(shutting_down())
        try:
            await self._save(last)
        except Exception as error:
            self.is_saved = False
            last = self._fail(as_pie_error(error))
        self._response = last[-1]["response"]
        self.log.add(last, is_last=True)

    async def _save(self, last: list[Wire]) -> None:
        if self._keep is not None:
            frames = [*self.log.frames, *numbered(last, len(self.log.frames))]
            await self._keep(last[-1]["response"], frames)

    def _outcome(self, making: asyncio.Future[list[Wire]]) -> list[Wire]:
        error = making.exception()
        return making.result() if error is None else self._fail(as_pie_error(error))

    def _fail(self, error: PieError) -> list[Wire]:
        self.error = error
        return self._events.fail(error)


class Runs:
    """The runs of this server, by owner and id."""

    def __init__(self) -> None:
        self._runs: dict[tuple[str, str], Run] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, owner: str, id_: str, run: Run, drain: Drain) -> None:
        self._runs[owner, id_] = run
        task = asyncio.get_running_loop().create_task(self._work(owner, id_, run, drain))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _work(self, owner: str, id_: str, run: Run, drain: Drain) -> None:
        await run.work(drain)
        if run.is_saved or not run.is_background:
            self._runs.pop((owner, id_), None)
        else:
            # Its end could not be stored: whoever polls learns it from here.
            self._forget_some()

    def _forget_some(self) -> None:
        ended = [key for key, run in self._runs.items() if run.log.is_over]
        for key in ended[:-_MAX_UNSAVED]:
            del self._runs[key]

    def find(self, owner: str, id_: str) -> Run | None:
        return self._runs.get((owner, id_))

    def drop(self, owner: str, id_: str) -> bool:
        """Give up a run and forget it; False where there is none."""
        run = self._runs.pop((owner, id_), None)
        if run is not None:
            run.abandon()
        return run is not None

    async def join(self) -> None:
        """Until nothing runs any more: they end by themselves, or when the server's drain does."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
