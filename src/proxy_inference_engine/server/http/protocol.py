"""uvicorn's HTTP/1.1 protocol with the limits it lacks: headers, time, connections, pipelining, what is not read.

Errors below HTTP semantics are answered in the JSON of their path's API, and counted, like all others.
"""

import asyncio
import logging
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from httptools import HttpParserUpgrade, HttpRequestParser
from starlette.datastructures import Headers
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from proxy_inference_engine.errors import HeadersTooLarge, InvalidRequest, PieError, RequestTimeout, Unavailable
from proxy_inference_engine.server.http.connections import make_way
from proxy_inference_engine.server.http.errors import WireShape, error_headers, shape_of
from proxy_inference_engine.server.http.lifetime import CountedTransport, StallWatch, WatchedProtocol
from proxy_inference_engine.server.http.origins import Origins
from proxy_inference_engine.server.http.proxies import TrustedProxies
from proxy_inference_engine.server.http.sse import ABORT, Patience
from proxy_inference_engine.server.http.websocket import LimitedSocket, handshake, is_handshake
from proxy_inference_engine.server.http.wire import dumps, request_id
from proxy_inference_engine.server.metrics import Metrics

_log = logging.getLogger(__name__)

MAX_HEADER_BYTES = 64 * 1024
MAX_HEADERS = 100
REQUEST_SECONDS = 30.0  # for headers and body
_OF_UPGRADES = (b"connection", b"upgrade", b"http2-settings")
_ROUTE = "connection"  # in the metrics: what never became a request


@dataclass(frozen=True, slots=True)
class Edge:
    """What connections need to know of the app behind them."""

    metrics: Metrics
    shapes: Mapping[str, WireShape]  # of the paths whose API does not write as most do
    patience: Patience
    origins: Origins
    proxies: TrustedProxies
    sockets: frozenset[str] = frozenset()  # the paths that take WebSockets


class _AnyLength(int):
    """A length that no body is too long or too short for: HTTP/1.0 has no chunks, its answers end when they end."""

    def __lt__(self, other: int) -> bool:
        return False

    def __sub__(self, other: int) -> "_AnyLength":
        return self


class LimitedProtocol(WatchedProtocol, HttpToolsProtocol):
    """Refuses by raising in the parser's callbacks: the parser stops, and `send_400_response` tells the reason."""

    def __init__(self, *args: Any, edge: Edge, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.url = b""
        self.is_reading_headers = False
        self._edge = edge
        self._idle_since = time.monotonic()
        self._refusal: PieError = InvalidRequest("This is not a valid HTTP/1.1 request.")
        self._num_bytes_in = 0
        self._num_header_bytes = 0
        self._is_last = False  # the request that is being answered
        self._is_put_again = False  # the one whose headers came, without its wish for another protocol
        self._num_read = 0  # of the bytes that came last

    @property
    def waits_since(self) -> float | None:
        """Since when there is no whole request here; None: one is being answered, or its answer is being read."""
        if self.is_reading_headers or self.cycle is None:
            return self._idle_since
        is_done = self.cycle.response_complete and not self.transport.get_write_buffer_size()
        return self._idle_since if is_done else None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        counted = CountedTransport(transport)
        self.watch = StallWatch(counted, self.loop, self._edge.patience.stall_s)
        super().connection_made(counted)  # type: ignore[arg-type]  # it has all that a transport has
        if not make_way(self, self.connections, self._edge.proxies.include):
            self._refusal = Unavailable("Too many connections are open.", code="too_many_connections")
            self.send_400_response("")
        else:
            self._await_request()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._idle_since = time.monotonic()
        # What is not read stays in memory, also of a connection that is being closed.
        self.watch.begin()

    def data_received(self, data: bytes) -> None:
        if self.parser is None or self.transport.is_closing() or self._is_last:
            return
        super().data_received(data)
        if self.is_reading_headers:
            # The parser keeps an unfinished header to itself, so what went in is counted too.
            self._num_bytes_in += len(data)
            if self._num_bytes_in > MAX_HEADER_BYTES and not self.transport.is_closing():
                self._refusal = _headers_too_large()
                self.send_400_response("")
        if self._is_put_again:
            self._is_put_again = False
            plain = self._plain_head() + data[self._num_read :]
            self.parser = HttpRequestParser(self)  # one that was told to close reads nothing more
            self.data_received(plain)

    def _unsupported_upgrade_warning(self) -> None:
        """The parser has stopped behind the headers, whatever comes after them."""
        upgrade = sys.exception()
        assert isinstance(upgrade, HttpParserUpgrade)
        self._num_read = upgrade.args[0]

    def _plain_head(self) -> bytes:
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())]
        lines += [b"%b: %b" % (name, value) for name, value in self.headers if name not in _OF_UPGRADES]
        if not self.parser.should_keep_alive():
            lines.append(b"connection: close")
        return b"\r\n".join(lines) + b"\r\n\r\n"

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._num_bytes_in = self._num_header_bytes = 0
        self.is_reading_headers = True
        self._await_request()

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._num_header_bytes += len(name) + len(value)
        if len(self.url) + self._num_header_bytes > MAX_HEADER_BYTES or len(self.headers) > MAX_HEADERS:
            self._refuse(_headers_too_large())

    def on_headers_complete(self) -> None:
        self.is_reading_headers = False
        if self._get_upgrade() not in (None, b"websocket"):
            self._is_put_again = True  # HTTP/2, say, as Java's client asks: it is content without
            return
        if self.parser.get_http_version() not in ("1.0", "1.1"):
            self._refuse(self._refusal)
        if not self.url.startswith(b"/"):
            self._refuse(InvalidRequest("The request target has to be a path."))
        if self._is_answering():
            self._refuse(InvalidRequest("Pipelined requests are not supported."))
        self.scope["extensions"] = {ABORT: {"call": self.transport.abort}}
        super().on_headers_complete()
        if self.parser.should_upgrade() and not self._should_upgrade():
            self._is_last = True  # it is refused, and the parser does not know where its body ends
            self.cycle.keep_alive = False
        if self.parser.get_http_version() == "1.0":
            self.cycle.chunked_encoding = False
            self.cycle.expected_content_length = _AnyLength()

    def _should_upgrade(self) -> bool:
        """Elsewhere, and where it is no handshake, it is plain HTTP, which refuses to be upgraded."""
        path, version = self.url.partition(b"?")[0].decode("latin-1"), self.parser.get_http_version()
        is_ours = path in self._edge.sockets and is_handshake(self.parser.get_method(), version, self.headers)
        return is_ours and super()._should_upgrade()

    def handle_websocket_upgrade(self) -> None:
        self._stop_waiting()
        self.watch.end()
        self.connections.discard(self)
        protocol = LimitedSocket(
            config=self.config,
            server_state=self.server_state,
            app_state=self.app_state,
            headers=self.headers,
            stall_s=self._edge.patience.stall_s,
        )
        protocol.connection_made(self.transport)  # type: ignore[arg-type]  # it was counted when it was made
        protocol.data_received(handshake(self.url, self.headers))
        self.transport.set_protocol(protocol)

    def on_message_complete(self) -> None:
        if self._is_put_again:
            return
        self._stop_waiting()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Called by uvicorn when the parser stopped; also for our own refusals."""
        if self._is_answering() and self.cycle.response_started:
            # Bytes in the middle of another answer would corrupt it: only closing is left.
            self.transport.close()
            return
        self.transport.write(self._refused())
        self.transport.close()
        self.watch.begin()

    def _refused(self) -> bytes:
        error, id_ = self._refusal, request_id(None).encode()
        shape = shape_of(unquote(self.url.partition(b"?")[0].decode("latin-1")), self._edge.shapes)
        body = dumps(shape.error(error, id_.decode())).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        headers += [(b"x-request-id", id_), (b"connection", b"close"), *error_headers(error)]
        headers += [] if shape.id_header is None else [(shape.id_header, id_)]
        if self._edge.origins.are_listed:
            headers += self._edge.origins.answer_headers(Headers(raw=self.headers or []))
        self._edge.metrics.requests.labels(_ROUTE, str(error.status)).inc()
        _log.info("refused a connection", extra={"fields": {"status": error.status, "id": id_.decode()}})
        head = b"".join(b"%b: %b\r\n" % header for header in headers)
        return STATUS_LINE[error.status] + head + b"\r\n" + body

    def _refuse(self, error: PieError) -> None:
        self._refusal = error
        raise error

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _await_request(self) -> None:
        self._stop_waiting()
        self._deadline = self.loop.call_later(REQUEST_SECONDS, self._give_up)

    def _give_up(self) -> None:
        if self.transport.is_closing():
            return
        if self.is_reading_headers or self.cycle is None:
            self._refusal = RequestTimeout(f"The headers did not arrive within {REQUEST_SECONDS:.0f} seconds.")
            self.send_400_response("")
        elif self.cycle.response_complete:
            self.transport.close()  # answered early; the rest of the body is not worth waiting for


def _headers_too_large() -> HeadersTooLarge:
    return HeadersTooLarge(f"The headers are larger than {MAX_HEADER_BYTES // 1024} KiB or more than {MAX_HEADERS}.")
