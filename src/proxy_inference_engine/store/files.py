"""What clients upload and batches write, as files in one folder: bounded, and whole or not there at all.

Knows bytes and names that we made. Which of them exist, and whose they are, is in the store: a file without an object
there was cut off by a crash, and is removed.
"""

import os
import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from proxy_inference_engine.errors import QuotaExceeded, StoreError, TooLarge

_MIB = 1024 * 1024
_PART = ".part"  # of a name: the file is still being written
LOST_SECONDS = 3600.0  # a file that was not touched for so long, and has no object, never gets one


@dataclass(frozen=True, slots=True)
class FileLimits:
    """How many bytes of files may be kept."""

    of_one: int = 200 * _MIB
    of_owner: int = 1024 * _MIB
    of_all: int = 10 * 1024 * _MIB


class NewFile:
    """A file that is being written. Nobody sees it before `finish`. For threads: it waits for the disk."""

    def __init__(self, path: Path, max_bytes: int, room: int) -> None:
        """`room`: bytes that its owner may still have."""
        self.num_bytes = 0
        self._max_bytes = max_bytes
        self._room = room
        self._path = path
        self._part = path.with_name(path.name + _PART)
        self._descriptor = os.open(self._part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)

    def reserve(self, num_bytes: int) -> None:
        """Take room for so many bytes, as announced: others find it taken."""
        os.truncate(self._descriptor, min(num_bytes, self._max_bytes, self._room))

    def write(self, data: bytes) -> None:
        """Raises TooLarge, QuotaExceeded and StoreError."""
        self.num_bytes += len(data)
        if self.num_bytes > self._max_bytes:
            raise too_many_bytes(self._max_bytes)
        if self.num_bytes > self._room:
            raise no_room()
        with _told():
            _write(self._descriptor, data)

    def finish(self) -> None:
        """Put the file on the disk under its name, for good when this returns. Raises StoreError."""
        with _told():
            os.truncate(self._descriptor, self.num_bytes)
            os.fsync(self._descriptor)
            self._close()
            self._part.rename(self._path)
            sync_folder(self._path.parent)

    def abandon(self) -> None:
        """Harmless when it is finished or abandoned."""
        self._close()
        self._part.unlink(missing_ok=True)

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class Held(NamedTuple):
    owner: str
    name: str
    num_bytes: int
    written_at: float


class FileFolder:
    """One folder an owner, named like the owner's key. `path` None: somewhere, until the process ends.

    The methods wait for the disk, so they belong into a thread; any thread will do.
    """

    def __init__(self, path: Path | None, limits: FileLimits) -> None:
        self.limits = limits
        self._path = path
        self._lock = threading.Lock()

    def path(self, owner: str, name: str) -> Path:
        """Where a file is or will be. Both are names of ours: nothing that a client wrote becomes a path."""
        return self._root / owner / name

    @property
    def _root(self) -> Path:
        with self._lock:
            if self._path is None:
                self._path = Path(tempfile.mkdtemp(prefix="pie-files-"))
                weakref.finalize(self, shutil.rmtree, self._path, ignore_errors=True)
        return self._path

    def create(self, owner: str, name: str, num_announced: int = 0) -> NewFile:
        """Raises TooLarge, QuotaExceeded and StoreError."""
        if num_announced > self.limits.of_one:
            raise too_many_bytes(self.limits.of_one)
        room = self.room(owner)
        if num_announced >= room:
            raise no_room()
        with _told():
            path = self.path(owner, name)
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            file = NewFile(path, self.limits.of_one, room)
            file.reserve(num_announced)
        return file

    def room(self, owner: str) -> int:
        """Bytes that an owner may still have, beside those that are being written now."""
        num_own = num_all = 0
        for held in self.held():
            num_all += held.num_bytes
            num_own += held.num_bytes if held.owner == owner else 0
        return max(0, min(self.limits.of_owner - num_own, self.limits.of_all - num_all))

    def overflows(self, owner: str) -> bool:
        """Whether an owner, or all together, have more than they may: several files were written at once."""
        sizes = [(held.owner == owner, held.num_bytes) for held in self.held()]
        num_own = sum(num_bytes for is_own, num_bytes in sizes if is_own)
        return num_own > self.limits.of_owner or sum(num_bytes for _, num_bytes in sizes) > self.limits.of_all

    def held(self) -> Iterator[Held]:
        """All files there are, those that are being written too."""
        for folder in _entries(self._root):
            for entry in _entries(Path(folder.path)) if folder.is_dir(follow_symlinks=False) else ():
                with suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    yield Held(folder.name, entry.name, status.st_size, status.st_mtime)

    def lost(self, now: float | None = None) -> list[Held]:
        """Files that were not touched for long: those among them that have no object are nobody's."""
        before = (time.time() if now is None else now) - LOST_SECONDS
        return [held for held in self.held() if held.written_at < before]

    def delete(self, owner: str, name: str) -> None:
        """Harmless where there is none."""
        with suppress(OSError):
            self.path(owner, name).unlink(missing_ok=True)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def append_line(path: Path, line: bytes) -> None:
    """Add a line that outlives the process, and a loss of power once `sync` has returned. Raises StoreError.

    Then nothing of it is there: on a full disk a part would be, and the next line behind it. One at a time.
    """
    with _told():
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        try:
            num_bytes = os.fstat(descriptor).st_size
            try:
                _write(descriptor, line)
            except OSError:
                os.truncate(descriptor, num_bytes)
                raise
        finally:
            os.close(descriptor)


def sync(path: Path) -> None:
    """Harmless where there is no such file."""
    with suppress(FileNotFoundError), _told():
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def sync_folder(folder: Path) -> None:
    if os.name == "posix":
        sync(folder)


class _told:
    """What the disk says, as a client may hear it."""

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
            raise StoreError("The server has no room for this file, or its disk does not work.", code="storage_full")


def too_many_bytes(max_bytes: int) -> TooLarge:
    return TooLarge(f"The file is larger than {max_bytes} bytes, as many as it may have here.", param="file")


def no_room() -> QuotaExceeded:
    return QuotaExceeded("The files of this key, or of all keys, have as many bytes as they may: delete some.")
