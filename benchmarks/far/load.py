"""Streams of chat from one process, read as cheaply as Python can: what is measured is the server."""

import asyncio
import json
import statistics
import time
from functools import partial
from typing import Any, NamedTuple

import httptools
import uvloop


class Result(NamedTuple):
    """Of all streams together; times in seconds."""

    num_tokens: int
    began: float  # of the monotonic clock, which all processes share
    seconds: float
    steady: float  # tokens a second while every stream ran; nan where they never all did
    first_mean: float
    first_median: float
    first_p99: float
    num_failed: int

    @property
    def tokens_per_second(self) -> float:
        return self.num_tokens / self.seconds


class _Client(asyncio.Protocol):
    def __init__(self, body: bytes) -> None:
        head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        self._request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
        self._parser = httptools.HttpResponseParser(self)
        self._transport: Any = None
        self._tail = b""
        self.began = self.first_at = self.ended_at = 0.0
        self.num_tokens = self.num_bytes = 0
        self.is_whole = False
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def send(self) -> None:
        self.began = time.monotonic()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, data: bytes) -> None:
        if not self.first_at and data.count(b'"content":"') > data.count(b'"content":""'):
            self.first_at = time.monotonic()
        self.num_bytes += len(data)
        self._tail = (self._tail + data)[-4096:]

    def on_message_complete(self) -> None:
        self.ended_at = time.monotonic()
        for line in self._tail.split(b"\n"):
            if line.startswith(b"data: {") and b'"completion_tokens"' in line:
                self.num_tokens = json.loads(line[6:])["usage"]["completion_tokens"]
        self.is_whole = self.num_tokens > 0
        self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_result(None)


async def stream_all(port: int, bodies: list[bytes], ramp_s: float) -> Result:
    """Each on a connection of its own: all at the same moment, or one after the other within some seconds."""
    loop = asyncio.get_running_loop()
    clients: list[_Client] = []
    for body in bodies:
        _, client = await loop.create_connection(partial(_Client, body), "127.0.0.1", port)
        clients.append(client)
    began = time.monotonic()
    for client in clients:
        client.send()
        if ramp_s:
            await asyncio.sleep(ramp_s / len(clients))
    all_began, num_before = time.monotonic(), sum(client.num_bytes for client in clients)
    are_all_running = not any(client.done.done() for client in clients)
    await asyncio.wait([client.done for client in clients], return_when=asyncio.FIRST_COMPLETED)
    steady_s, num_after = time.monotonic() - all_began, sum(client.num_bytes for client in clients)
    await asyncio.gather(*(client.done for client in clients))
    num_tokens, num_bytes = (sum(getattr(each, name) for each in clients) for name in ("num_tokens", "num_bytes"))
    firsts = sorted(client.first_at - client.began for client in clients if client.first_at)
    return Result(
        num_tokens=num_tokens,
        began=began,
        seconds=max((client.ended_at for client in clients), default=began) - began,
        # Every token takes about as many bytes, and counting bytes is all that a client has time for.
        steady=num_tokens * (num_after - num_before) / num_bytes / steady_s if are_all_running else float("nan"),
        first_mean=statistics.mean(firsts) if firsts else float("nan"),
        first_median=statistics.median(firsts) if firsts else float("nan"),
        first_p99=firsts[int(len(firsts) * 0.99)] if firsts else float("nan"),
        num_failed=sum(not client.is_whole for client in clients),
    )


def run(port: int, bodies: list[bytes], ramp_s: float = 0.0) -> Result:
    return uvloop.run(stream_all(port, bodies, ramp_s))


def chat_body(prompt: str, max_tokens: int, model: str = "default", **more: Any) -> bytes:
    asked = {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": max_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
        **more,
    }
    return json.dumps(asked).encode()
