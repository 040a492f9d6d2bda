"""A large file whose pieces come in any order: its bytes with gaps, and behind them a note of which have come.

The note is written after the bytes it speaks of, so whatever ends the program, what it says is there. The name is not
that of a file that is filled from its beginning: other tools take such a one for content up to its length.
"""

import contextlib
import hashlib
import json
import os
import threading
from io import FileIO
from pathlib import Path
from typing import Any

from proxy_inference_engine.models.download.listing import RemoteFile
from proxy_inference_engine.models.download.spans import Span, Spans

_NOTE_BYTES = 4096
_DIGESTED_BYTES = 8 << 20


class ScatteredFile:
    """Open for writing, by any thread until it is closed. The file is locked by whoever opens it."""

    def __init__(self, path: Path, file: RemoteFile, noted_bytes: int) -> None:
        self._file = file
        self._noted_bytes = noted_bytes  # so much comes between two notes
        self._num_unnoted = 0
        self._digest, self._num_digested = hashlib.sha256(), 0
        self._lock = threading.Lock()
        self.is_closed = False
        path.touch()
        self.tag, self.spans = read_note(path, file)
        self._target: FileIO = path.open("r+b", buffering=0)
        try:
            self._note()  # before the first gap: without a note the file counts as filled from its beginning
        except OSError:
            self._target.close()
            raise

    def write(self, start: int, chunk: bytes) -> bool:
        """Raises OSError. False once the file is closed: whoever writes has to stop."""
        with self._lock:
            if self.is_closed:
                return False
            self._target.seek(start)
            view = memoryview(chunk)
            while view:
                view = view[self._target.write(view) :]
            self.spans.add(Span(start, start + len(chunk)))
            self._num_unnoted += len(chunk)
            if self._num_unnoted >= self._noted_bytes:
                self._note()
            return True

    def digest_some(self) -> bool:
        """Follow the bytes that have come without a gap for a while; whether there is more to follow."""
        with self._lock:
            num_bytes = min(self.spans.prefix - self._num_digested, _DIGESTED_BYTES)
            self._target.seek(self._num_digested)
            chunk = self._target.read(num_bytes) if num_bytes else b""
        self._digest.update(chunk)
        self._num_digested += len(chunk)
        return len(chunk) > 0

    def finish(self) -> bool:
        """Whether the file is there and right. Nothing but its own bytes is left of it."""
        while self.digest_some():
            pass
        with self._lock:
            self.is_closed = True
            with self._target:
                self._target.truncate(self._file.size)
                os.fsync(self._target.fileno())
        return self._num_digested == self._file.size and self._digest.hexdigest() == self._file.digest

    def close(self) -> None:
        """Leave what has come, and a note of it."""
        with self._lock:
            if self.is_closed:
                return
            self.is_closed = True
            with self._target, contextlib.suppress(OSError):  # a full disk: the last note stands
                self._note()

    def _note(self) -> None:
        note = {"tag": self.tag, "spans": list(self.spans)}
        text = json.dumps(note).encode()
        if len(text) <= _NOTE_BYTES:  # more gaps than anybody makes: the last note stands
            self._target.seek(self._file.size)
            self._target.write(text.ljust(_NOTE_BYTES))
            self._num_unnoted = 0


def read_note(path: Path, file: RemoteFile) -> tuple[str | None, Spans]:
    """What an earlier run has left: the tag of the server's file, and which bytes are there. Nothing if in doubt."""
    try:
        with path.open("rb") as target:
            length = target.seek(0, os.SEEK_END)
            if length <= file.size:  # it was filled from its beginning
                return None, Spans([Span(0, length)] if length else [])
            target.seek(file.size)
            note = json.loads(target.read(_NOTE_BYTES + 1))
        return _tag(note), Spans(_span(each, file.size) for each in note["spans"])
    except (OSError, ValueError, KeyError, TypeError):
        return None, Spans()


def _tag(note: dict[str, Any]) -> str | None:
    if not isinstance(note["tag"], str | None):
        raise ValueError("no tag")
    return note["tag"]


def _span(pair: Any, size: int) -> Span:
    start, end = pair
    if not (type(start) is type(end) is int and 0 <= start < end <= size):
        raise ValueError("no span")
    return Span(start, end)
