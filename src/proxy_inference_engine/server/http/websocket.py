"""uvicorn's WebSocket protocol with the limits it lacks: what is half sent, what is not read, and the server's end.

A socket counts among the connections. One on which nothing is being answered makes way for others, and is closed when
the server ends; one that is being answered has the time that answers have.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from proxy_inference_engine.errors import PieError
from proxy_inference_engine.server.http.body import MAX_BODY_BYTES, RECEIVE_SECONDS, share_of
from proxy_inference_engine.server.http.lifetime import CountedTransport, StallWatch, WatchedProtocol
from proxy_inference_engine.server.http.origins import RawHeaders

SOCKET = "pie.socket"  # scope extension: whoever answers says when that begins and ends
MAX_FRAGMENTS = 4096  # of one message
POLICY, TOO_LARGE, RESTART, TRY_LATER, GOING = 1008, 1009, 1012, 1013, 1001  # why a socket is closed
_HANDSHAKE = (b"host", b"connection", b"upgrade")
_MAX_REASON = 120  # bytes

# What uvicorn is told of messages. Nothing is compressed: what is small on the wire must not be large in memory.
OPTIONS: dict[str, Any] = {
    "ws_max_size": MAX_BODY_BYTES,
    "ws_per_message_deflate": False,
    "ws_ping_interval": 20.0,
    "ws_ping_timeout": 60.0,
}


def is_handshake(method: bytes, version: str, headers: RawHeaders) -> bool:
    """Whether this can become a socket. What cannot is answered as plain HTTP."""
    names = {name for name, _ in headers}
    return method == b"GET" and version == "1.1" and {b"sec-websocket-key", b"sec-websocket-version"} <= names


def handshake(url: bytes, headers: RawHeaders) -> bytes:
    """The head of a request, as far as it is about the socket: the library has narrower limits than we have."""
    lines = [b"GET %b HTTP/1.1\r\n" % url]
    for name, value in headers:
        if name in _HANDSHAKE or name.startswith(b"sec-websocket-"):
            lines.append(b"%b: %b\r\n" % (name, value))
    return b"".join(lines) + b"\r\n"


class LimitedSocket(WatchedProtocol, WebSocketsSansIOProtocol):
    is_reading_headers = False

    def __init__(self, *args: Any, headers: RawHeaders, stall_s: float, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.waits_since: float | None = time.monotonic()  # None: something is being answered
        self._headers = headers
        self._stall_s = stall_s

    def connection_made(self, transport: CountedTransport) -> None:  # type: ignore[override]  # as the one before it had
        self.watch = StallWatch(transport, self.loop, self._stall_s)
        super().connection_made(transport)  # type: ignore[arg-type]  # it has all that a transport has

    def handle_connect(self, event: Any) -> None:
        super().handle_connect(event)
        if self.response.status_code == 101:
            self.scope["headers"] = self._headers
            self.scope["extensions"] = {**(self.scope["extensions"] or {}), SOCKET: {"mark": self._mark}}

    def _mark(self, is_busy: bool) -> None:
        self.waits_since = None if is_busy else time.monotonic()

    def on_task_complete(self, task: asyncio.Task[None]) -> None:
        super().on_task_complete(task)
        # What is not read stays in memory, also of a connection that is being closed.
        self.watch.begin()

    def shutdown(self) -> None:
        """The server ends. Whoever answers closes the socket itself when that is done."""
        if self.waits_since is not None:
            super().shutdown()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self.handshake_complete or self.close_sent or self.transport.is_closing():
            return
        num_held = len(self.conn.reader.buffer) + sum(map(len, self.frames))
        if not num_held:
            self._stop_waiting()
        elif len(self.frames) > MAX_FRAGMENTS:
            self._fail(POLICY, f"a message may have at most {MAX_FRAGMENTS} fragments")
        else:
            self._wait_for_the_rest(num_held)

    def _wait_for_the_rest(self, num_held: int) -> None:
        """Set a time for the rest of a message that has begun, and take room for it from the sender's share."""
        if self._deadline is None:
            reason = f"a message did not arrive within {RECEIVE_SECONDS:.0f} seconds"
            self._deadline = self.loop.call_later(RECEIVE_SECONDS, lambda: self._fail(POLICY, reason))
        try:
            share_of(self.scope).grow_to(num_held)  # type: ignore[arg-type]  # the same dictionary as the app's
        except PieError as error:
            self._fail(TRY_LATER, error.message)

    def _fail(self, code: int, reason: str) -> None:
        self._stop_waiting()
        if self.close_sent or self.transport.is_closing():
            return
        self.conn.fail(code, reason.encode()[:_MAX_REASON].decode(errors="ignore"))
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self.transport.close()
        self.watch.begin()


def mark_of(scope: Any) -> Callable[[bool], None]:
    """Tells the protocol whether something is being answered; where there is no such protocol, nobody."""
    extension = (scope.get("extensions") or {}).get(SOCKET)
    mark: Callable[[bool], None] = (lambda _is_busy: None) if extension is None else extension["mark"]
    return mark
