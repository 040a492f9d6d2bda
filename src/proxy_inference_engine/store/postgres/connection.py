"""A connection to PostgreSQL that takes the statements of the store, and is cut when nothing answers any more."""

import os
import re
import socket
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from proxy_inference_engine.store.database import Values

_NAME = re.compile(r":([a-z_]\w*)")
# PostgreSQL's text has no NUL, and a client may send one in an id. No character of Unicode is this.
_NUL, _NO_NUL = "\0", "\ufffe"
_LOOK_SECONDS = 1.0


class PostgresRows:
    """Waits for the answer when something of it is wanted."""

    def __init__(self, cursor: "psycopg.Cursor[tuple[Any, ...]]", pipeline: psycopg.Pipeline | None) -> None:
        self._cursor = cursor
        self._pipeline = pipeline

    @property
    def rowcount(self) -> int:
        if self._pipeline is not None:
            self._pipeline.sync()
        return self._cursor.rowcount

    def fetchone(self) -> Any:
        return self._cursor.fetchone()

    def fetchall(self) -> list[Any]:
        return self._cursor.fetchall()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._cursor.fetchall())


class PostgresConnection:
    def __init__(self, raw: "psycopg.Connection[tuple[Any, ...]]") -> None:
        self.busy_since: float | None = None  # by the monotonic clock, while something is waited for
        self._raw = raw
        self._pipeline: psycopg.Pipeline | None = None

    @property
    def in_transaction(self) -> bool:
        return not self.is_lost and self._raw.info.transaction_status is not TransactionStatus.IDLE

    @property
    def is_lost(self) -> bool:
        return self._raw.closed

    def execute(self, sql: str, parameters: Values = (), /) -> PostgresRows:
        with self._busy():
            values = _adapted(parameters) if parameters else None
            return PostgresRows(self._raw.execute(_translated(sql), values, binary=True), self._pipeline)

    def executemany(self, sql: str, parameters: Sequence[Values], /) -> PostgresRows:
        with self._busy():
            cursor = self._raw.cursor()
            cursor.executemany(_translated(sql), [_adapted(each) for each in parameters])
            return PostgresRows(cursor, self._pipeline)

    def run(self, script: str) -> None:
        """Several statements in one message, without values. They are never prepared: only single ones can be."""
        with self._busy():
            self._raw.execute(script.encode(), prepare=False)

    def commit(self) -> None:
        """Raises where something had failed, which PostgreSQL answers with a quiet rollback."""
        with self._busy():
            if self._raw.execute("COMMIT").statusmessage != "COMMIT":
                raise psycopg.errors.InFailedSqlTransaction("the transaction was rolled back")

    @contextmanager
    def pipelined(self) -> Iterator[None]:
        try:
            with self._busy(), self._raw.pipeline() as self._pipeline:
                yield
        finally:
            self._pipeline = None
            self.busy_since = None

    @contextmanager
    def _busy(self) -> Iterator[None]:
        self.busy_since = time.monotonic()
        try:
            yield
        finally:
            if self._pipeline is None:
                self.busy_since = None

    def close(self) -> None:
        self._raw.close()

    def cut(self) -> None:
        """Break the connection off from another thread: whoever waits for an answer gets an error."""
        with suppress(psycopg.Error, OSError), socket.socket(fileno=os.dup(self._raw.fileno())) as line:
            line.shutdown(socket.SHUT_RDWR)


class Watchdog:
    """Cuts connections that have waited longer than the database itself lets a statement run: it is not there."""

    def __init__(self, max_seconds: float) -> None:
        self._max_seconds = max_seconds
        self._connections: weakref.WeakSet[PostgresConnection] = weakref.WeakSet()
        self._has_ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def watch(self, connection: PostgresConnection) -> None:
        with self._lock:
            self._connections.add(connection)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="store-watchdog", daemon=True)
                self._thread.start()

    def close(self) -> None:
        self._has_ended.set()

    def _run(self) -> None:
        while not self._has_ended.wait(_LOOK_SECONDS):
            with self._lock:
                connections = list(self._connections)
            for connection in connections:
                since = connection.busy_since
                if since is not None and time.monotonic() - since > self._max_seconds:
                    connection.cut()


@lru_cache(maxsize=256)
def _translated(sql: str) -> bytes:
    return _NAME.sub(r"%(\1)s", sql.replace("?", "%s")).encode()


def _adapted(values: Values) -> Values:
    if isinstance(values, Mapping):
        return {name: _text(value) for name, value in values.items()}
    return [_text(value) for value in values]


def _text(value: Any) -> Any:
    return value.replace(_NUL, _NO_NUL) if isinstance(value, str) and _NUL in value else value
