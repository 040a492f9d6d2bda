"""Server-sent events: one write per engine step, keep-alive comments, and an honest end whatever happens.

Knows frames and timing; what is in a frame is the wire format's business.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import ClassVar, Protocol

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from proxy_inference_engine.errors import PieError
from proxy_inference_engine.server.body import ClientGone
from proxy_inference_engine.server.failures import as_pie_error, error_body
from proxy_inference_engine.server.generation import Step, Steps
from proxy_inference_engine.server.jsons import dumps
from proxy_inference_engine.server.record import record_of
from proxy_inference_engine.server.supervise import Drain, supervise

DONE = "data: [DONE]\n\n"
ABORT = "pie.abort"  # scope extension of our protocol: drop the connection with all that is buffered
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class Frames(Protocol):
    """A wire format that turns steps of events into SSE frames."""

    def feed(self, step: Step) -> str: ...

    def finish(self) -> str:
        """What comes after the last step and before [DONE]."""
        ...


@dataclass(frozen=True, slots=True)
class Manner:
    """What an API writes beside its events."""

    ping: str  # while nothing is to be said
    end: str  # after the last event
    failure: Callable[[PieError, str], str]  # in place of the rest; the error and the id of the request


@dataclass(frozen=True, slots=True)
class Patience:
    """How long silence, and a client that does not read, are borne."""

    first_ping_s: float = 2.0
    next_ping_s: float = 10.0
    stall_s: float = 60.0


class Stalled(Exception):
    """The client is there but does not read."""


def _failure(error: PieError, _request_id: str) -> str:
    return f"data: {dumps(error_body(error))}\n\n{DONE}"


class EventStream(Response):
    """The response to a streaming request. Owns the generation: whatever happens, it is over when this returns."""

    manner: ClassVar[Manner] = Manner(": ping\n\n", DONE, _failure)

    def __init__(
        self,
        generation: Steps,
        frames: Frames,
        drain: Drain,
        patience: Patience,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        self._further = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
        self._generation = generation
        self._frames = frames
        self._drain = drain
        self._patience = patience
        self._written_at = time.monotonic()
        self._writing_since: float | None = None
        self._has_ended = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": 200, "headers": [*_HEADERS, *self._further]})
            await supervise(self._pump(send), receive, self._drain, self._keep_alive(send))
        except ClientGone:
            record_of(scope).status = 499
        except Stalled:
            record_of(scope).status = 499
            await _drop(scope, receive)
        except Exception as error:
            await self._break_off(scope, receive, send, error)
        finally:
            self._generation.cancel()

    async def _pump(self, send: Send) -> None:
        async with aclosing(self._generation.steps()) as steps:
            async for step in steps:
                frames = self._frames.feed(step)
                if frames:
                    await self._write(send, frames)
        await self._write(send, self._frames.finish() + self.manner.end, is_last=True)

    async def _write(self, send: Send, frames: str, is_last: bool = False) -> None:
        self._writing_since = time.monotonic()
        self._has_ended = is_last
        await send({"type": "http.response.body", "body": frames.encode(), "more_body": not is_last})
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
        try:
            async with asyncio.timeout(self._patience.stall_s):
                await self._write(send, self.manner.ping)
        except TimeoutError:
            raise Stalled from None

    async def _break_off(self, scope: Scope, receive: Receive, send: Send, error: Exception) -> None:
        """An answer that failed halfway never looks finished: an error event, then the end of the stream."""
        shown, record = as_pie_error(error), record_of(scope)
        record.error_code = shown.code
        try:
            async with asyncio.timeout(self._patience.first_ping_s):
                await self._write(send, self.manner.failure(shown, record.request_id), is_last=True)
        except TimeoutError:
            await _drop(scope, receive)


async def _drop(scope: Scope, receive: Receive) -> None:
    """Close the connection without waiting for the client to read what is buffered."""
    extension = scope.get("extensions", {}).get(ABORT)
    if extension is not None:
        extension["call"]()
        with suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                while (await receive())["type"] != "http.disconnect":
                    pass
