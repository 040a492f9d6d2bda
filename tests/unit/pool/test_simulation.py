"""Random arrivals over more models than fit, with failures, hangs, clients that leave, unloads, pins and new lists.

After everything that happens: the budget holds, nobody's model is taken away, and in the end nobody still waits.
"""

import asyncio
import random
from contextlib import suppress

import pytest

from proxy_inference_engine.config import Config
from proxy_inference_engine.errors import PieError
from proxy_inference_engine.pool.entry import PoolEntry
from proxy_inference_engine.pool.pool import ModelPool
from tests.unit.pool.simulated import SimulatedLoader, simulated_pool
from tests.virtual_time import run

SEEDS = 500
BUDGET = 100


def check(pool: ModelPool, loader: SimulatedLoader) -> None:
    assert sum(loader.held.values()) <= pool.used_bytes <= BUDGET
    assert not loader.was_loaded_twice
    for member in pool._loads.everyone:
        assert member.num_users >= 0 and member.num_waiting >= 0
        if member.num_users:
            assert member.model is not None and member.id in loader.held, "taken away from who used it"


async def visit(pool: ModelPool, loader: SimulatedLoader, rng: random.Random) -> None:
    member = rng.choice(pool.members)
    try:
        async with asyncio.timeout(rng.choice((None, None, None, rng.uniform(0, 20)))):
            lease = await pool.obtain(member)
            try:
                assert lease.model is member.model
                check(pool, loader)
                await asyncio.sleep(rng.expovariate(1 / 5))
                check(pool, loader)
            finally:
                lease.release()
    except (PieError, TimeoutError):
        pass
    check(pool, loader)


def renew(pool: ModelPool, loader: SimulatedLoader, rng: random.Random) -> None:
    """Another list: some are gone or back, some have other settings."""
    names = [name for name in loader.sizes if rng.random() < 0.8] or list(loader.sizes)
    idle_seconds = pool.members[0].entry.idle_seconds
    contexts = {name: rng.choice((None, None, 64)) for name in names}
    entries = [PoolEntry(name, Config(context=contexts[name]), idle_seconds=idle_seconds) for name in names]
    pool.renew(entries, {}, BUDGET)
    assert [member.id for member in pool.members] == names


async def disturb(pool: ModelPool, loader: SimulatedLoader, rng: random.Random) -> None:
    for _ in range(10):
        await asyncio.sleep(rng.expovariate(1 / 10))
        member = rng.choice(pool.members)
        match rng.randrange(5):
            case 0:
                await pool.unload(member)
            case 1:
                pool.pin(member, not member.is_pinned)
            case 2:
                loader.broken ^= {member.id}
            case 3:
                loader.seconds = rng.choice((0.5, 2.0, 30.0))
            case 4:
                renew(pool, loader, rng)
        check(pool, loader)


async def simulate(seed: int) -> None:
    rng = random.Random(seed)
    least = rng.choice((5, 10))  # small ones go several at a time
    loader = SimulatedLoader({name: rng.randint(least, 70) for name in "abcdefg"[: rng.randint(2, 7)]})
    loader.unload_seconds = rng.choice((0.1, 4.0))
    if rng.random() < 0.1:
        loader.hanging.add("a")
        loader.hang_seconds = rng.choice((950.0, 1e9))  # longer than anybody waits
    pool = simulated_pool(loader, BUDGET, idle_seconds=rng.choice((None, 5.0, 60.0)))

    async def arrivals() -> None:
        visits = []
        for _ in range(rng.randint(10, 60)):
            await asyncio.sleep(rng.expovariate(1 / rng.choice((0.2, 3.0))))
            visits.append(asyncio.ensure_future(visit(pool, loader, rng)))
        await asyncio.gather(*visits)

    await asyncio.gather(arrivals(), disturb(pool, loader, rng))
    assert all(member.num_users == member.num_waiting == 0 for member in pool._loads.everyone)
    if loader.hanging:
        await ask_for_what_hangs(pool, loader)
    else:
        # All quiet: whatever was wrong is over, and every model can be had again.
        loader.broken.clear()
        for member in pool.members:
            pool.pin(member, False)
        await asyncio.sleep(1000)
        for member in pool.members:
            (await pool.obtain(member)).release()
            check(pool, loader)
        assert pool._loads.everyone == pool.members, "who is not listed has gone"


async def ask_for_what_hangs(pool: ModelPool, loader: SimulatedLoader) -> None:
    """Again and again, for as long as a load may take and longer."""
    for _ in range(20):
        with suppress(PieError):
            (await pool.obtain(pool.find("a"))).release()
        check(pool, loader)
        await asyncio.sleep(60)


@pytest.mark.parametrize("first", range(0, SEEDS, 50))
def test_nothing_is_taken_and_nobody_forgotten(first: int) -> None:
    for seed in range(first, first + 50):
        run(simulate(seed))
