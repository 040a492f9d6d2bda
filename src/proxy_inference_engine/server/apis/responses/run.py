"""Answers that are made apart from the connection that asked for them: a log of events, and who follows it.

Every response is made this way. One in the foreground is given up when its client leaves; one in the background is
not, and both end with an error when the server does. Knows when things happen; what an event says is not its business.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any

from proxy_inference_engine.errors import PieError
from proxy_inference_engine.pool.pool import Lease
from proxy_inference_engine.served.stream import AnswerStream
from proxy_inference_engine.server.apis.responses.object import ResponseHead
from proxy_inference_engine.server.apis.responses.writer import ResponseWriter
from proxy_inference_engine.server.http.errors import as_pie_error
from proxy_inference_engine.server.http.lifetime import Drain, shutting_down
from proxy_inference_engine.server.http.pieces import LONG_CHARS
from proxy_inference_engine.server.http.wire import dumps, gathered, pieces

_MAX_UNSAVED = 256
_DATA = "\ndata: "
_PIECE_CHARS = 128 * 1024  # of frames that are handed to a follower at a time

Wire = dict[str, Any]
OffLoopFrames = Callable[[Callable[[], list[str]], int], Awaitable[list[str]]]  # work, and through how many characters
KeepResponse = Callable[[Wire, Sequence[str]], Awaitable[None]]  # saves the object with its frames; may raise PieError


class FrameLog:
    """The frames of one stream, numbered from 0, for any number of followers."""

    def __init__(self, frames: Sequence[str] = (), *, is_over: bool = False) -> None:
        self.frames = list(frames)
        self.is_over = is_over
        self._news = asyncio.Event()

    def add(self, frames: Sequence[str], *, is_last: bool = False) -> None:
        self.frames += frames
        self.is_over = is_last
        self._news.set()
        self._news = asyncio.Event()

    async def wait(self) -> None:
        """Wait until something is added."""
        if not self.is_over:
            await self._news.wait()

    async def follow(self, first: int = 0) -> AsyncGenerator[str, None]:
        """The frames from a number on, those that are there at once, in pieces, and the others as they come."""
        async with aclosing(self.news(first)) as news:
            async for frames in news:
                for piece in gathered(frames, _PIECE_CHARS):
                    yield piece

    async def news(self, first: int = 0) -> AsyncGenerator[Sequence[str], None]:
        """The frames from a number on, as many at a time as there are."""
        while True:
            frames = self.frames[first:]
            first += len(frames)
            if frames:
                yield frames
            elif self.is_over:
                return
            else:
                await self.wait()


def numbered(events: Sequence[Wire], first: int) -> list[str]:
    return [_frame(event, dumps({**event, "sequence_number": first + number})) for number, event in enumerate(events)]


def numbered_long(events: Sequence[Wire], first: int) -> list[str]:
    """Long events as numbered frames. In a thread: written in pieces, so that the event loop gets its turns."""
    return [
        _frame(event, "".join(pieces({**event, "sequence_number": first + number})))
        for number, event in enumerate(events)
    ]


def _frame(event: Wire, data: str) -> str:
    return f"event: {event['type']}{_DATA}{data}\n\n"


def event_of(frame: str) -> str:
    """The event of a frame, in JSON."""
    return frame[frame.index(_DATA) + len(_DATA) : -2]


class AsWritten:
    """A `Writer` of frames that are written already."""

    def feed(self, frames: str) -> str:
        return frames

    def finish(self) -> str:
        return ""


class ResponseRun:
    """One answer being made. `keep` is called before anybody sees its end; None: it is not stored.

    `check` is called while it is made, and may raise PieError: better now than at its end.
    """

    def __init__(
        self,
        writer: ResponseWriter,
        stream: AnswerStream,
        keep: KeepResponse | None,
        *,
        is_background: bool = False,
        off_loop: OffLoopFrames | None = None,
        check: Callable[[], None] | None = None,
        lease: Lease | None = None,
    ) -> None:
        self.log = FrameLog()
        self._lease = lease  # the model, which stays loaded for as long as it answers
        self.is_background = is_background
        self.is_saved = keep is not None
        self._writer = writer
        self._stream: AnswerStream | None = stream
        self._keep = keep
        self._off_loop = off_loop
        self._check = check
        self.is_given_up = False  # what could not be saved is told to have failed
        self.error: PieError | None = None
        self._response: Wire | None = None
        self._stopped: asyncio.Future[PieError | None] = asyncio.get_running_loop().create_future()
        self._log(writer.start())

    @property
    def num_chars(self) -> int:
        """How long the object is in JSON, about."""
        return self._writer.num_chars

    @property
    def response(self) -> Wire:
        """The object as it is now."""
        return self._writer.snapshot() if self._response is None else self._response

    @property
    def is_lost(self) -> bool:
        return self.log.is_over and not self.is_saved and not self.is_given_up

    async def finished(self) -> None:
        while not self.log.is_over:
            await self.log.wait()

    async def result(self) -> Wire:
        """The object at its end. Raises what went wrong."""
        await self.finished()
        if self.error is not None:
            raise self.error
        return self.response

    @property
    def head(self) -> ResponseHead:
        return self._writer.head

    @property
    def answer(self) -> AnswerStream | None:
        """None: it is over."""
        return self._stream

    def cancel(self, error: PieError | None = None) -> bool:
        """What was said so far is kept. With an error it has failed; without, whoever wanted it wants it no more.

        False: it was over already.
        """
        if not self._stopped.done():
            self._stopped.set_result(error)
        return not self.log.is_over

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
            if self._stream is not None:
                self._stream.cancel()
            # A run may be remembered for long; what its request held, images above all, is let go.
            self._stream = None
            if self._lease is not None:
                self._lease.release()

    async def _make(self) -> list[Wire]:
        assert self._stream is not None
        async with aclosing(self._stream.steps()) as steps:
            async for step in steps:
                events = self._writer.feed(step)
                if events:
                    self._log(events)
                if self._check is not None and self._keep is not None:
                    self._check()
        return self._writer.finish()

    def _log(self, events: Sequence[Wire]) -> None:
        self.log.add(numbered(events, len(self.log.frames)))

    async def _conclude(self, making: asyncio.Future[list[Wire]]) -> None:
        if making.done():
            last = self._outcome(making)
        else:
            making.cancel()
            await asyncio.gather(making, return_exceptions=True)
            last = self._broken_off()
        frames = await self._written(last)
        try:
            if self._keep is not None:
                await self._keep(last[-1]["response"], [*self.log.frames, *frames])
        except Exception as error:
            self.is_saved = False
            last = self._fail(as_pie_error(error))
            frames = await self._written(last)
        self._response = last[-1]["response"]
        self.log.add(frames, is_last=True)

    def _broken_off(self) -> list[Wire]:
        error = self._stopped.result() if self._stopped.done() else shutting_down()
        return self._writer.cancel() if error is None else self._fail(error)

    async def _written(self, last: list[Wire]) -> list[str]:
        """The last events have all that was said, and more than once."""
        first, num_chars = len(self.log.frames), self.num_chars
        if self._off_loop is None or num_chars <= LONG_CHARS:
            return numbered(last, first)
        return await self._off_loop(lambda: numbered_long(last, first), num_chars)

    def _outcome(self, making: asyncio.Future[list[Wire]]) -> list[Wire]:
        error = making.exception()
        return making.result() if error is None else self._fail(as_pie_error(error))

    def _fail(self, error: PieError) -> list[Wire]:
        self.error = error
        return self._writer.fail(error)


class ResponseRuns:
    """The runs of this server, by owner and id."""

    def __init__(self) -> None:
        self._runs: dict[tuple[str, str], ResponseRun] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, owner: str, id_: str, run: ResponseRun, drain: Drain) -> None:
        self._runs[owner, id_] = run
        task = asyncio.get_running_loop().create_task(self._work(owner, id_, run, drain))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _work(self, owner: str, id_: str, run: ResponseRun, drain: Drain) -> None:
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

    def in_background(self) -> list[tuple[str, str, ResponseRun]]:
        """Owner, id and run of those that no connection waits for and that are not over."""
        runs = ((owner, id_, run) for (owner, id_), run in self._runs.items())
        return [each for each in runs if each[2].is_background and not each[2].log.is_over]

    def unsaved(self) -> list[tuple[str, str, ResponseRun]]:
        """Runs in the background whose end could not be stored, while the store does not know that."""
        runs = ((owner, id_, run) for (owner, id_), run in self._runs.items())
        return [each for each in runs if each[2].is_background and each[2].is_lost]

    def find(self, owner: str, id_: str) -> ResponseRun | None:
        return self._runs.get((owner, id_))

    def drop(self, owner: str, id_: str) -> bool:
        """Give up a run and forget it; False where there is none."""
        run = self._runs.pop((owner, id_), None)
        if run is not None:
            run.abandon()
        return run is not None

    async def join(self) -> None:
        """Wait until no response runs any more: they end by themselves, or when the server's drain does."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
