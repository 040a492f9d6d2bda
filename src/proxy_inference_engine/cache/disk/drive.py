"""The threads that wait for the disk, so that nobody else does: one writes, one reads. Knows files, no tree.

Orders go in from the engine's thread, which takes the outcomes when it likes. A reader never waits for the writer.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol

from proxy_inference_engine.cache.disk.file import Header, Stopped
from proxy_inference_engine.cache.disk.folder import Folder, Stored
from proxy_inference_engine.runners.base import Packed

_log = logging.getLogger(__name__)

_MAX_PENDING_BYTES = 256 << 20  # of writes; one that is larger is taken when nothing else waits
_MAX_PENDING_READS = 32
_CLOSE_SECONDS = 1.0


class Wanted(NamedTuple):
    """Some pieces of a file."""

    name: str
    header: Header
    first: int
    stop: int


class Written(NamedTuple):
    name: str
    is_done: bool


class Read(NamedTuple):
    """`data`: the pieces of each wanted file up to the first that was no good, which is `bad`."""

    ticket: int
    data: list[list[Packed]]
    bad: str | None


class Scanned(NamedTuple):
    files: list[Stored]


Outcome = Written | Read | Scanned


class Drive(Protocol):
    """What the tier wants of a disk. Nothing here waits, except `close`, and `outcomes` where it may."""

    def new_name(self) -> str: ...

    def can_write(self, num_bytes: int) -> bool: ...

    def write(self, name: str, header: Header, data: Sequence[Packed]) -> None:
        """Begin to write a file, which ends in a Written. `data` has to stay as it is until then."""
        ...

    def can_read(self) -> bool: ...

    def read(self, ticket: int, wanted: Sequence[Wanted]) -> None:
        """Begin to read pieces of files, which ends in a Read; what was read counts as used now."""
        ...

    def touch(self, name: str, used_at: float) -> None:
        """Note when a file was last used, after the writes that were ordered before."""
        ...

    def remove(self, name: str) -> None:
        """Remove a file, after the writes that were ordered before."""
        ...

    def outcomes(self, wait_s: float) -> list[Outcome]:
        """What was done since the last call; waits so long at most for the first outcome."""
        ...

    def close(self, seconds: float) -> None:
        """Finish what is ordered as far as the time allows, then let go of the disk."""
        ...


class ThreadedDrive:
    """Implements `Drive` over a folder. What lies in it comes as the first outcome."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        self._writes: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._reads: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._pending_bytes = 0
        self._deadline = float("inf")
        self._writes.put(self._scan)
        self._threads = [
            threading.Thread(target=_work, args=(orders,), name=name, daemon=True)
            for orders, name in ((self._writes, "disk-writer"), (self._reads, "disk-reader"))
        ]
        for thread in self._threads:
            thread.start()

    def new_name(self) -> str:
        return self._folder.new_name()

    def can_write(self, num_bytes: int) -> bool:
        return self._pending_bytes == 0 or self._pending_bytes + num_bytes <= _MAX_PENDING_BYTES

    def write(self, name: str, header: Header, data: Sequence[Packed]) -> None:
        self._add(header.num_bytes)
        self._writes.put(lambda: self._write(name, header, data))

    def can_read(self) -> bool:
        return self._reads.qsize() < _MAX_PENDING_READS

    def read(self, ticket: int, wanted: Sequence[Wanted]) -> None:
        self._reads.put(lambda: self._read(ticket, wanted))

    def touch(self, name: str, used_at: float) -> None:
        self._writes.put(lambda: self._touch(name, used_at))

    def remove(self, name: str) -> None:
        self._writes.put(lambda: self._folder.remove(name))

    def outcomes(self, wait_s: float) -> list[Outcome]:
        found: list[Outcome] = []
        try:
            if wait_s > 0:
                found.append(self._outcomes.get(timeout=wait_s))
            while True:
                found.append(self._outcomes.get_nowait())
        except queue.Empty:
            return found

    def close(self, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds
        self._reads.put(None)
        self._writes.put(None)
        for thread in self._threads:
            thread.join(max(0.0, self._deadline - time.monotonic()) + _CLOSE_SECONDS)
        self._folder.close()

    def _add(self, num_bytes: int) -> None:
        with self._lock:
            self._pending_bytes += num_bytes

    # The writer's thread

    def _scan(self) -> None:
        files: list[Stored] = []
        try:
            files.extend(self._folder.scan())
        finally:
            self._outcomes.put(Scanned(files))

    def _write(self, name: str, header: Header, data: Sequence[Packed]) -> None:
        is_done = False
        try:
            self._folder.write(name, header, data, lambda: time.monotonic() < self._deadline)
            is_done = True
        except Stopped:
            _log.info("no more time to write to the disk cache")
        finally:
            self._add(-header.num_bytes)
            self._outcomes.put(Written(name, is_done))

    def _touch(self, name: str, used_at: float) -> None:
        with suppress(FileNotFoundError):  # it could not be written
            self._folder.touch(name, used_at)

    # The reader's thread

    def _read(self, ticket: int, wanted: Sequence[Wanted]) -> None:
        data: list[list[Packed]] = []
        bad: str | None = None
        try:
            for name, header, first, stop in wanted:
                bad = name
                data.append(self._folder.read(name, header, first, stop))
                bad = None
                with suppress(OSError):
                    self._folder.touch(name)
        finally:
            self._outcomes.put(Read(ticket, data, bad))


def _work(orders: "queue.SimpleQueue[Callable[[], None] | None]") -> None:
    while (order := orders.get()) is not None:
        try:
            order()
        except Exception as error:  # a full disk, a damaged file: never a reason to stop
            _log.warning("disk cache: %s: %s", type(error).__name__, error)
