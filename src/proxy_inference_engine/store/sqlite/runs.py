"""Which processes use a database now. Each holds a lock on a file of its own for as long as it lives.

SQLite's lock on an empty database is used: it works everywhere and ends with the process, however that ends.
"""

import contextlib
import os
import secrets
import sqlite3
from pathlib import Path

from proxy_inference_engine.store.database import StoreConnection

_MARK = ".run-"
_ID_CHARS = 16


class FileRun:
    """This process's use of the database at `path`."""

    def __init__(self, path: Path) -> None:
        self.id = secrets.token_hex(_ID_CHARS // 2)
        self._path = path
        self._file = path.with_name(path.name + _MARK + self.id)
        self._lock: sqlite3.Connection | None = None

    def begin(self, connection: StoreConnection) -> None:
        """Call it inside a write transaction, as `alive`: nobody takes a file for a dead one's before it is locked."""
        os.close(os.open(self._file, os.O_CREAT | os.O_RDWR, 0o600))
        self._lock = _lock(self._file)

    def is_dead(self, connection: StoreConnection, id_: str) -> bool:
        """Whether a run that has written something, so that it had begun, is gone. Needs no transaction."""
        if id_ == self.id:
            return False
        file = self._path.with_name(self._path.name + _MARK + id_)
        try:
            if file.exists():
                _lock(file).close()
        except sqlite3.OperationalError:
            return False
        return True

    def alive(self, connection: StoreConnection) -> set[str]:
        """This run, and the others that are still alive. What the dead left behind is removed."""
        alive = {self.id}
        for file in self._path.parent.glob(self._path.name + _MARK + "?" * _ID_CHARS):
            if file == self._file:
                continue
            try:
                lock = _lock(file)
            except sqlite3.OperationalError:
                alive.add(file.name.rpartition(_MARK)[2])
            else:
                lock.close()
                file.unlink(missing_ok=True)
        return alive

    def end(self) -> None:
        if self._lock is not None:
            self._lock.close()
        with contextlib.suppress(OSError):
            self._file.unlink(missing_ok=True)


def _lock(file: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(file, timeout=0, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode=OFF")
        connection.execute("BEGIN EXCLUSIVE")
    except BaseException:
        connection.close()
        raise
    return connection
