"""The one thread that writes. Writes that wait together share a commit; each is acknowledged after it.

Knows transactions, nothing of what is written.
"""

import queue
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeVar

from proxy_inference_engine.errors import PieError, StoreError
from proxy_inference_engine.store.checkpoints import Checkpoints
from proxy_inference_engine.store.database import primary_code, store_error

T = TypeVar("T")
Connect = Callable[[], sqlite3.Connection]
Work = Callable[[sqlite3.Connection], T]

_MAX_GROUP = 256
TIDY_SECONDS = 60.0
_CHECKPOINT_COMMITS = 16  # few enough that a checkpoint is short, many enough that there are few of them
_PAUSE_SECONDS = 0.005  # between two looks whether a checkpoint has ended
# What one write of a group can cause alone. Anything else would happen to each of them.
_OF_ONE = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH})


class _Job(NamedTuple):
    work: Work[Any]
    future: Future[Any]


class Writer:
    """Owns its connection and its thread, which starts with the first write.

    `tidy` is called about once a minute between writes, and while it returns True again as soon as no checkpoint runs:
    it can wait, and the log does not grow.
    """

    def __init__(self, connect: Connect, tidy: Work[bool], checkpoints: Checkpoints | None = None) -> None:
        self._connect = connect
        self._tidy = tidy
        self._checkpoints = checkpoints
        self._num_commits = 0  # since the last checkpoint
        self._tidy_at = 0.0
        self._connection: sqlite3.Connection | None = None
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._is_closed = False

    def submit(self, work: Work[T]) -> Future[T]:
        """Run `work` in a transaction; the future is done when that is committed, or nothing of it was."""
        future: Future[T] = Future()
        with self._lock:
            if self._is_closed:
                raise StoreError("The server's storage is closed.")
            self._jobs.put(_Job(work, future))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
                self._thread.start()
        return future

    def close(self) -> None:
        """What was submitted before is written first."""
        with self._lock:
            self._is_closed = True
            self._jobs.put(None)
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        has_ended = False
        while not has_ended:
            jobs, has_ended = self._gather()
            self._commit(jobs)
            jobs.clear()  # what was written need not be held until the next write
            if not has_ended and time.monotonic() >= self._tidy_at:
                self._tidy_up()
        if self._checkpoints is not None:
            self._checkpoints.close()
        if self._connection is not None:
            self._connection.close()

    def _gather(self) -> tuple[list[_Job], bool]:
        """What waits, or nothing when it is time to tidy up; and whether it is the last."""
        jobs: list[_Job] = []
        try:
            wait = max(0.0, self._tidy_at - time.monotonic())
            job = self._jobs.get(timeout=wait) if wait else self._jobs.get_nowait()
            while job is not None:
                jobs.append(job)
                if len(jobs) == _MAX_GROUP:
                    break
                job = self._jobs.get_nowait()
            return jobs, job is None
        except queue.Empty:
            return jobs, False

    def _tidy_up(self) -> None:
        if self._checkpoints is not None and self._checkpoints.is_running:
            self._tidy_at = time.monotonic() + _PAUSE_SECONDS
            return
        has_more = False
        try:
            # What is tidied away once more after a power cut harms nobody, and writes do not wait for the disk here.
            self._opened().execute("PRAGMA synchronous=NORMAL")
            try:
                [has_more] = self._attempt([_Job(self._tidy, Future())])
            finally:
                self._opened().execute("PRAGMA synchronous=FULL")
        except Exception as error:
            store_error(error)
        self._tidy_at = time.monotonic() + (0.0 if has_more is True else TIDY_SECONDS)

    def _commit(self, jobs: list[_Job]) -> None:
        if not jobs:
            return
        try:
            outcomes = self._attempt(jobs)
        except Exception as error:  # the thread outlives any write
            if len(jobs) > 1 and _may_be_of_one(error):
                for job in jobs:
                    self._commit([job])
                return
            shown = store_error(error)
            outcomes = [_Refused(shown)] * len(jobs)
        for job, outcome in zip(jobs, outcomes, strict=True):
            if isinstance(outcome, _Refused):
                job.future.set_exception(outcome.error)
            else:
                job.future.set_result(outcome)

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    def _attempt(self, jobs: list[_Job]) -> list[Any]:
        connection = self._opened()
        connection.execute("BEGIN IMMEDIATE")
        try:
            outcomes = [_outcome(job, connection) for job in jobs]
            connection.execute("COMMIT")
            self._count_commit()
            return outcomes
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def _count_commit(self) -> None:
        self._num_commits += 1
        is_due = self._num_commits >= _CHECKPOINT_COMMITS
        if is_due and self._checkpoints is not None and not self._checkpoints.is_running:
            self._num_commits = 0
            self._checkpoints.begin()


class _Refused(NamedTuple):
    error: Exception


def _outcome(job: _Job, connection: sqlite3.Connection) -> Any:
    """What the work returns. What it refuses leaves no trace, and the rest of the group goes on."""
    connection.execute("SAVEPOINT job")
    try:
        outcome = job.work(connection)
    except PieError as error:
        connection.execute("ROLLBACK TO job")
        outcome = _Refused(error)
    connection.execute("RELEASE job")
    return outcome


def _may_be_of_one(error: Exception) -> bool:
    return not isinstance(error, sqlite3.Error) or primary_code(error) in _OF_ONE
