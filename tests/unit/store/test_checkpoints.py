"""Emptying the log is nobody's wait: writes go on beside it, tidying waits for it, and its failure is only logged."""

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from proxy_inference_engine.store.checkpoints import Checkpoints
from proxy_inference_engine.store.database import connect, prepare
from proxy_inference_engine.store.writer import Work, Writer

_NUM_WRITES = 80  # many more than there are between two checkpoints
_BYTES = 4000  # about a page each
_INSERT = "INSERT INTO owners VALUES (?, zeroblob(?))"


def _nothing(_: sqlite3.Connection) -> bool:
    return False


@contextmanager
def _writing(path: Path, checkpoints: Checkpoints, tidy: Work[bool] = _nothing) -> Iterator[Writer]:
    prepare(path)
    writer = Writer(partial(connect, path), tidy, checkpoints)
    try:
        yield writer
    finally:
        writer.close()


def _write(writer: Writer, count: int) -> None:
    def work(connection: sqlite3.Connection) -> None:
        connection.execute(_INSERT, (str(time.monotonic_ns()), _BYTES))

    for _ in range(count):
        writer.submit(work).result(5)


def _log_pages(path: Path) -> int:
    return path.with_name(path.name + "-wal").stat().st_size // 4096


def test_the_log_is_emptied_beside_the_writes(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    checkpoints = Checkpoints(partial(connect, path))
    with _writing(path, checkpoints) as writer:
        for _ in range(40):
            _write(writer, 16)
            while checkpoints.is_running:
                time.sleep(0.001)
        assert _log_pages(path) < 600, "the log only grows"
        assert path.stat().st_size > 500 * _BYTES, "nothing is in the file itself"
    assert [file.name for file in tmp_path.iterdir()] == ["store.db"]


def test_no_write_waits_for_a_checkpoint_and_tidying_does(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    has_begun, may_go_on = threading.Event(), threading.Event()
    num_tidied = 0

    def slow() -> sqlite3.Connection:
        has_begun.set()
        assert may_go_on.wait(10)
        return connect(path)

    def tidy(_: sqlite3.Connection) -> bool:
        nonlocal num_tidied
        num_tidied += 1
        return True  # there is always more

    with _writing(path, Checkpoints(slow), tidy) as writer:
        _write(writer, _NUM_WRITES)
        assert has_begun.is_set()
        num_before = num_tidied
        _write(writer, _NUM_WRITES)
        assert num_tidied == num_before, "the log grows with rows that could have waited"
        may_go_on.set()
        deadline = time.monotonic() + 5
        while num_tidied < num_before + 10:
            assert time.monotonic() < deadline, "tidying never goes on"
            time.sleep(0.01)


def test_a_checkpoint_that_fails_is_logged_and_tried_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "store.db"
    num_tries = 0

    def broken_at_first() -> sqlite3.Connection:
        nonlocal num_tries
        num_tries += 1
        if num_tries < 3:
            raise sqlite3.OperationalError("unable to open database file")
        return connect(path)

    with _writing(path, Checkpoints(broken_at_first)) as writer:
        _write(writer, _NUM_WRITES)
        (count,) = writer.submit(lambda c: c.execute("SELECT count(*) FROM owners").fetchone()).result(5)
    assert count == _NUM_WRITES and num_tries == 3
    assert [line.fields["reason"] for line in caplog.records] == ["unable to open database file"] * 2  # type: ignore[attr-defined]  # ours
