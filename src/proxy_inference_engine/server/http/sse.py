"""Streams of frames: one write per engine step, pings in silence, and an honest end whatever happens.

Server-sent events for the most part. Knows frames and timing; what is in a frame is the wire format's business.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from proxy_inference_engine.server.http.access import Visit, visit_of
from proxy_inference_engine.server.http.body import ClientGone
from proxy_inference_engine.server.http.errors import WireShape, as_pie_error
from proxy_inference_engine.server.http.lifetime import Drain, supervise

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

ABORT = "pie.abort"  # scope extension of our protocol: drop the connection with all that is buffered
_PIECE_CHARS = 256 * 1024  # of frames that are written at a time
_EVENTS = b"text/event-stream"
_HEADERS = [(b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]


class Writer(Protocol[T_contra]):
    """A wire format: what comes goes in, piece by piece, and what is written comes out, now or at the end."""

    def feed(self, piece: T_contra) -> str: ...

    def finish(self) -> str:
        """What follows the last piece."""
        ...


@dataclass(frozen=True, slots=True)
class Patience:
    """How long silence, and a client that does not read, are borne."""

    first_ping_s: float = 2.0
    next_ping_s: float = 10.0
    stall_s: float = 60.0


class Stalled(Exception):
    """The client is there but does not read."""


async def say_early(visit: Visit, comment: str) -> None:
    """A comment in a stream whose answer is still to come; the first brings the head, so the answer has none left.

    Formats that have no comments are told that it lives. Where there is no stream yet nothing is said.
    """
    if visit.send is None:
        return
    if not visit.is_early:
        visit.is_early = True
        headers = [(b"content-type", visit.media), *_HEADERS]
        await visit.send({"type": "http.response.start", "status": 200, "headers": headers})
    said = f": {comment}\n\n" if visit.media.startswith(_EVENTS) else visit.ping
    await visit.send({"type": "http.response.body", "body": said.encode(), "more_body": True})


class EventStream(Response, Generic[T]):
    """The response to a streaming request. Whatever happens, `close` was called when this returns."""

    def __init__(
        self,
        pieces: AsyncGenerator[T, None],
        writer: Writer[T],
        shape: WireShape,
        drain: Drain,
        patience: Patience,
        close: Callable[[], None],
        headers: Mapping[str, str] | None = None,
        news: Callable[[], str | None] | None = None,
    ) -> None:
        """`news` is what there is to say in silence, in formats that have comments."""
        super().__init__()
        self._news = news if shape.media.startswith(_EVENTS) else None
        self._further = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
        self._pieces = pieces
        self._writer = writer
        self._shape = shape
        self._drain = drain
        self._patience = patience
        self._close = close
        self._written_at = time.monotonic()
        self._writing_since: float | None = None
        self._lock = asyncio.Lock()  # one write at a time: a long one goes out in pieces
        self._is_cut = False  # in the middle of a frame
        self._has_ended = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            headers = [(b"content-type", self._shape.media), *_HEADERS, *self._further]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await supervise(self._pump(send), receive, self._drain, self._keep_alive(send))
        except ClientGone:
            visit_of(scope).status = 499
        except Stalled:
            visit_of(scope).status = 499
            await drop(scope, receive)
        except Exception as error:
            await self._break_off(scope, receive, send, error)
        finally:
            self._close()

    async def _pump(self, send: Send) -> None:
        async with aclosing(self._pieces) as pieces:
            async for piece in pieces:
                frames = self._writer.feed(piece)
                if frames:
                    await self._write(send, frames)
        await self._write(send, self._writer.finish() + self._shape.end, is_last=True)

    async def _write(self, send: Send, frames: str, is_last: bool = False) -> None:
        if len(frames) <= _PIECE_CHARS and not self._lock.locked():
            await self._write_piece(send, frames, is_last=is_last)
            return
        async with self._lock:
            for start in range(0, len(frames) or 1, _PIECE_CHARS):
                self._is_cut = start + _PIECE_CHARS < len(frames)
                piece = frames[start : start + _PIECE_CHARS]
                await self._write_piece(send, piece, is_last=is_last and not self._is_cut)

    async def _write_piece(self, send: Send, piece: str, *, is_last: bool) -> None:
        self._has_ended = is_last
        self._writing_since = time.monotonic()
        await send({"type": "http.response.body", "body": piece.encode(), "more_body": not is_last})
        self._writing_since = None
        self._written_at = time.monotonic()

    async def _keep_alive(self, send: Send) -> None:
        """Comments while nothing is to be said; raises Stalled when a write does not get through."""
        wait = self._patience.first_ping_s
        seen = self._written_at
        while True:
            now = time.monotonic()
            if self._written_at != seen:
                wait, seen = self._patience.first_ping_s, self._written_at
            if self._writing_since is not None or self._has_ended:
                if now - (self._writing_since or now) > self._patience.stall_s:
                    raise Stalled
                await asyncio.sleep(min(1.0, self._patience.stall_s / 4))
            elif now < seen + wait:
                await asyncio.sleep(seen + wait - now)
            else:
                await self._ping(send)
                wait, seen = self._patience.next_ping_s, self._written_at

    async def _ping(self, send: Send) -> None:
        news = None if self._news is None else self._news()
        try:
            async with asyncio.timeout(self._patience.stall_s):
                async with self._lock:
                    await self._write_piece(send, self._shape.ping if news is None else f": {news}\n\n", is_last=False)
        except TimeoutError:
            raise Stalled from None

    async def _break_off(self, scope: Scope, receive: Receive, send: Send, error: Exception) -> None:
        """An answer that failed halfway never looks finished: an error event, then the end of the stream."""
        shown, visit = as_pie_error(error), visit_of(scope)
        visit.error_code = shown.code
        if self._is_cut:
            await drop(scope, receive)
            return
        try:
            async with asyncio.timeout(self._patience.first_ping_s):
                body = self._shape.error(shown, visit.request_id)
                await self._write(send, self._shape.failure(body), is_last=True)
        except TimeoutError:
            await drop(scope, receive)


async def drop(scope: Scope, receive: Receive) -> None:
    """Close the connection without waiting for the client to read what is buffered."""
    extension = scope.get("extensions", {}).get(ABORT)
    if extension is not None:
        extension["call"]()
        with suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                while (await receive())["type"] != "http.disconnect":
                    pass
