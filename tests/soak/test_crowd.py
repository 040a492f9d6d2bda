"""200 clients write and read at once, several times a second each, and none of them waits long."""

import asyncio
import random
import time
from pathlib import Path

import pytest

from proxy_inference_engine.store import Record, Store

_NUM_CLIENTS = 200
_NUM_TURNS = 20
_PAUSE_SECONDS = 0.2  # on average, between two turns of a client
_MAX_SECONDS = 0.1


@pytest.mark.soak
async def test_200_writers_and_readers_do_not_wait_long(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store.db")
    writes: list[float] = []
    reads: list[float] = []

    async def use(client: int) -> None:
        chance, owner = random.Random(client), f"owner{client % 7}"
        for turn in range(_NUM_TURNS):
            await asyncio.sleep(chance.uniform(0, 2 * _PAUSE_SECONDS))
            record = Record("response", f"r{client}-{turn}", owner, 1, {"text": "x" * 2000}, {})
            began = time.perf_counter()
            await store.save(record)
            writes.append(time.perf_counter() - began)
            began = time.perf_counter()
            assert await store.load("response", owner, record.id) == record
            reads.append(time.perf_counter() - began)

    try:
        await asyncio.gather(*(use(client) for client in range(_NUM_CLIENTS)))
    finally:
        store.close()
    for name, waits in (("writes", sorted(writes)), ("reads", sorted(reads))):
        p50, p99 = waits[len(waits) // 2], waits[len(waits) * 99 // 100]
        print(f"{len(waits)} {name}: {p50 * 1000:.1f} ms, p99 {p99 * 1000:.1f} ms, longest {waits[-1] * 1000:.1f} ms")
        assert p99 < _MAX_SECONDS
