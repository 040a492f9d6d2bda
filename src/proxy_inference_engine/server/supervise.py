"""Runs the work of one HTTP request until it is done, the client leaves, or the server ends."""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from starlette.types import Receive

from proxy_inference_engine.errors import Unavailable
from proxy_inference_engine.server.body import ClientGone

T = TypeVar("T")


class Drain:
    """The end of the server in two steps: `begin` refuses new work, `end` breaks off what still runs."""

    def __init__(self) -> None:
        self._is_draining = False
        self._has_ended = False
        self._watchers: set[asyncio.Future[None]] = set()

    @property
    def is_draining(self) -> bool:
        return self._is_draining

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
    work: Coroutine[Any, Any, T], receive: Receive, drain: Drain, *guards: Coroutine[Any, Any, None]
) -> T:
    """The result of `work`. Raises ClientGone, Unavailable, or what a guard raises; then the work is cancelled."""
    task = asyncio.ensure_future(work)
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
