"""The database file: opening it, its tables, its version, and that a damaged one is refused.

Knows SQLite and files, nothing of the objects inside.
"""

import logging
import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path

from proxy_inference_engine.errors import StartupError, StoreError

_logger = logging.getLogger(__name__)
VERSION = 2
BUSY_SECONDS = 5.0  # another process may hold the file this long before a write fails
CHECK_SECONDS = 10.0  # a file too big to be checked in this time is taken as it is
_WAL_BYTES = 16 * 1024 * 1024
_CHECKPOINT_PAGES = 4000  # a write empties a log this long itself; `checkpoints.py` does so long before
_CHECK_STEPS = 100_000  # of SQLite's machine between two looks at the clock
_DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})

# A row without a body was deleted. It remembers its place for pages that continue after it, and its turn for as long as
# another row has it as `previous`. The counts are kept by triggers, so that no way of adding or removing rows can
# forget them: a row counts while it holds anything.
_SCHEMA = """
CREATE TABLE schema (version INTEGER NOT NULL);
CREATE TABLE objects (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL,
    owner TEXT NOT NULL,
    parent TEXT NOT NULL,
    id TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at REAL NOT NULL,
    status TEXT NOT NULL,
    run TEXT NOT NULL,
    model TEXT,
    metadata TEXT NOT NULL,
    previous TEXT,
    place INTEGER,
    turn BLOB,
    extra BLOB,
    body BLOB,
    UNIQUE (kind, owner, parent, id)
);
CREATE INDEX objects_in_order ON objects (kind, owner, parent, seq);
CREATE INDEX objects_by_expiry ON objects (expires_at);
CREATE INDEX objects_unfinished ON objects (status) WHERE status IN ('queued', 'in_progress');
CREATE INDEX objects_following ON objects (owner, previous) WHERE previous IS NOT NULL AND place IS NULL;
CREATE TABLE owners (owner TEXT PRIMARY KEY, num_rows INTEGER NOT NULL) WITHOUT ROWID;
CREATE TRIGGER row_added AFTER INSERT ON objects BEGIN
    INSERT INTO owners VALUES (NEW.owner, 1) ON CONFLICT DO UPDATE SET num_rows = num_rows + 1;
END;
CREATE TRIGGER row_emptied AFTER UPDATE OF body, turn ON objects
    WHEN coalesce(OLD.body, OLD.turn) IS NOT NULL AND coalesce(NEW.body, NEW.turn) IS NULL BEGIN
    UPDATE owners SET num_rows = num_rows - 1 WHERE owner = NEW.owner;
END;
CREATE TRIGGER row_removed AFTER DELETE ON objects WHEN coalesce(OLD.body, OLD.turn) IS NOT NULL BEGIN
    UPDATE owners SET num_rows = num_rows - 1 WHERE owner = OLD.owner;
END;
"""


class _Damaged(Exception):
    """The file is not a whole database."""


def connect(path: Path | None, *, max_pages: int | None = None) -> sqlite3.Connection:
    """A connection in autocommit; commits reach the disk before they return. None: a database in memory."""
    target = ":memory:" if path is None else str(path)
    connection = sqlite3.connect(target, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute(f"PRAGMA journal_size_limit={_WAL_BYTES}")
        connection.execute(f"PRAGMA wal_autocheckpoint={_CHECKPOINT_PAGES}")
        if max_pages is not None:
            connection.execute(f"PRAGMA max_page_count={max_pages}")
        if path is None:
            create_tables(connection)
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


def store_error(error: Exception) -> Exception:
    """What a caller is told about a failed statement; the cause goes to the log."""
    if not isinstance(error, sqlite3.Error):
        return error
    _logger.warning("the store failed", extra={"fields": {"reason": str(error)}})
    if primary_code(error) == sqlite3.SQLITE_FULL:
        return StoreError(
            "The server has no room left to store this; delete stored objects, or send store: false.",
            code="storage_full",
        )
    return StoreError("The server's storage does not work at the moment; store: false works without it.")


def primary_code(error: sqlite3.Error) -> int:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    assert isinstance(code, int)
    return code & 0xFF


def create_tables(connection: sqlite3.Connection) -> None:
    """All tables or none. Raises StartupError when the file is of another version."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'schema'").fetchone():
            for statement in _statements(_SCHEMA):
                connection.execute(statement)
            connection.execute("INSERT INTO schema VALUES (?)", (VERSION,))
        (version,) = connection.execute("SELECT version FROM schema").fetchone() or (0,)
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    if version != VERSION:
        raise StartupError(
            f"the stored objects are of version {version}, this program reads {VERSION}: "
            "set PIE_DATA_DIR to another folder, or use the program that wrote them"
        )


def _statements(script: str) -> list[str]:
    """`executescript` would commit on its own."""
    statements, text = [], ""
    for line in script.splitlines(keepends=True):
        text += line
        if sqlite3.complete_statement(text):
            statements.append(text)
            text = ""
    return statements


def _make_private(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # SQLite gives its other files the permissions of this one.
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))


def _check(path: Path) -> None:
    try:
        with closing(connect(path)) as connection:
            _check_pages(connection)
            create_tables(connection)
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
