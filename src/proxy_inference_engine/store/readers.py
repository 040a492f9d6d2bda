"""Reads off the event loop, each thread on a connection of its own: in WAL nobody waits for the writer."""

import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol, TypeVar

from proxy_inference_engine.errors import StoreError
from proxy_inference_engine.store.database import store_error

T = TypeVar("T")
_NUM_THREADS = 2


class Reader(Protocol):
    """Runs work on a connection, somewhere else."""

    def submit(self, work: Callable[[sqlite3.Connection], T]) -> Future[T]: ...

    def close(self) -> None: ...


class Readers:
    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        self._threads = ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="store-reader")
        self._own = threading.local()
        self._connections: list[sqlite3.Connection] = []

    def submit(self, work: Callable[[sqlite3.Connection], T]) -> Future[T]:
        try:
            return self._threads.submit(self._run, work)
        except RuntimeError:
            raise StoreError("The server's storage is closed.") from None

    def close(self) -> None:
        self._threads.shutdown()
        for connection in self._connections:
            connection.close()

    def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return work(self._connection())
        except sqlite3.Error as error:
            raise store_error(error) from None

    def _connection(self) -> sqlite3.Connection:
        connection = getattr(self._own, "connection", None)
        if connection is None:
            connection = self._own.connection = self._connect()
            connection.execute("PRAGMA query_only=ON")
            self._connections.append(connection)
        assert isinstance(connection, sqlite3.Connection)
        return connection
