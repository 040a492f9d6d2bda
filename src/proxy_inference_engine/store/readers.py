"""Reads off the event loop, each thread on a connection of its own, so that nobody waits for the writer."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol, TypeVar

from proxy_inference_engine.errors import StoreError
from proxy_inference_engine.store.database import Database, StoreConnection

T = TypeVar("T")


class Reader(Protocol):
    """Runs work on a connection, somewhere else."""

    def submit(self, work: Callable[[StoreConnection], T]) -> Future[T]: ...

    def close(self) -> None: ...


class Readers:
    """Threads that read, as many as the database lets read at once."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._threads = ThreadPoolExecutor(database.num_readers, thread_name_prefix="store-reader")
        self._connections: dict[int, StoreConnection] = {}  # by thread

    def submit(self, work: Callable[[StoreConnection], T]) -> Future[T]:
        try:
            return self._threads.submit(self._run, work)
        except RuntimeError:
            raise StoreError("The server's storage is closed.") from None

    def close(self) -> None:
        self._threads.shutdown()
        for connection in self._connections.values():
            connection.close()

    def _run(self, work: Callable[[StoreConnection], T]) -> T:
        try:
            connection = self._connection()
            try:
                return work(connection)
            except Exception:
                if not self._database.is_lost(connection):
                    raise
            return work(self._connection())  # it may have been lost long ago, with nobody to notice
        except Exception as error:
            raise self._database.shown(error) from None

    def _connection(self) -> StoreConnection:
        thread = threading.get_ident()
        connection = self._connections.get(thread)
        if connection is None or self._database.is_lost(connection):
            connection = self._connections[thread] = self._database.connect(reads=True)
        return connection
