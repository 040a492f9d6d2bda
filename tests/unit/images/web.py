"""A web for the fetcher: names that resolve as a test says, and one real server behind all of their addresses."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from proxy_inference_engine.images.fetcher import Connection, Endpoint, Fetcher, FetchLimits
from proxy_inference_engine.images.target import AllowedHosts

PUBLIC = "93.184.215.14"

Serve = Callable[[str, asyncio.StreamWriter], Awaitable[None]]  # the path and query, and where to write the answer


def reply(body: bytes, status: str = "200 OK", *headers: str, media: str = "image/png") -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", f"Content-Type: {media}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def redirect(location: str, status: str = "302 Found") -> bytes:
    return reply(b"moved", status, f"Location: {location}", media="text/plain")


class Web:
    """`pages`: what a path is answered with; a callable writes for itself, and may take its time."""

    def __init__(
        self, pages: Mapping[str, bytes | Serve] | None = None, names: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        self.pages = dict(pages or {})
        self.names = dict(names or {})
        self.resolved: list[str] = []
        self.connected: list[Endpoint] = []
        self.heads: list[str] = []
        self.num_open = self.max_open = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "Web":
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def fetcher(self, limits: FetchLimits | None = None, allowed: AllowedHosts | None = None) -> Fetcher:
        return Fetcher(limits, allowed, resolve=self.resolve, connect=self.connect)

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        self.resolved.append(host)
        if host in self.names:
            return self.names[host]
        if host.replace(".", "").isdigit() or ":" in host:
            return [host]
        raise OSError("no such name")

    async def connect(self, endpoint: Endpoint) -> Connection:
        self.connected.append(endpoint)
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.num_open += 1
        self.max_open = max(self.max_open, self.num_open)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.heads.append(head)
            page = self.pages.get(head.split(" ")[1], reply(b"", "404 Not Found"))
            if isinstance(page, bytes):
                writer.write(page)
            else:
                await page(head.split(" ")[1], writer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self.num_open -= 1
            self._tasks.discard(task)
            writer.close()
