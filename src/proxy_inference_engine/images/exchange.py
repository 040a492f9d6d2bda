"""One GET over an open connection: HTTP/1.1, an answer that is counted while it comes, nothing unpacked."""

import asyncio
import time
from dataclasses import dataclass, field

import httptools

from proxy_inference_engine.images.refusal import ImageRefused
from proxy_inference_engine.images.target import Target

_MAX_HEAD_BYTES = 64 * 1024
_CHUNK = 64 * 1024
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_SLOW_SECONDS = 3.0  # from then on an answer has to come at the least rate
_MIN_BYTES_PER_SECOND = 1024
_PLAIN_TYPES = frozenset({"", "application/octet-stream", "binary/octet-stream"})


@dataclass(slots=True)
class _Answer:
    """What the parser calls back: the fields of the head, then the body."""

    max_bytes: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytearray = field(default_factory=bytearray)
    has_head: bool = False
    is_complete: bool = False
    status: int = 0
    parser: httptools.HttpResponseParser = field(init=False)

    def __post_init__(self) -> None:
        self.parser = httptools.HttpResponseParser(self)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.has_head:  # what follows a body is of no use
            self.headers[name.decode("latin-1").lower()] = value.decode("latin-1").strip()

    def on_headers_complete(self) -> None:
        self.status = self.parser.get_status_code()
        if self.status < 200:
            self.headers.clear()
            return
        self.has_head = True
        length = self.headers.get("content-length", "0")
        if self.status == 200 and (len(length) > 12 or int(length) > self.max_bytes):
            raise too_large(self.max_bytes)

    def on_body(self, data: bytes) -> None:
        if self.status == 200 and len(self.body) + len(data) > self.max_bytes:
            raise too_large(self.max_bytes)
        if self.status == 200:
            self.body += data

    def on_message_complete(self) -> None:
        self.is_complete = self.has_head

    def let_go(self) -> None:
        """Free the body, which an error's traceback or the parser's reference would hold for a while."""
        self.body.clear()
        del self.parser

    @property
    def ends_with_connection(self) -> bool:
        return self.has_head and not self.headers.keys() & {"content-length", "transfer-encoding"}


def too_large(max_bytes: int) -> ImageRefused:
    return ImageRefused(f"the image has more than {max_bytes} bytes")


def unreadable() -> ImageRefused:
    return ImageRefused("it could not be fetched: the answer of its host is not valid", "invalid_image_url")


async def get(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: Target, max_bytes: int
) -> bytes | str:
    """The body, or where a redirect leads. Raises ImageRefused."""
    writer.write(
        f"GET {target.path} HTTP/1.1\r\nHost: {target.authority}\r\nUser-Agent: proxy-inference-engine\r\n"
        "Accept: image/png, image/jpeg, image/webp, image/gif\r\nAccept-Encoding: identity\r\n"
        "Connection: close\r\n\r\n".encode("ascii")
    )
    answer = _Answer(max_bytes)
    try:
        await _read(reader, answer)
        if answer.status in _REDIRECTS and "location" in answer.headers:
            return answer.headers["location"]
        if answer.status != 200:
            raise ImageRefused("it could not be fetched: its host answered with an error", "invalid_image_url")
        _check_head(answer.headers)
        return bytes(answer.body)
    finally:
        answer.let_go()


async def _read(reader: asyncio.StreamReader, answer: _Answer) -> None:
    began: float | None = None
    num_bytes = 0
    while not answer.is_complete and not (answer.has_head and answer.status != 200):
        data = await reader.read(_CHUNK)
        began = time.monotonic() if began is None else began
        num_bytes += len(data)
        if not data:
            if answer.ends_with_connection:
                return
            raise unreadable()
        _feed(answer, data)
        if not answer.has_head and num_bytes > _MAX_HEAD_BYTES:
            raise unreadable()
        seconds = time.monotonic() - began
        if not answer.is_complete and seconds > _SLOW_SECONDS and num_bytes < seconds * _MIN_BYTES_PER_SECOND:
            raise ImageRefused("it could not be fetched: it comes too slowly", "invalid_image_url")


def _feed(answer: _Answer, data: bytes) -> None:
    try:
        answer.parser.feed_data(data)
    except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
        # What a callback raises comes wrapped.
        refused = error.__context__
        raise refused if isinstance(refused, ImageRefused) else unreadable() from None


def _check_head(headers: dict[str, str]) -> None:
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise ImageRefused("it could not be fetched: its host sends it compressed", "invalid_image_url")
    media = headers.get("content-type", "").split(";", 1)[0].strip().lower()
    if not media.startswith("image/") and media not in _PLAIN_TYPES:
        raise ImageRefused("there is no image at this URL", "invalid_image_url")
