"""A large file over several connections at once. Threads fetch pieces; the calling one counts, checks and shows."""

import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue

from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models.download.listing import RemoteFile
from proxy_inference_engine.models.download.scattered import ScatteredFile
from proxy_inference_engine.models.download.source import Body, FileSource
from proxy_inference_engine.models.download.spans import Span
from proxy_inference_engine.models.download.web import ConnectionBroken

NUM_CONNECTIONS = 4
PIECE_BYTES = 32 << 20  # a request and its redirect are soon forgotten over so many
MAX_FAILURES = 5  # one after the other, without a byte between them


def large_bytes() -> int:
    """The size from which on several connections are worth it."""
    return 2 * PIECE_BYTES


class FileChanged(Exception):
    """The server has another file now than the one that was begun."""


class _Stopped(Exception):
    """Nobody waits for this thread any more."""


class Parallel:
    """One download of one file, which goes on from what is there."""

    def __init__(self, path: Path, file: RemoteFile, source: FileSource, advance: Callable[[int], None]) -> None:
        self._file = file
        self._source = source
        self._advance = advance
        self._target = ScatteredFile(path, file, PIECE_BYTES // 4)
        self._pieces = deque(self._target.spans.gaps(file.size, PIECE_BYTES))
        self._tag_lock = threading.Lock()
        # What the threads tell: bytes that came, an end, or why there is none.
        self._news: SimpleQueue[int | BaseException | None] = SimpleQueue()

    @property
    def num_present(self) -> int:
        return self._target.spans.num_bytes

    def run(self) -> bool:
        """Whether the file is there and right. Raises StartupError, OSError, RangesRefused and FileChanged; what has
        come by then stays."""
        num_running = min(NUM_CONNECTIONS, len(self._pieces))
        try:
            for _ in range(num_running):
                threading.Thread(target=self._work, name="download", daemon=True).start()
            while num_running:
                match self._news.get():
                    case None:
                        num_running -= 1
                    case int(num_bytes):
                        self._advance(num_bytes)
                        self._target.digest_some()
                    case error:
                        raise error
            return self._target.finish()
        finally:
            self._target.close()  # threads that still wait for bytes end with the next ones

    def _work(self) -> None:
        try:
            while True:
                try:
                    piece = self._pieces.popleft()
                except IndexError:
                    break
                self._fetch(piece)
            self._news.put(None)
        except BaseException as error:
            self._news.put(error)

    def _fetch(self, piece: Span) -> None:
        start, end = piece
        num_failures = 0
        while start < end:
            before = start
            if self._target.is_closed:
                raise _Stopped
            try:
                with self._source.open(self._file, start, end) as body:
                    self._compare(body)
                    for chunk in body.chunks():
                        start = self._take(chunk, start, end)
                if start < end:
                    raise ConnectionBroken("the connection ended early")
            except ConnectionBroken as error:
                num_failures = 1 if start > before else num_failures + 1
                if num_failures > MAX_FAILURES:
                    raise StartupError(
                        f"{self._file.path!r} does not come: {error}; the same command goes on from where it is"
                    ) from None
                self._source.pause(num_failures - 1, error)

    def _take(self, chunk: bytes, start: int, end: int) -> int:
        if start + len(chunk) > end:
            raise StartupError(
                f"{self._file.path!r} does not end after the {self._file.size} bytes that it should have"
            )
        if not self._target.write(start, chunk):
            raise _Stopped
        self._news.put(len(chunk))
        return start + len(chunk)

    def _compare(self, body: Body) -> None:
        """Raises FileChanged where the tag is another than that of the bytes that are there."""
        with self._tag_lock:
            if self._target.tag is None:
                self._target.tag = body.tag
            elif body.tag is not None and body.tag != self._target.tag:
                raise FileChanged
