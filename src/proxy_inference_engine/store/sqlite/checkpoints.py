"""The log is emptied into the file by a thread on a connection of its own, so that no write waits for that.

Knows SQLite's log, nothing of what is written.
"""

import sqlite3
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

_MAX_TURNS = 4  # what is written meanwhile is for the next, shorter one: a log begins anew when all of it was taken


class Checkpoints:
    """One checkpoint at a time. One that fails is only logged: the log is longer then, and the next one empties it."""

    def __init__(self, connect: Callable[[], sqlite3.Connection], tell: Callable[[Exception], object]) -> None:
        """`tell`: of an error, so that it is logged."""
        self._connect = connect
        self._tell = tell
        self._connection: sqlite3.Connection | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store-checkpoint")
        self._running: Future[None] | None = None

    @property
    def is_running(self) -> bool:
        return self._running is not None and not self._running.done()

    def begin(self) -> None:
        """Start a checkpoint and return at once. Not to be called while one is running."""
        assert not self.is_running
        self._running = self._thread.submit(self._run)

    def close(self) -> None:
        self._thread.shutdown()
        if self._connection is not None:
            self._connection.close()

    def _run(self) -> None:
        try:
            if self._connection is None:
                self._connection = self._connect()
            num_before = -1
            for _ in range(_MAX_TURNS):
                # Passive: it never takes the writers' lock.
                _, _, num_done = self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
                if num_done == num_before:
                    return
                num_before = num_done
        except sqlite3.Error as error:
            self._tell(error)
