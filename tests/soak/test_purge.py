"""A million rows whose time is over go without anybody waiting long for a write."""

import time
from contextlib import closing
from pathlib import Path

import pytest

from proxy_inference_engine.store import StoreLimits
from proxy_inference_engine.store.database import connect, prepare
from proxy_inference_engine.store.objects import Objects

_NUM_ROWS = 1_000_000
_COLUMNS = "kind, owner, parent, id, created_at, expires_at, status, run, metadata, body, extra"


@pytest.mark.soak
def test_a_million_rows_expire_in_small_steps(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    prepare(path)
    with closing(connect(path)) as connection:
        rows = ((f"owner{n % 100}", f"r{n}", float(n % 1000)) for n in range(_NUM_ROWS))
        connection.execute("BEGIN")
        connection.executemany(
            f"INSERT INTO objects ({_COLUMNS}) "
            "VALUES ('response', ?, '', ?, 0, ?, 'completed', '', '{}', randomblob(300), '{}')",
            rows,
        )
        connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        objects = Objects(StoreLimits(), lambda: 1000.0)
        times = []
        has_more = True
        while has_more:
            began = time.perf_counter()
            connection.execute("BEGIN IMMEDIATE")
            has_more = objects.purge(connection)
            connection.execute("COMMIT")
            times.append(time.perf_counter() - began)
        assert connection.execute("SELECT count(*) FROM objects").fetchone() == (0,)
        assert connection.execute("SELECT sum(num_rows) FROM owners").fetchone() == (0,)
    times.sort()
    p50, p99 = times[len(times) // 2], times[len(times) * 99 // 100]
    print(f"{len(times)} steps, {p50 * 1000:.1f} ms, p99 {p99 * 1000:.1f} ms, longest {times[-1] * 1000:.1f} ms")
    assert p99 < 0.05, f"a write may wait {p99:.3f} s for a purge"
