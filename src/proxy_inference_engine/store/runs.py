"""Which processes use a database now. Each holds a lock on a file of its own for as long as it lives.

SQLite's lock on an empty database is used: it works everywhere and ends with the process, however that ends.
"""

import contextlib
import os
import secrets
import sqlite3
from pathlib import Path

_MARK = ".run-"
_ID_CHARS = 16


class Run:
    """This process's use of the database at `path`. Make one, and look at the others, inside a write transaction."""

    def __init__(self, path: Path) -> None:
        self.id = secrets.token_hex(_ID_CHARS // 2)
        self._path = path
        self._file = path.with_name(path.name + _MARK + self.id)
        os.close(os.open(self._file, os.O_CREAT | os.O_RDWR, 0o600))
        self._lock = _lock(self._file)

    def others(self) -> set[str]:
        """The runs that are still alive. What the dead left behind is removed."""
        alive = set()
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
