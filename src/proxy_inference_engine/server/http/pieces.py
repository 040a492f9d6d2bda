"""Answers that are too long to be written at once: piece by piece, each made in a thread when the last was taken.

So neither the event loop nor the memory has a whole one, and a client that reads slowly gets it slowly.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from proxy_inference_engine.server.http.access import visit_of
from proxy_inference_engine.server.http.body import ClientGone
from proxy_inference_engine.server.http.errors import as_pie_error
from proxy_inference_engine.server.http.lifetime import Drain, supervise
from proxy_inference_engine.server.http.sse import drop
from proxy_inference_engine.server.http.wire import gathered, pieces

LONG_CHARS = 256 * 1024  # of JSON: what has no more is written at once
_PIECE_CHARS = 128 * 1024

OffLoopText = Callable[[Callable[[], str | None], int], Awaitable[str | None]]  # work, and through how many characters


class LongJson(Response):
    """A JSON body of unknown length. What fails on the way breaks the connection off: it never looks finished."""

    def __init__(
        self, value: Any, drain: Drain, off_loop: OffLoopText, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__()
        self._value = value
        self._drain = drain
        self._off_loop = off_loop
        self._fields = [(b"content-type", b"application/json")]
        self._fields += [(name.encode(), text.encode()) for name, text in (headers or {}).items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self._fields})
        try:
            await supervise(self._write(send), receive, self._drain)
        except ClientGone:
            visit_of(scope).status = 499
        except Exception as error:
            visit_of(scope).error_code = as_pie_error(error).code
            await drop(scope, receive)

    async def _write(self, send: Send) -> None:
        parts = gathered(pieces(self._value), _PIECE_CHARS)
        while (part := await self._off_loop(lambda: next(parts, None), _PIECE_CHARS)) is not None:
            await send({"type": "http.response.body", "body": part.encode(), "more_body": True})
        await send({"type": "http.response.body", "body": b""})
