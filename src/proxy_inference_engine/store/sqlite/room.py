"""Room on the disk that is kept back, so that something can still be deleted when there is no other.

To delete is to write, first to the log. On a full disk the reserve is given up for that, and from then on the database
uses the pages inside its file that were freed and does not grow: so the log can always be emptied into it, and what is
deleted makes room for what is stored. When the disk has room again, so has the reserve, and the file may grow.
"""

import logging
import os
import sqlite3
import time
from contextlib import suppress
from pathlib import Path

from proxy_inference_engine.store.database import StoreConnection

_logger = logging.getLogger(__name__)
RESERVED_BYTES = 8 * 1024 * 1024  # for the log of many deletions, and for what the log still has to bring into the file
_FREED_PAGES = 32  # with fewer there is nothing to store into
_PAUSE_SECONDS = 0.005
_NO_LIMIT = 2**30  # pages; SQLite makes it what it can


class Room:
    """Beside the database at `path`, which may never have more than `max_pages`."""

    def __init__(self, path: Path, max_pages: int | None = None, busy_seconds: float = 0.0) -> None:
        """`busy_seconds`: how long somebody else may be emptying the log."""
        self._file = path.with_name(path.name + ".reserve")
        self._max_pages = max_pages or _NO_LIMIT
        self._busy_seconds = busy_seconds
        self._is_tight = False

    def keep(self, connection: StoreConnection) -> None:
        """Hold the reserve if there is room for it. Outside a transaction."""
        if self._reserve() and self._is_tight:
            self._is_tight = False
            connection.execute(f"PRAGMA max_page_count={self._max_pages}")
            _logger.warning("the disk of the stored objects has room again")

    def make(self, connection: StoreConnection, *, frees: bool) -> bool:
        """Make room after a write did not fit: whether it may fit now. `frees`: it deletes. Outside a transaction."""
        if not frees and _pragma(connection, "freelist_count") < _FREED_PAGES:
            return False
        if not self._is_tight:
            self._is_tight = True
            _logger.warning("the disk of the stored objects is full")
        with suppress(OSError):
            self._file.unlink(missing_ok=True)
        connection.execute(f"PRAGMA max_page_count={_pragma(connection, 'page_count')}")
        with suppress(sqlite3.Error):
            _empty_log(connection, self._busy_seconds)
        return True

    def _reserve(self) -> bool:
        try:
            if self._file.exists():
                return True
            descriptor = os.open(self._file, os.O_CREAT | os.O_WRONLY, 0o600)
            try:
                _fill(descriptor)
            finally:
                os.close(descriptor)
        except OSError:
            with suppress(OSError):
                self._file.unlink(missing_ok=True)
            return False
        return True


def _empty_log(connection: StoreConnection, busy_seconds: float) -> None:
    """Let the log begin anew, in the room it has. Whoever else empties it comes first, and SQLite does not wait."""
    deadline = time.monotonic() + busy_seconds
    while connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()[0] and time.monotonic() < deadline:
        time.sleep(_PAUSE_SECONDS)


def _fill(descriptor: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, RESERVED_BYTES)
        return
    for _ in range(RESERVED_BYTES // 65536):
        os.write(descriptor, bytes(65536))


def _pragma(connection: StoreConnection, name: str) -> int:
    (value,) = connection.execute(f"PRAGMA {name}").fetchone()
    return int(value)
