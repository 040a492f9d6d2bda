"""A storage server for hf-xet on this machine: one file, cut into chunks, as its protocol describes it.

https://huggingface.co/docs/xet: /v1/reconstructions/{file} says which chunks of which xorb make up a range of a file;
a xorb is a run of chunks, each with a header of eight bytes.
"""

import json
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

CHUNK_BYTES = 64 << 10
_XORB = "ab" * 32
_STORED = 0  # not compressed


class Storage:
    """What it has, what it was asked for, and what goes wrong."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.asked: list[tuple[str, str | None]] = []  # paths and ranges
        self.tokens: set[str | None] = set()
        self.fails_after: int | None = None  # so many ranges of the file are explained, no more
        self.port = 0

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def chunks(self) -> list[bytes]:
        return [self.data[start : start + CHUNK_BYTES] for start in range(0, len(self.data), CHUNK_BYTES)]

    def explain(self, start: int, end: int) -> dict[str, Any]:
        """Which chunks a range of the file lies in, and where their bytes are."""
        first, last = start // CHUNK_BYTES, -(-end // CHUNK_BYTES)
        packed = [len(chunk) + 8 for chunk in self.chunks]
        chunk_range = {"start": first, "end": last}
        where = {
            "range": chunk_range,
            "url": f"{self.endpoint}/xorb",
            "url_range": {"start": sum(packed[:first]), "end": sum(packed[:last]) - 1},
        }
        length = sum(map(len, self.chunks[first:last]))
        return {
            "offset_into_first_range": start - first * CHUNK_BYTES,
            "terms": [{"hash": _XORB, "unpacked_length": length, "range": chunk_range}],
            "fetch_info": {_XORB: [where]},
        }

    def xorb(self) -> bytes:
        return b"".join(_header(chunk) + chunk for chunk in self.chunks)


def _header(chunk: bytes) -> bytes:
    length = struct.pack("<I", len(chunk))[:3]
    return b"\0" + length + bytes([_STORED]) + length


@contextmanager
def storing(data: bytes) -> Iterator[Storage]:
    storage = Storage(data)

    class Handler(_StorageHandler):
        state = storage

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        storage.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield storage
        finally:
            server.shutdown()
            thread.join()


class _StorageHandler(BaseHTTPRequestHandler):
    state: Storage

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is logged."""

    def do_POST(self) -> None:
        """What the library tells about itself."""
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._answer(200, b"{}")

    def do_GET(self) -> None:
        storage = self.state
        wanted = self.headers.get("Range")
        storage.asked.append((self.path, wanted))
        start, end = 0, len(storage.data)
        if wanted is not None:
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            start, end = int(first), int(last) + 1
        if self.path == "/xorb":
            return self._answer(206, storage.xorb()[start:end])
        if not self.path.startswith("/v1/reconstructions/"):
            return self._answer(404, b"")
        storage.tokens.add(self.headers.get("Authorization"))
        if storage.fails_after == 0:
            return self._answer(403, b"")
        if storage.fails_after is not None:
            storage.fails_after -= 1
        if start >= len(storage.data):
            return self._answer(416, b"")
        self._answer(200, json.dumps(storage.explain(start, min(end, len(storage.data)))).encode())

    def _answer(self, status: int, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
