"""The one thread that writes. Writes that wait together share a commit; each is acknowledged after it.

Knows transactions, nothing of what is written.
"""

import queue
import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeVar

from proxy_inference_engine.errors import PieError, StoreError
from proxy_inference_engine.store.database import Database, StoreConnection

T = TypeVar("T")
WriteWork = Callable[[StoreConnection], T]

_MAX_GROUP = 256
_PAUSE_SECONDS = 0.005  # between two looks whether there may be tidied


class _Job(NamedTuple):
    work: WriteWork[Any]
    future: Future[Any]
    owners: Collection[str] | None = None
    frees: bool = False


class StoreWriter:
    """Owns its connection and its thread, which starts with the first write.

    `look` is called now and then between writes. When it returns True, `tidy` is, and while that does again as soon as
    the database lets it.
    """

    def __init__(self, database: Database, tidy: WriteWork[bool], look: WriteWork[bool] = lambda _: True) -> None:
        self._database = database
        self._look = look
        self._tidy = tidy
        self._tidy_at = 0.0
        self._connection: StoreConnection | None = None
        self._is_committing = False
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._is_closed = False

    def submit(self, work: WriteWork[T], *, owners: Collection[str] | None = None, frees: bool = False) -> Future[T]:
        """Run `work` in a transaction; the future is done when that is committed, or nothing of it was.

        `owners`: whose objects it changes because of what it reads of them; None: anybody's. `frees`: it deletes, for
        which there is always room.
        """
        future: Future[T] = Future()
        with self._lock:
            if self._is_closed:
                raise StoreError("The server's storage is closed.")
            self._jobs.put(_Job(work, future, owners, frees))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
                self._thread.start()
        return future

    def close(self) -> None:
        """Write what was submitted, then end the thread."""
        with self._lock:
            is_first = not self._is_closed
            self._is_closed = True
            self._jobs.put(None)
        if self._thread is not None:
            self._thread.join()
        if is_first:
            self._database.close(self._connection)

    def _run(self) -> None:
        has_ended = False
        while not has_ended:
            jobs, has_ended = self._gather()
            self._commit(jobs)
            jobs.clear()  # what was written need not be held until the next write
            if not has_ended and time.monotonic() >= self._tidy_at:
                self._tidy_up()

    def _gather(self) -> tuple[list[_Job], bool]:
        """The writes that wait, or none when it is time to tidy up; and whether these are the last."""
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
        if not self._database.may_tidy:
            self._tidy_at = time.monotonic() + _PAUSE_SECONDS
            return
        has_more = False
        try:
            with self._database.tidying(self._opened()):
                # To look disturbs nobody; to tidy keeps other servers waiting.
                [is_due] = self._attempt_twice([_Job(self._look, Future(), owners=(), frees=True)])
                if is_due:
                    [has_more] = self._attempt_twice([_Job(self._tidy, Future(), frees=True)])
        except Exception as error:
            self._database.shown(error)
        self._tidy_at = time.monotonic() + (0.0 if has_more is True else self._database.tidy_seconds)

    def _commit(self, jobs: list[_Job]) -> None:
        if not jobs:
            return
        try:
            outcomes = self._attempt_twice(jobs)
        except Exception as error:  # the thread outlives any write
            if len(jobs) > 1 and self._database.is_of_one(error):
                for job in jobs:
                    self._commit([job])
                return
            shown = self._database.shown(error)
            outcomes = [_Refused(shown)] * len(jobs)
        for job, outcome in zip(jobs, outcomes, strict=True):
            if isinstance(outcome, _Refused):
                job.future.set_exception(outcome.error)
            else:
                job.future.set_result(outcome)

    def _opened(self) -> StoreConnection:
        if self._connection is not None and self._database.is_lost(self._connection):
            self._connection.close()
            self._connection = None
        if self._connection is None:
            self._connection = self._database.connect()
        return self._connection

    def _attempt_twice(self, jobs: list[_Job]) -> list[Any]:
        try:
            return self._attempt(jobs)
        except Exception as error:
            if not self._may_try_again(jobs, error):
                raise
        return self._attempt(jobs)

    def _may_try_again(self, jobs: Sequence[_Job], error: Exception) -> bool:
        """A connection that was lost is replaced, unless with the answer to a commit: that may have happened or not."""
        if self._connection is None:
            return False
        if self._database.is_lost(self._connection):
            return not self._is_committing
        if len(jobs) > 1 and self._database.is_of_one(error):
            return False
        return self._database.recover(self._connection, error, frees=all(job.frees for job in jobs))

    def _attempt(self, jobs: list[_Job]) -> list[Any]:
        self._is_committing = False
        connection = self._opened()
        wholes = [job.owners for job in jobs]
        owners = None if None in wholes else {owner for each in wholes for owner in each or ()}
        try:
            self._database.begin(connection, owners)
            with self._database.batch(connection):
                outcomes = [_outcome(job, connection) for job in jobs]
            self._is_committing = True
            self._database.commit(connection)
            return outcomes
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")


class _Refused(NamedTuple):
    error: Exception


def _outcome(job: _Job, connection: StoreConnection) -> Any:
    """What a job returns. One that is refused leaves no trace, and the rest of the group goes on."""
    connection.execute("SAVEPOINT job")
    try:
        outcome = job.work(connection)
    except PieError as error:
        connection.execute("ROLLBACK TO job")
        outcome = _Refused(error)
    connection.execute("RELEASE job")
    return outcome
