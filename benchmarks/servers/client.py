"""A streaming HTTP client that leaves the processor to the server: while an answer comes it only notes when bytes came.

They are parsed when the answer is over. One connection a request, loopback only.
"""

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_TIMEOUT_SECONDS = 600.0


class RequestFailed(Exception):
    """The server said no, or nothing."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What one streamed request brought, and when."""

    sent_s: float
    times_s: tuple[float, ...]  # one for every piece of text
    text: str
    num_tokens: int  # from `usage`, or the pieces where the server sends none
    num_prompt_tokens: int | None

    @property
    def ttft_s(self) -> float:
        return self.times_s[0] - self.sent_s

    @property
    def gaps_s(self) -> list[float]:
        return [after - before for before, after in zip(self.times_s, self.times_s[1:], strict=False)]

    @property
    def tokens_per_s(self) -> float:
        """The speed of decoding: tokens after the first, over the time they took."""
        return (self.num_tokens - 1) / (self.times_s[-1] - self.times_s[0])


@dataclass(slots=True)
class Watch:
    """Lets others see how far a running stream is."""

    num_reads: int = 0


@dataclass(frozen=True, slots=True)
class Target:
    """Where requests go and what every one of them carries."""

    port: int
    model: str
    fields: Mapping[str, object]

    async def stream(self, path: str, body: Mapping[str, object], watch: Watch | None = None) -> Answer:
        """POST a request and read its events to the end."""
        usage = {"stream": True, "stream_options": {"include_usage": True}}
        payload = json.dumps({"model": self.model, **body, **usage, **self.fields}).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        request = f"{head}Content-Length: {len(payload)}\r\nConnection: close\r\n\r\n".encode() + payload
        sent, reads = await _exchange(self.port, request, watch)
        return _parse(sent, reads)

    async def get(self, path: str) -> bytes:
        request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode()
        _, reads = await _exchange(self.port, request, None)
        body = _Body()
        content = b"".join(body.feed(data) for _, data in reads)
        if body.status != 200:
            raise RequestFailed(f"{path}: status {body.status}")
        return content


class _Recorder(asyncio.Protocol):
    def __init__(self, watch: Watch) -> None:
        self.reads: list[tuple[float, bytes]] = []
        self.is_over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watch = watch

    def data_received(self, data: bytes) -> None:
        self.reads.append((time.perf_counter(), data))
        self._watch.num_reads += 1
        if b"data: [DONE]" in data:
            self._end()

    def connection_lost(self, _exc: Exception | None) -> None:
        self._end()

    def _end(self) -> None:
        if not self.is_over.done():
            self.is_over.set_result(None)


async def _exchange(port: int, request: bytes, watch: Watch | None) -> tuple[float, list[tuple[float, bytes]]]:
    loop = asyncio.get_running_loop()
    sent = time.perf_counter()
    transport, recorder = await loop.create_connection(lambda: _Recorder(watch or Watch()), "127.0.0.1", port)
    try:
        transport.write(request)
        await asyncio.wait_for(recorder.is_over, _TIMEOUT_SECONDS)
    except TimeoutError:
        raise RequestFailed(f"no end after {_TIMEOUT_SECONDS:.0f} s") from None
    finally:
        transport.close()
    return sent, recorder.reads


@dataclass(slots=True)
class _Body:
    """HTTP/1.1 bytes to body bytes, chunked or not."""

    status: int = 0
    _buffer: bytes = b""
    _is_chunked: bool = False
    _left: int = field(default=0)  # bytes of the current chunk still to come

    def feed(self, data: bytes) -> bytes:
        self._buffer += data
        if self.status == 0:
            head, separator, rest = self._buffer.partition(b"\r\n\r\n")
            if not separator:
                return b""
            self.status = int(head.split(b" ", 2)[1])
            self._is_chunked = b"transfer-encoding: chunked" in head.lower()
            self._buffer = rest
        if self._is_chunked:
            return self._dechunk()
        out, self._buffer = self._buffer, b""
        return out

    def _dechunk(self) -> bytes:
        out = b""
        while True:
            if self._left:
                taken = self._buffer[: self._left]
                out += taken
                self._left -= len(taken)
                self._buffer = self._buffer[len(taken) :]
                if self._left:
                    return out
            line, separator, rest = self._buffer.lstrip(b"\r\n").partition(b"\r\n")
            if not separator:
                return out
            self._left = int(line.split(b";")[0], 16)
            self._buffer = rest
            if self._left == 0:  # the last chunk
                return out


def _parse(sent: float, reads: list[tuple[float, bytes]]) -> Answer:
    body = _Body()
    pending, times, texts = b"", [], []
    usage: dict[str, Any] = {}
    for when, data in reads:
        *lines, pending = (pending + body.feed(data)).split(b"\n")
        for line in lines:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            if "error" in event:
                raise RequestFailed(str(event["error"])[:300])
            usage = event.get("usage") or usage
            text = _text(event)
            if text:
                times.append(when)
                texts.append(text)
    if body.status != 200 or not times:
        raise RequestFailed(f"status {body.status}: {b''.join(data for _, data in reads)[-300:]!r}")
    num_tokens = int(usage.get("completion_tokens") or len(times))
    return Answer(sent, tuple(times), "".join(texts), num_tokens, usage.get("prompt_tokens"))


def _text(event: dict[str, Any]) -> str:
    for choice in event.get("choices") or ():
        text = choice.get("text") or (choice.get("delta") or {}).get("content")
        if text:
            return str(text)
    return ""
