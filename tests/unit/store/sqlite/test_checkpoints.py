"""Emptying the log is nobody's wait: writes go on beside it, tidying waits for it, and its failure is only logged."""

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from proxy_inference_engine.store.database import StoreConnection
from proxy_inference_engine.store.sqlite.checkpoints import Checkpoints
from proxy_inference_engine.store.sqlite.database import SqliteDatabase, connect, prepare
from proxy_inference_engine.store.writer import StoreWriter, WriteWork
from tests.polling import HANG_S, wait_until

_NUM_WRITES = 80  # many more than there are between two checkpoints
_BYTES = 4000  # about a page each
_INSERT = "INSERT INTO owners VALUES (?, zeroblob(?))"


_tell = SqliteDatabase(None).shown


def _nothing(_: StoreConnection) -> bool:
    return False


@contextmanager
def _writing(path: Path, checkpoints: Checkpoints, tidy: WriteWork[bool] = _nothing) -> Iterator[StoreWriter]:
    prepare(path)
    database = SqliteDatabase(path)
    database._checkpoints = checkpoints
    writer = StoreWriter(database, tidy)
    try:
        yield writer
    finally:
        writer.close()


def _write(writer: StoreWriter, count: int) -> None:
    def work(connection: StoreConnection) -> None:
        connection.execute(_INSERT, (str(time.monotonic_ns()), _BYTES))

    for _ in range(count):
        writer.submit(work).result(HANG_S)


def _log_pages(path: Path) -> int:
    return path.with_name(path.name + "-wal").stat().st_size // 4096


def test_the_log_is_emptied_beside_the_writes(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    checkpoints = Checkpoints(partial(connect, path), _tell)
    with _writing(path, checkpoints) as writer:
        for _ in range(40):
            _write(writer, 16)
            wait_until(lambda: not checkpoints.is_running)
        assert _log_pages(path) < 1400, "the log only grows"  # to 2,800, without checkpoints
        assert path.stat().st_size > 500 * _BYTES, "nothing is in the file itself"
    assert {file.name for file in tmp_path.iterdir()} == {"store.db", "store.db.reserve"}


def test_no_write_waits_for_a_checkpoint_and_tidying_does(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    has_begun, may_go_on = threading.Event(), threading.Event()
    num_tidied = 0

    def slow() -> sqlite3.Connection:
        has_begun.set()
        assert may_go_on.wait(HANG_S)
        return connect(path)

    def tidy(_: StoreConnection) -> bool:
        nonlocal num_tidied
        num_tidied += 1
        return True  # there is always more

    with _writing(path, Checkpoints(slow, _tell), tidy) as writer:
        _write(writer, _NUM_WRITES)
        assert has_begun.wait(HANG_S)
        num_before = num_tidied
        _write(writer, _NUM_WRITES)
        assert num_tidied == num_before, "the log grows with rows that could have waited"
        may_go_on.set()
        wait_until(lambda: num_tidied >= num_before + 10)


def test_a_checkpoint_that_fails_is_logged_and_tried_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "store.db"
    num_tries = 0

    def broken_at_first() -> sqlite3.Connection:
        nonlocal num_tries
        num_tries += 1
        if num_tries < 3:
            raise sqlite3.OperationalError("unable to open database file")
        return connect(path)

    num_writes = 0

    def write_on() -> bool:
        nonlocal num_writes
        _write(writer, 16)
        num_writes += 16
        return num_tries == 3

    with _writing(path, Checkpoints(broken_at_first, _tell)) as writer:
        wait_until(write_on)
        (count,) = writer.submit(lambda c: c.execute("SELECT count(*) FROM owners").fetchone()).result(HANG_S)
    assert count == num_writes and num_tries == 3
    assert [line.fields["reason"] for line in caplog.records] == ["unable to open database file"] * 2  # type: ignore[attr-defined]  # ours
