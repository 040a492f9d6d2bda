"""HTTP/1.1 to one address, on asyncio and httptools: keep-alive, and bodies handed on as they come.

A general client would do, but for its price: it is paid for every token of every stream. Event loop only.
"""

import asyncio
import contextlib
import ssl
from collections.abc import Mapping
from typing import NamedTuple, Protocol, cast
from urllib.parse import urlsplit

import httptools

CONNECT_S = 10.0
_MAX_IDLE = 1024
_MAX_IDLE_S = 60.0


class FarAddress(NamedTuple):
    """Where a far engine listens, from its URL."""

    host: str
    port: int
    is_tls: bool
    path: str  # before every path of the engine's; "" where it is alone there

    @staticmethod
    def parse(url: str) -> "FarAddress":
        """Raises ValueError."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError(f"{url!r} should be a URL such as http://10.0.0.5:8000")
        if parts.username or parts.password:
            raise ValueError("a URL has no place for a password: set far_key")
        is_tls = parts.scheme == "https"
        path = parts.path.rstrip("/").removesuffix("/v1")  # as clients of OpenAI's write it
        return FarAddress(parts.hostname, parts.port or (443 if is_tls else 80), is_tls, path)

    @property
    def netloc(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{'https' if self.is_tls else 'http'}://{self.netloc}{self.path}"


class FarReader(Protocol):
    """Whoever waits for an answer. Hears of its head, of pieces of its body, and of exactly one end."""

    def on_head(self, status: int, retry_after: str | None) -> None: ...

    def on_body(self, data: bytes) -> None: ...

    def on_complete(self) -> None: ...

    def on_lost(self, *, is_stale: bool) -> None:
        """The connection broke. `is_stale`: it had been kept from before, and nothing came: perhaps nothing arrived."""
        ...


class FarConnection(asyncio.Protocol):
    """One connection. It belongs to a reader from `send` until its end, and then to the connections that are idle."""

    def __init__(self, owner: "Connections") -> None:
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._reader: FarReader | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._feed = self._parser.feed_data
        self._retry_after: str | None = None
        self._was_used = False
        self._has_answer = False
        self.idle_since = 0.0

    # Whoever sends

    def send(self, head: bytes, body: bytes, reader: FarReader) -> None:
        assert self._transport is not None and self._reader is None
        self._reader = reader
        self._has_answer = False
        self._transport.write(head + body)

    def pause(self) -> None:
        """Read no more: what comes waits in the network, and in the end at the other side."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()

    def close(self) -> None:
        """Break off: the reader hears nothing more. That is how the far side learns that nobody wants the rest."""
        self._reader = None
        if self._transport is not None:
            self._transport.abort()

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    # asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            self._feed(data)
        except httptools.HttpParserError:
            self._break_off()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._owner.forget(self)
        self._break_off()

    def _break_off(self) -> None:
        reader, self._reader = self._reader, None
        if self._transport is not None:
            self._transport.abort()
        if reader is not None:
            reader.on_lost(is_stale=self._was_used and not self._has_answer)

    # httptools

    def on_message_begin(self) -> None:
        self._retry_after = None
        self._has_answer = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"retry-after":
            self._retry_after = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if self._reader is not None:
            self._reader.on_head(self._parser.get_status_code(), self._retry_after)

    def on_body(self, data: bytes) -> None:
        if self._reader is not None:
            self._reader.on_body(data)

    def on_message_complete(self) -> None:
        reader, self._reader = self._reader, None
        self._was_used = True
        if reader is None:
            return
        if self._parser.should_keep_alive():
            self._owner.keep(self)
        elif self._transport is not None:
            self._transport.close()
        reader.on_complete()


class Connections:
    """The connections to one address. `headers` go with every request."""

    def __init__(self, address: FarAddress, headers: Mapping[str, str]) -> None:
        self.address = address
        fields = {"Host": address.netloc, "Accept-Encoding": "identity", "Content-Type": "application/json", **headers}
        self._fields = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        self._heads: dict[str, str] = {}
        self._idle: list[FarConnection] = []
        self._all: set[FarConnection] = set()
        self._tls = ssl.create_default_context() if address.is_tls else None

    @property
    def num_open(self) -> int:
        return len(self._all)

    def idle(self) -> FarConnection | None:
        """One that is open already, the one used last."""
        now = asyncio.get_running_loop().time()
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open and now - connection.idle_since < _MAX_IDLE_S:
                return connection
            connection.close()
        return None

    async def connect(self) -> FarConnection:
        """Raises OSError or TimeoutError."""
        loop, host = asyncio.get_running_loop(), self.address.host
        async with asyncio.timeout(CONNECT_S):
            _, connection = await loop.create_connection(
                lambda: FarConnection(self), host, self.address.port, ssl=self._tls
            )
        self._all.add(connection)
        return connection

    def post(self, connection: FarConnection, path: str, body: bytes, reader: FarReader) -> None:
        start = self._heads.get(path)
        if start is None:
            start = f"POST {self.address.path}{path} HTTP/1.1\r\n{self._fields}Content-Length: "
            self._heads[path] = start
        connection.send(f"{start}{len(body)}\r\n\r\n".encode("latin-1"), body, reader)

    def keep(self, connection: FarConnection) -> None:
        if len(self._idle) >= _MAX_IDLE:
            connection.close()
            return
        connection.idle_since = asyncio.get_running_loop().time()
        self._idle.append(connection)

    def forget(self, connection: FarConnection) -> None:
        self._all.discard(connection)
        with contextlib.suppress(ValueError):
            self._idle.remove(connection)

    def close(self) -> None:
        for connection in list(self._all):
            connection.close()
        self._idle.clear()
