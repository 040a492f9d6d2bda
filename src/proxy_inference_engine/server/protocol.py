"""uvicorn's HTTP/1.1 protocol with the limits it lacks: size and time of headers, connections, pipelining.

Errors below HTTP semantics are answered in the same JSON as all others.
"""

import asyncio
import ipaddress
import logging
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from proxy_inference_engine.errors import HeadersTooLarge, InvalidRequest, PieError, RequestTimeout, Unavailable
from proxy_inference_engine.server.failures import error_body
from proxy_inference_engine.server.ids import request_id
from proxy_inference_engine.server.jsons import dumps
from proxy_inference_engine.server.sse import ABORT

_log = logging.getLogger(__name__)

MAX_HEADER_BYTES = 64 * 1024
MAX_HEADERS = 100
REQUEST_SECONDS = 30.0  # for headers and body
MAX_CONNECTIONS = 1024
MAX_CONNECTIONS_PER_ADDRESS = 128


class LimitedProtocol(HttpToolsProtocol):
    """Refuses by raising in the parser's callbacks: the parser stops, and `send_400_response` tells the reason."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._refusal: PieError = InvalidRequest("This is not a valid HTTP/1.1 request.")
        self._deadline: asyncio.TimerHandle | None = None
        self._num_bytes_in = 0
        self._num_header_bytes = 0
        self._is_reading_headers = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        if self._is_one_too_many():
            self._refusal = Unavailable("Too many connections are open.", code="too_many_connections")
            self.send_400_response("")
        else:
            self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.parser is None or self.transport.is_closing():
            return
        super().data_received(data)
        if self._is_reading_headers:
            # The parser keeps an unfinished header to itself, so what went in is counted too.
            self._num_bytes_in += len(data)
            if self._num_bytes_in > MAX_HEADER_BYTES and not self.transport.is_closing():
                self._refusal = _headers_too_large()
                self.send_400_response("")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._num_bytes_in = self._num_header_bytes = 0
        self._is_reading_headers = True
        self._await_request()

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._num_header_bytes += len(name) + len(value)
        if len(self.url) + self._num_header_bytes > MAX_HEADER_BYTES or len(self.headers) > MAX_HEADERS:
            self._refuse(_headers_too_large())

    def on_headers_complete(self) -> None:
        self._is_reading_headers = False
        if self.parser.get_http_version() not in ("1.0", "1.1"):
            self._refuse(self._refusal)
        if not self.url.startswith(b"/"):
            self._refuse(InvalidRequest("The request target has to be a path."))
        if self._is_answering():
            self._refuse(InvalidRequest("Pipelined requests are not supported."))
        self.scope["extensions"] = {ABORT: {"call": self.transport.abort}}
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._stop_waiting()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Called by uvicorn when the parser stopped; also for our own refusals."""
        if self._is_answering() and self.cycle.response_started:
            # Bytes in the middle of another answer would corrupt it: only closing is left.
            self.transport.close()
            return
        body = dumps(error_body(self._refusal)).encode()
        id_ = request_id(None)
        head = f"content-type: application/json\r\nx-request-id: {id_}\r\ncontent-length: {len(body)}\r\n"
        self.transport.write(STATUS_LINE[self._refusal.status] + head.encode() + b"connection: close\r\n\r\n" + body)
        _log.info("refused a connection", extra={"fields": {"status": self._refusal.status, "id": id_}})
        self.transport.close()

    def _refuse(self, error: PieError) -> None:
        self._refusal = error
        raise error

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _await_request(self) -> None:
        self._stop_waiting()
        self._deadline = self.loop.call_later(REQUEST_SECONDS, self._give_up)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        if self.transport.is_closing():
            return
        if self._is_reading_headers or self.cycle is None:
            self._refusal = RequestTimeout(f"The headers did not arrive within {REQUEST_SECONDS:.0f} seconds.")
            self.send_400_response("")
        elif self.cycle.response_complete:
            self.transport.close()  # answered early; the rest of the body is not worth waiting for

    def _is_one_too_many(self) -> bool:
        if len(self.connections) > MAX_CONNECTIONS:
            return True
        address = self.client[0] if self.client else ""
        if not address or _is_loopback(address):
            return False
        same = sum(1 for other in self.connections if (getattr(other, "client", None) or ("",))[0] == address)
        return same > MAX_CONNECTIONS_PER_ADDRESS


def _headers_too_large() -> HeadersTooLarge:
    return HeadersTooLarge(f"The headers are larger than {MAX_HEADER_BYTES // 1024} KiB or more than {MAX_HEADERS}.")


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
