"""One thread writes: writes that wait share a commit, a failing one fails alone, and none stops the next."""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from proxy_inference_engine.errors import PieError, QuotaExceeded, StoreError
from proxy_inference_engine.store import StoreLimits
from proxy_inference_engine.store.database import StoreConnection
from proxy_inference_engine.store.sqlite import database
from proxy_inference_engine.store.sqlite.database import SqliteDatabase, connect, prepare
from proxy_inference_engine.store.writer import StoreWriter
from tests.polling import HANG_S
from tests.unit.store.stores import ids, opened, record


class Table(SqliteDatabase):
    """A writer on a plain table, which counts its commits."""

    def __init__(self, max_pages: int | None) -> None:
        super().__init__(None, max_pages)
        self.num_commits = 0
        self.at_commit: Callable[[], None] = lambda: None
        self.writer = StoreWriter(self, lambda _: False)
        self.writer.submit(lambda c: c.execute("CREATE TABLE t (x TEXT UNIQUE)")).result(HANG_S)

    def connect(self, *, reads: bool = False) -> sqlite3.Connection:
        connection = super().connect(reads=reads)
        connection.set_trace_callback(self._count)
        return connection

    def _count(self, statement: str) -> None:
        if statement == "COMMIT":
            self.num_commits += 1
            self.at_commit()

    def insert(self, text: str, refusal: Exception | None = None) -> Future[str]:
        def work(connection: StoreConnection) -> str:
            connection.execute("INSERT INTO t VALUES (?)", (text,))
            if refusal is not None:
                raise refusal
            return text

        return self.writer.submit(work)

    def rows(self) -> list[str]:
        return self.writer.submit(lambda c: [row[0] for row in c.execute("SELECT x FROM t")]).result(HANG_S)

    @contextmanager
    def busy(self) -> Iterator[None]:
        """What is submitted inside waits together."""
        begun, may_end = threading.Event(), threading.Event()

        def work(_: StoreConnection) -> None:
            begun.set()
            may_end.wait(HANG_S)

        blocking = self.writer.submit(work)
        assert begun.wait(HANG_S)
        try:
            yield
        finally:
            may_end.set()
            blocking.result(HANG_S)


@contextmanager
def table(max_pages: int | None = None) -> Iterator[Table]:
    made = Table(max_pages)
    try:
        yield made
    finally:
        made.writer.close()


def test_writes_that_wait_share_a_commit() -> None:
    with table() as made:
        with made.busy():
            before = made.num_commits
            waiting = [made.insert(str(number)) for number in range(100)]
            assert not any(future.done() for future in waiting)
        assert [future.result(HANG_S) for future in waiting] == [str(number) for number in range(100)]
        assert made.num_commits - before == 2  # the one that blocked, and one for all that waited


def test_nothing_is_acknowledged_before_its_commit() -> None:
    with table() as made:
        early: list[bool] = []
        with made.busy():
            waiting = [made.insert(str(number)) for number in range(10)]
            made.at_commit = lambda: early.extend(future.done() for future in waiting)
        assert made.rows() == [str(number) for number in range(10)]
        # Looked at three times: at the commit of what blocked, at their own, and at that of the reading.
        assert early == [False] * 20 + [True] * 10


@pytest.mark.parametrize("error", [QuotaExceeded("no"), ValueError("a bug")], ids=lambda e: type(e).__name__)
def test_one_that_fails_fails_alone(error: Exception) -> None:
    with table() as made:
        with made.busy():
            before = made.insert("before")
            failing = made.insert("failing", error)
            after = made.insert("after")
        assert (before.result(HANG_S), after.result(HANG_S)) == ("before", "after")
        with pytest.raises(type(error)):
            failing.result(HANG_S)
        assert made.rows() == ["before", "after"], "what failed left a trace"


def test_one_that_breaks_a_rule_of_the_table_fails_alone() -> None:
    with table() as made:
        with made.busy():
            futures = [made.insert(text) for text in ("one", "one", "two")]
        assert [type(future.exception(HANG_S)) for future in futures] == [type(None), StoreError, type(None)]
        assert made.rows() == ["one", "two"]


def test_one_that_does_not_fit_lets_the_others_pass() -> None:
    with table(max_pages=30) as made:
        with made.busy():
            futures = [made.insert("small"), made.insert("x" * 200_000), made.insert("also small")]
        assert [type(future.exception(HANG_S)) for future in futures] == [type(None), StoreError, type(None)]
        assert made.rows() == ["small", "also small"]


def test_what_was_submitted_is_written_before_the_end() -> None:
    with table() as made:
        with made.busy():
            waiting = [made.insert(str(number)) for number in range(300)]
            closing = threading.Thread(target=made.writer.close)
            closing.start()
        closing.join(HANG_S)
        assert all(future.done() and future.exception() is None for future in waiting)
        with pytest.raises(StoreError):
            made.insert("late")


async def test_a_full_disk_is_said_and_gets_better(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with opened(path, StoreLimits(max_pages=100)) as store:
        stored: list[str] = []
        with pytest.raises(StoreError) as caught:
            for number in range(100):
                await store.save(record(f"r{number}", text="x" * 10_000))
                stored.append(f"r{number}")
        assert (caught.value.status, caught.value.code) == (503, "storage_full")
        assert len(stored) > 10
        assert await ids(store, order="asc", limit=100) == stored
        for id_ in stored[:2]:
            assert await store.delete("response", "anna", id_)
        await store.save(record("after", text="x" * 10_000))
        assert await ids(store, order="asc", limit=100) == [*stored[2:], "after"]


async def test_a_lock_of_another_process_is_waited_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.2)
    path = tmp_path / "store.db"
    async with opened(path) as store:
        await store.save(record("before"))
        other = connect(path)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError) as caught:
            await store.save(record("during"))
        assert (caught.value.status, caught.value.code) == (503, "storage_unavailable")
        assert "locked" in caplog.records[-1].fields["reason"] and "locked" not in caught.value.message  # type: ignore[attr-defined]  # ours
        assert await ids(store) == ["before"], "reading goes on"
        other.execute("COMMIT")
        other.close()
        await store.save(record("after"))
        assert await ids(store) == ["after", "before"]


class Faulty(sqlite3.Connection):
    """Fails as a disk does, at the statement that a test chose."""

    fault: tuple[str, int] | None = None

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        if Faulty.fault is not None and sql.startswith(Faulty.fault[0]):
            error = sqlite3.OperationalError("a fault, put in on purpose")
            error.sqlite_errorcode = Faulty.fault[1]
            raise error
        return super().execute(sql, parameters)


@pytest.mark.parametrize("statement", ["BEGIN", "INSERT INTO objects", "COMMIT"])
@pytest.mark.parametrize(
    ("code", "told"),
    [
        (sqlite3.SQLITE_IOERR, "storage_unavailable"),
        (sqlite3.SQLITE_IOERR_FSYNC, "storage_unavailable"),
        (sqlite3.SQLITE_READONLY, "storage_unavailable"),
        (sqlite3.SQLITE_FULL, "storage_full"),
    ],
)
async def test_a_disk_that_fails_is_said_and_gets_better(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statement: str, code: int, told: str
) -> None:
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Faulty))
    async with opened(tmp_path / "store.db") as store:
        await store.save(record("before"))
        monkeypatch.setattr(Faulty, "fault", (statement, code))
        with pytest.raises(StoreError) as caught:
            await store.save(record("during"))
        assert (caught.value.status, caught.value.code) == (503, told)
        assert await ids(store) == ["before"], "reading goes on, and sees nothing of what failed"
        monkeypatch.setattr(Faulty, "fault", None)
        await store.save(record("after"))
        assert await ids(store) == ["after", "before"]


def test_a_file_that_cannot_be_opened_is_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "later" / "store.db"
    writer = StoreWriter(SqliteDatabase(path), lambda _: False)
    try:
        with pytest.raises(PieError):
            writer.submit(lambda c: c.execute("SELECT 1 FROM objects").fetchall()).result(HANG_S)
        prepare(path)
        assert writer.submit(lambda c: c.execute("SELECT 1 FROM objects").fetchall()).result(HANG_S) == []
    finally:
        writer.close()


def test_only_tidying_does_not_wait_for_the_disk(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    prepare(path)
    tidied: list[int] = []

    def tidy(connection: StoreConnection) -> bool:
        tidied.append(synchronous(connection))
        return len(tidied) < 3

    def synchronous(connection: StoreConnection) -> int:
        (level,) = connection.execute("PRAGMA synchronous").fetchone()
        assert isinstance(level, int)
        return level

    normal, full = 1, 2
    writer = StoreWriter(SqliteDatabase(path), tidy)
    try:
        levels = [writer.submit(synchronous).result(HANG_S) for _ in range(5)]
    finally:
        writer.close()
    assert levels == [full] * 5 and tidied and set(tidied) == {normal}


def test_tidying_that_fails_changes_nothing_for_writes(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    prepare(path)
    has_failed = threading.Event()

    def tidy(connection: StoreConnection) -> bool:
        has_failed.set()
        raise sqlite3.OperationalError("no")

    writer = StoreWriter(SqliteDatabase(path), tidy)
    try:
        writer.submit(lambda _: None).result(HANG_S)
        assert has_failed.wait(HANG_S)
        assert writer.submit(lambda c: c.execute("PRAGMA synchronous").fetchone()).result(HANG_S) == (2,)
    finally:
        writer.close()
