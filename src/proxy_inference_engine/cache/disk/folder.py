"""The folder of the disk tier: files appear in it whole or not at all, and only their owner can read them.

One process at a time has it. Names are random, so that they tell nothing. Every call may wait for the disk.
"""

import fcntl
import logging
import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from proxy_inference_engine.cache.disk.file import Header, read_header, read_pieces, write_file
from proxy_inference_engine.runners.base import Packed

_log = logging.getLogger(__name__)

_SUFFIX, _UNFINISHED, _LOCK = ".kv", ".part", "lock"


class Stored(NamedTuple):
    """A file that lies in the folder."""

    name: str
    num_bytes: int
    used_at: float
    header: Header


class Folder:
    """Methods raise OSError, and ValueError for a file that is damaged or not what it should be."""

    def __init__(self, path: Path) -> None:
        """Raises OSError where the folder cannot be made or is another process's."""
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.chmod(path, 0o700)
        self._path = path
        self._lock = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise

    @staticmethod
    def new_name() -> str:
        return secrets.token_hex(16)

    def scan(self) -> Iterator[Stored]:
        """Every sound file; what is left of writes that were cut off, and what is damaged, is removed."""
        for path in list(self._path.iterdir()):
            if path.suffix == _UNFINISHED:
                path.unlink(missing_ok=True)
            elif path.suffix == _SUFFIX:
                found = self._look(path)
                if found is not None:
                    yield found

    def _look(self, path: Path) -> Stored | None:
        try:
            header, facts = read_header(path), path.stat()
            return Stored(path.stem, facts.st_size, facts.st_mtime, header)
        except ValueError as error:
            _log.info("removed %s from the disk cache: %s", path.name, error)
            path.unlink(missing_ok=True)
        except OSError as error:
            _log.info("left %s of the disk cache alone: %s", path.name, error)
        return None

    def write(self, name: str, header: Header, data: Sequence[Packed], may_go_on: Callable[[], bool]) -> None:
        """Write a file whole. Raises Stopped too; then nothing is left of the file."""
        unfinished = self._path / (name + _UNFINISHED)
        try:
            write_file(unfinished, header, data, may_go_on)
            unfinished.replace(self._place(name))
        except BaseException:
            with suppress(OSError):
                unfinished.unlink(missing_ok=True)
            raise

    def read(self, name: str, header: Header, first: int, stop: int) -> list[Packed]:
        return read_pieces(self._place(name), header, first, stop)

    def touch(self, name: str, used_at: float | None = None) -> None:
        """Note when a file was used (None: now): the order of use has to survive a restart."""
        at = time.time() if used_at is None else used_at
        os.utime(self._place(name), (at, at))

    def remove(self, name: str) -> None:
        self._place(name).unlink(missing_ok=True)

    def close(self) -> None:
        """Let another process have the folder."""
        os.close(self._lock)

    def _place(self, name: str) -> Path:
        return self._path / (name + _SUFFIX)
