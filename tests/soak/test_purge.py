"""A million rows whose time is over go without anybody waiting long for a write."""

import asyncio
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from proxy_inference_engine.store import Record, Store
from proxy_inference_engine.store.sqlite.database import connect, prepare

_NUM_ROWS = 1_000_000
_COLUMNS = "kind, owner, parent, id, created_at, expires_at, status, run, metadata, body, extra"
_MAX_ADDED_SECONDS = 0.05
_PAUSE_SECONDS = 0.005  # between two writes
_ALONE_SECONDS = 20.0


@pytest.mark.soak
async def test_a_million_rows_expire_and_no_write_waits_long(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    _fill(path)
    ends_at = time.monotonic() + _ALONE_SECONDS
    alone = await _waits(path, now=-1.0, is_over=lambda: time.monotonic() > ends_at)
    beside = await _waits(path, now=1000.0, is_over=lambda: not _has_expired(path))
    with closing(connect(path)) as connection:
        num_written = len(alone) + len(beside)
        assert connection.execute("SELECT count(*) FROM objects").fetchone() == (num_written,)
        assert connection.execute("SELECT sum(num_rows) FROM owners").fetchone() == (num_written,)
    _show("without a purge", alone)
    _show("beside the purge", beside)
    # What the disk itself makes a write wait is in both; a thousandth of the writes is left to its whims.
    assert _share(beside, 0.999) < _share(alone, 0.999) + _MAX_ADDED_SECONDS


def _fill(path: Path) -> None:
    prepare(path)
    with closing(connect(path)) as connection:
        rows = ((f"owner{n % 100}", f"r{n}", float(n % 1000)) for n in range(_NUM_ROWS))
        connection.execute("PRAGMA synchronous=OFF")
        connection.execute("BEGIN")
        connection.executemany(
            f"INSERT INTO objects ({_COLUMNS}) "
            "VALUES ('response', ?, '', ?, 0, ?, 'completed', '', '{}', randomblob(300), '{}')",
            rows,
        )
        connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _has_expired(path: Path) -> bool:
    with closing(connect(path)) as connection:
        return connection.execute("SELECT 1 FROM objects WHERE expires_at <= 1000 LIMIT 1").fetchone() is not None


async def _waits(path: Path, *, now: float, is_over: Callable[[], bool]) -> list[float]:
    """How long each write took, sorted."""
    store = Store.open(path, clock=lambda: now)
    waits: list[float] = []
    try:
        while len(waits) % 200 or not is_over():
            record = Record(
                "response", f"at{now}-{len(waits)}", f"writer{len(waits) % 100}", 1, {"text": "x" * 4000}, {}
            )
            began = time.perf_counter()
            await store.save(record)
            waits.append(time.perf_counter() - began)
            await asyncio.sleep(_PAUSE_SECONDS)
    finally:
        store.close()
    return sorted(waits)


def _share(waits: list[float], share: float) -> float:
    return waits[min(len(waits) - 1, int(len(waits) * share))]


def _show(name: str, waits: list[float]) -> None:
    shown = ", ".join(f"p{share * 100:g} {_share(waits, share) * 1000:.1f} ms" for share in (0.5, 0.99, 0.999))
    print(f"{name}: {len(waits)} writes, {shown}, longest {waits[-1] * 1000:.1f} ms")
