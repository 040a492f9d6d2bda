"""A form with a file in it, read as it comes: fields are kept, the file goes on piece by piece, both within limits.

Knows forms and timing; what the fields mean, and where the file goes, is the route's business.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.datastructures import Headers
from starlette.types import Receive, Scope

from proxy_inference_engine.errors import InvalidRequest, RequestTimeout, UnsupportedMedia, shorten
from proxy_inference_engine.server.http.body import RECEIVE_SECONDS, ClientGone

FORM_MEDIA = b"multipart/form-data"
MAX_PARTS = 16
MAX_FIELD_BYTES = 4096
MAX_FILE_NAME = 255
PIECE_BYTES = 1024 * 1024  # of a file that are handed on at a time
SLOW_SECONDS = 10.0  # from then on a form has to come at the least rate
MIN_BYTES_PER_SECOND = 8 * 1024
_UNNAMED = "file"
logging.getLogger("python_multipart").setLevel(logging.CRITICAL)  # what clients send is not for the log


class FormReader:
    """Takes the bytes of a form. `fields` has what was said, `take` what came of the file since it was last called."""

    def __init__(self, boundary: bytes, names: Collection[str], file_field: str = "file") -> None:
        """`names`: the fields that the form may have beside the file."""
        self.fields: dict[str, str] = {}
        self.file_name: str | None = None  # None: no file came yet
        self.is_over = False
        self.num_file_bytes = 0  # not taken yet
        self._names = names
        self._file_field = file_field
        self._num_parts = 0
        self._pieces: list[bytes] = []
        self._header = (b"", b"")
        self._headers: dict[bytes, bytes] = {}
        self._field: str | None = None  # that is being read; None: the file is
        self._value = b""
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._begin,
                "on_header_field": self._add_name,
                "on_header_value": self._add_value,
                "on_header_end": self._end_header,
                "on_headers_finished": self._open,
                "on_part_data": self._add,
                "on_part_end": self._close,
                "on_end": self._end,
            },
        )

    def feed(self, data: bytes) -> None:
        """Raises InvalidRequest."""
        try:
            self._parser.write(data)
        except FormParserError:
            raise InvalidRequest("The body is not a valid form of the type multipart/form-data.") from None

    def take(self) -> bytes:
        data, self._pieces, self.num_file_bytes = b"".join(self._pieces), [], 0
        return data

    def _begin(self) -> None:
        self._num_parts += 1
        if self._num_parts > MAX_PARTS:
            raise InvalidRequest(f"The form has more than {MAX_PARTS} parts.")
        self._headers, self._header, self._value = {}, (b"", b""), b""

    def _add_name(self, data: bytes, start: int, end: int) -> None:
        self._header = (self._header[0] + data[start:end], b"")

    def _add_value(self, data: bytes, start: int, end: int) -> None:
        self._header = (self._header[0], self._header[1] + data[start:end])

    def _end_header(self) -> None:
        name, value = self._header
        self._headers[name.lower()] = value
        self._header = (b"", b"")

    def _open(self) -> None:
        kind, options = parse_options_header(self._headers.get(b"content-disposition"))
        name = options.get(b"name", b"").decode("utf-8", "replace")
        if kind != b"form-data" or not name:
            raise InvalidRequest("Every part of the form needs a Content-Disposition with a name.")
        if name == self._file_field:
            if self.file_name is not None:
                raise InvalidRequest(f"{name!r} comes twice.", param=name)
            self._field, self.file_name = None, _label(options.get(b"filename", b""))
            return
        if name not in self._names:
            raise InvalidRequest(
                f"Unknown parameter: {shorten(name)!r}.", param=shorten(name), code="unknown_parameter"
            )
        if name in self.fields:
            raise InvalidRequest(f"{name!r} comes twice.", param=name)
        self._field = name

    def _add(self, data: bytes, start: int, end: int) -> None:
        if self._field is None:
            self._pieces.append(data[start:end])
            self.num_file_bytes += end - start
            return
        self._value += data[start:end]
        if len(self._value) > MAX_FIELD_BYTES:
            raise InvalidRequest(f"{self._field!r} is longer than {MAX_FIELD_BYTES} bytes.", param=self._field)

    def _close(self) -> None:
        if self._field is not None:
            try:
                self.fields[self._field] = self._value.decode()
            except UnicodeDecodeError:
                raise InvalidRequest(f"{self._field!r} is not valid UTF-8.", param=self._field) from None

    def _end(self) -> None:
        self.is_over = True


def _label(name: bytes) -> str:
    """What a client calls a file: shown, never a path. Without folders and without what is no text."""
    text = name.decode("utf-8", "replace").replace("\\", "/").rpartition("/")[2]
    return "".join(c for c in text if c.isprintable())[:MAX_FILE_NAME] or _UNNAMED


def form_reader(scope: Scope, names: Collection[str]) -> FormReader:
    """Raises UnsupportedMedia where the request has no form, InvalidRequest where its boundary is none."""
    headers = Headers(scope=scope)
    types = headers.getlist("content-type") or [""]
    media, options = parse_options_header(types[0].encode("latin-1"))
    if media != FORM_MEDIA or len(types) != 1:
        raise UnsupportedMedia("Send the file as a form, with the header Content-Type: multipart/form-data.")
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise UnsupportedMedia("A Content-Encoding is not supported; send the body uncompressed.")
    boundary = options.get(b"boundary", b"")
    if not 1 <= len(boundary) <= 70:
        raise InvalidRequest("The form needs a boundary of 1 to 70 characters.")
    return FormReader(boundary, names)


async def read_form(receive: Receive, reader: FormReader, write: Callable[[bytes], Awaitable[None]]) -> None:
    """Read until the form is whole. Raises ClientGone, InvalidRequest, RequestTimeout, and what `write` raises."""
    began, num_bytes, more = time.monotonic(), 0, True
    while more:
        try:
            async with asyncio.timeout(RECEIVE_SECONDS):
                message = await receive()
        except TimeoutError:
            raise RequestTimeout(f"Nothing of the form arrived for {RECEIVE_SECONDS:.0f} seconds.") from None
        if message["type"] == "http.disconnect":
            raise ClientGone
        data, more = message.get("body", b""), message.get("more_body", False)
        num_bytes += len(data)
        reader.feed(data)
        if reader.num_file_bytes >= PIECE_BYTES:
            await write(reader.take())
        seconds = time.monotonic() - began
        if more and seconds > SLOW_SECONDS and num_bytes < seconds * MIN_BYTES_PER_SECOND:
            raise RequestTimeout(f"The form arrives at less than {MIN_BYTES_PER_SECOND} bytes a second.")
    if not reader.is_over:
        raise InvalidRequest("The form ends too early.")
    await write(reader.take())
