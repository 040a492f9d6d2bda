"""The database file: opening it, that a damaged one is refused, and what its errors mean.

Knows SQLite and files, nothing of the objects inside.
"""

import logging
import os
import sqlite3
import time
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from pathlib import Path

from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.store.database import StoreConnection, broken, full
from proxy_inference_engine.store.migrations import SQLITE, Dialect, migrate
from proxy_inference_engine.store.sqlite.checkpoints import Checkpoints
from proxy_inference_engine.store.sqlite.room import Room
from proxy_inference_engine.store.sqlite.runs import FileRun

_logger = logging.getLogger(__name__)
BUSY_SECONDS = 5.0  # another process may hold the file this long before a write fails
CHECK_SECONDS = 10.0  # a file too big to be checked in this time is taken as it is
TIDY_SECONDS = 60.0
_NUM_READERS = 2
_WAL_BYTES = 16 * 1024 * 1024
_CHECKPOINT_PAGES = 4000  # a write empties a log this long itself; `checkpoints.py` does so long before
_CHECKPOINT_COMMITS = 16  # few enough that a checkpoint is short, many enough that there are few of them
_CHECK_STEPS = 100_000  # of SQLite's machine between two looks at the clock
_DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_OF_ONE = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH})


class _Damaged(Exception):
    """The file is not a whole database."""


class SqliteDatabase:
    """The database in the file `path`; None: in memory, on one connection, which is then the only one."""

    def __init__(self, path: Path | None, max_pages: int | None = None) -> None:
        self.path = path
        self.num_readers = _NUM_READERS
        self.tidy_seconds = TIDY_SECONDS
        self.run = None if path is None else FileRun(path)
        self._max_pages = max_pages
        self._memory: sqlite3.Connection | None = None
        self._checkpoints = None if path is None else Checkpoints(self._connected, self.shown)
        self._room = None if path is None else Room(path, max_pages, BUSY_SECONDS)
        self._num_commits = 0  # since the last checkpoint

    def prepare(self) -> None:
        if self.path is None:
            self._memory = connect(None)
        else:
            prepare(self.path)

    def connect(self, *, reads: bool = False) -> sqlite3.Connection:
        connection = self._connected()
        if reads:
            connection.execute("PRAGMA query_only=ON")
        elif self._max_pages is not None:
            connection.execute(f"PRAGMA max_page_count={self._max_pages}")
        return connection

    def _connected(self) -> sqlite3.Connection:
        return connect(self.path) if self._memory is None else self._memory

    def is_lost(self, connection: StoreConnection) -> bool:
        return False

    def begin(self, connection: StoreConnection, owners: Collection[str] | None) -> None:
        connection.execute("BEGIN IMMEDIATE")

    def batch(self, connection: StoreConnection) -> AbstractContextManager[None]:
        return nullcontext()

    def commit(self, connection: StoreConnection) -> None:
        connection.execute("COMMIT")
        self._num_commits += 1
        if self._num_commits >= _CHECKPOINT_COMMITS and self._checkpoints is not None and self.may_tidy:
            self._num_commits = 0
            self._checkpoints.begin()

    @property
    def may_tidy(self) -> bool:
        """Whether to tidy up now: it can wait for the end of a checkpoint, and the log does not grow meanwhile."""
        return self._checkpoints is None or not self._checkpoints.is_running

    @contextmanager
    def tidying(self, connection: StoreConnection) -> Iterator[None]:
        # What is tidied away once more after a power cut harms nobody, and writes do not wait for the disk here.
        connection.execute("PRAGMA synchronous=NORMAL")
        try:
            yield
        finally:
            connection.execute("PRAGMA synchronous=FULL")
        if self._room is not None:
            self._room.keep(connection)

    def recover(self, connection: StoreConnection, error: Exception, *, frees: bool) -> bool:
        is_full = isinstance(error, sqlite3.Error) and primary_code(error) == sqlite3.SQLITE_FULL
        return is_full and self._room is not None and self._room.make(connection, frees=frees)

    def is_of_one(self, error: Exception) -> bool:
        return not isinstance(error, sqlite3.Error) or primary_code(error) in _OF_ONE

    def shown(self, error: Exception) -> Exception:
        if not isinstance(error, sqlite3.Error):
            return error
        return (full if primary_code(error) == sqlite3.SQLITE_FULL else broken)(str(error))

    def close(self, connection: StoreConnection | None) -> None:
        if self._checkpoints is not None:
            self._checkpoints.close()
        for each in (connection, self._memory):
            if each is not None:
                each.close()
        if self.run is not None:
            self.run.end()


def connect(path: Path | None) -> sqlite3.Connection:
    """A connection in autocommit; commits reach the disk before they return. None: a new database in memory."""
    target = ":memory:" if path is None else str(path)
    connection = sqlite3.connect(target, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute(f"PRAGMA journal_size_limit={_WAL_BYTES}")
        connection.execute(f"PRAGMA wal_autocheckpoint={_CHECKPOINT_PAGES}")
        if path is None:
            migrate(connection, DIALECT)
    except BaseException:
        connection.close()
        raise
    return connection


def prepare(path: Path) -> None:
    """Leave a whole database of our version at `path`. Raises StartupError when that cannot be."""
    try:
        _make_private(path)
        _check(path)
    except _Damaged as damage:
        raise StartupError(
            f"the stored objects in {path} are damaged ({damage}) and were left as they are: move the file away to "
            "start with an empty one, or set PIE_DATA_DIR to another folder"
        ) from None
    except (OSError, sqlite3.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise StartupError(
            f"cannot keep stored objects in {path}: {reason}; set PIE_DATA_DIR to a folder this user may write to"
        ) from None


def primary_code(error: sqlite3.Error) -> int:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    assert isinstance(code, int)
    return code & 0xFF


def _run_script(connection: StoreConnection, script: str) -> None:
    """Statement by statement, since `executescript` would commit on its own."""
    text = ""
    for line in script.splitlines(keepends=True):
        text += line
        if sqlite3.complete_statement(text):
            connection.execute(text)
            text = ""


DIALECT = Dialect(SQLITE, lambda connection: connection.execute("BEGIN IMMEDIATE"), _run_script)


def _make_private(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # SQLite gives its other files the permissions of this one.
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))


def _check(path: Path) -> None:
    try:
        with closing(connect(path)) as connection:
            _check_pages(connection)
            migrate(connection, DIALECT)
    except sqlite3.DatabaseError as error:
        if primary_code(error) in _DAMAGE:
            raise _Damaged(str(error)) from None
        raise


def _check_pages(connection: sqlite3.Connection) -> None:
    deadline = time.monotonic() + CHECK_SECONDS
    connection.set_progress_handler(lambda: time.monotonic() > deadline, _CHECK_STEPS)
    try:
        (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.OperationalError as error:
        if primary_code(error) != sqlite3.SQLITE_INTERRUPT:
            raise
        _logger.info("the stored objects are too many to be checked at every start")
        return
    finally:
        connection.set_progress_handler(None, 0)
    if verdict != "ok":
        raise _Damaged(verdict.replace("\n", " "))
