"""Runs the work of one HTTP request until it is done, the client leaves, or the server ends."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from starlette.types import Receive

from proxy_inference_engine.errors import Unavailable
from proxy_inference_engine.server.http.body import ClientGone

T = TypeVar("T")


class Drain:
    """The end of the server in two steps: `begin` refuses new work, `end` breaks off what still runs."""

    def __init__(self) -> None:
        self._is_draining = False
        self._has_ended = False
        self._watchers: set[asyncio.Future[None]] = set()
        self.on_asked: Callable[[], None] | None = None  # of whoever runs the app, and can end it

    def ask(self) -> bool:
        """Let the server end as after a signal. False: whoever runs the app cannot be asked."""
        if self.on_asked is None:
            return False
        self.on_asked()
        return True

    def begin(self) -> None:
        self._is_draining = True

    def end(self) -> None:
        """Call in the event loop."""
        self._is_draining = self._has_ended = True
        for watcher in self._watchers:
            if not watcher.done():
                watcher.set_result(None)

    def check(self) -> None:
        if self._is_draining:
            raise shutting_down()

    @contextmanager
    def watched(self) -> Iterator[asyncio.Future[None]]:
        """A future that is done when the server ends."""
        watcher: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._has_ended:
            watcher.set_result(None)
        self._watchers.add(watcher)
        try:
            yield watcher
        finally:
            self._watchers.discard(watcher)


def shutting_down() -> Unavailable:
    return Unavailable("The server is shutting down.", code="shutting_down")


async def supervise(
    work: Coroutine[Any, Any, T],
    receive: Receive,
    drain: Drain,
    *guards: Coroutine[Any, Any, None],
    undo: Callable[[T], None] | None = None,
) -> T:
    """The result of `work`. Raises ClientGone, Unavailable, or what a guard raises; then the work is cancelled.

    `undo`: what is done with a result that nobody gets, because the caller was cancelled when it was just there.
    """
    task = asyncio.ensure_future(work)
    try:
        return await _first(task, receive, drain, guards)
    except BaseException:
        if undo is not None and task.done() and not task.cancelled() and task.exception() is None:
            undo(task.result())
        raise


async def _first(
    task: "asyncio.Task[T]", receive: Receive, drain: Drain, guards: Iterable[Coroutine[Any, Any, None]]
) -> T:
    helpers = [asyncio.ensure_future(guard) for guard in (_watch_client(receive), *guards)]
    with drain.watched() as ended:
        watched: list[asyncio.Future[Any]] = [task, ended, *helpers]
        try:
            await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            for helper in helpers:
                if helper.done():
                    helper.result()
            raise shutting_down()
        finally:
            for unfinished in (task, *helpers):
                unfinished.cancel()
            await asyncio.gather(task, *helpers, return_exceptions=True)


async def _watch_client(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    raise ClientGone


_log = logging.getLogger(__name__)
_LOOKS = 4  # in the time that is borne
MAX_UNSENT_BYTES = 256 * 1024 * 1024  # of all connections together


class Clock(Protocol):
    """The part of an event loop that tells the time and calls at one."""

    def time(self) -> float: ...

    def call_later(self, delay: float, callback: Callable[[], None], /) -> asyncio.TimerHandle: ...


class CountedTransport:
    """A transport that knows how much was written to it. All else is the transport's own."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._num_written = 0

    @property
    def num_sent(self) -> int:
        """What has left: the client's machine has it, or it is on its way there."""
        return self._num_written - self._transport.get_write_buffer_size()

    def write(self, data: bytes) -> None:
        self._num_written += len(data)
        self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class StallWatch:
    """Watches one connection from `begin` until all that was written has left."""

    def __init__(self, transport: CountedTransport, clock: Clock, stall_s: float) -> None:
        self._transport = transport
        self._clock = clock
        self._stall_s = stall_s
        self._num_sent = 0
        self._sent_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def num_unsent(self) -> int:
        num_unsent: int = self._transport.get_write_buffer_size()
        return num_unsent

    @property
    def silent_s(self) -> float:
        """For how long nothing was read, while something waits for that."""
        if self._timer is None:
            return 0.0
        if self._transport.num_sent > self._num_sent:
            self._note()
        return self._clock.time() - self._sent_at

    def begin(self) -> None:
        if self._timer is None and self.num_unsent:
            self._note()
            self._look_later()

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _note(self) -> None:
        self._num_sent, self._sent_at = self._transport.num_sent, self._clock.time()

    def _look_later(self) -> None:
        self._timer = self._clock.call_later(self._stall_s / _LOOKS, self._look)

    def _look(self) -> None:
        self._timer = None
        if not self.num_unsent:
            return
        self._look_later()
        if self.silent_s >= self._stall_s:
            self.drop()

    def drop(self) -> None:
        self.end()
        _log.info("dropped a connection that does not read", extra={"fields": {"unsent": self.num_unsent}})
        self._transport.abort()


def drop_unread(watches: Iterable[StallWatch]) -> None:
    """Make room where all together leave too much unread: who has read nothing for longest goes first."""
    waiting = sorted((each for each in watches if each.num_unsent), key=lambda each: each.silent_s)
    excess = sum(each.num_unsent for each in waiting) - MAX_UNSENT_BYTES
    while excess > 0:
        longest = waiting.pop()
        excess -= longest.num_unsent
        longest.drop()


class WatchedProtocol(asyncio.Protocol):
    """What is the same for both of uvicorn's protocols, before which it stands: a watch over what is not read, and a
    deadline for what is awaited."""

    connections: set[Any]  # all of this class
    watch: StallWatch
    _deadline: asyncio.TimerHandle | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self.watch.end()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self.watch.begin()
        drop_unread(each.watch for each in self.connections)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
