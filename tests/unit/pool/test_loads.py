"""Loads, room and idleness of a pool, on a virtual clock."""

import asyncio
from traceback import walk_tb

import pytest

from proxy_inference_engine.config import Config
from proxy_inference_engine.engine.stats import Stats
from proxy_inference_engine.errors import PieError, Unavailable
from proxy_inference_engine.models.watcher import Watcher
from proxy_inference_engine.pool.entry import PoolEntry
from proxy_inference_engine.pool.loads import DoesNotFit, LoadFailed
from proxy_inference_engine.pool.pool import ModelPool
from proxy_inference_engine.served.model import ServedModel
from tests.unit.pool.simulated import SimulatedLoader, simulated_pool
from tests.unit.pool.test_names import Measured
from tests.unit.served.scripted import served
from tests.virtual_time import clock, run


async def use(pool: ModelPool, name: str, seconds: float = 1.0) -> None:
    lease = await pool.obtain(pool.find(name))
    assert lease.model.id == name
    await asyncio.sleep(seconds)
    lease.release()


def states(pool: ModelPool) -> dict[str, str]:
    return {member.id: member.state for member in pool.members}


def test_one_load_serves_all_who_wait() -> None:
    async def main() -> None:
        loader = SimulatedLoader({"a": 10})
        pool = simulated_pool(loader, 100)
        assert pool.lease(pool.find("a")) is None
        await asyncio.gather(*(use(pool, "a") for _ in range(20)))
        assert loader.log == ["a loaded"] and pool.used_bytes == 10
        assert pool.lease(pool.find("a")) is not None

    run(main())


def test_the_least_recently_used_makes_room_before_the_load() -> None:
    async def main() -> None:
        loader = SimulatedLoader({"a": 40, "b": 40, "c": 40})
        pool = simulated_pool(loader, 100)
        for name in ("a", "b", "a", "c"):
            await use(pool, name)
        assert loader.log == ["a loaded", "b loaded", "b unloaded", "c loaded"]
        assert loader.most == 80 and pool.used_bytes == 80

    run(main())


@pytest.mark.parametrize("is_pinned", [False, True])
def test_who_comes_to_be_used_while_another_makes_room_is_not_taken(is_pinned: bool) -> None:
    """It was chosen too, when nobody used it yet."""

    async def main() -> None:
        loader = SimulatedLoader({"a": 30, "b": 30, "c": 80})
        pool = simulated_pool(loader, 100)
        for name in ("a", "b"):
            await use(pool, name)
        wanting = asyncio.ensure_future(use(pool, "c"))
        while states(pool)["a"] != "unloading":
            await asyncio.sleep(0.01)
        lease = None if is_pinned else pool.lease(pool.find("b"))
        pool.pin(pool.find("b"), is_pinned)
        await asyncio.sleep(5)
        assert states(pool) == {"a": "unloaded", "b": "ready", "c": "waiting"}
        pool.pin(pool.find("b"), False)
        if lease is not None:
            lease.release()
        await wanting
        assert loader.log == ["a loaded", "b loaded", "a unloaded", "b unloaded", "c loaded"] and loader.most == 80

    run(main())


def test_who_is_in_use_is_waited_for() -> None:
    async def main() -> None:
        loader = SimulatedLoader({"a": 60, "b": 60})
        pool = simulated_pool(loader, 100)
        await asyncio.gather(use(pool, "a", 8.0), use(pool, "b", 1.0))
        assert loader.log == ["a loaded", "a unloaded", "b loaded"]

    run(main())


def test_a_model_that_is_always_in_use_lets_another_in_after_a_while() -> None:
    """Who runs finishes; who comes waits, and gets the model back afterwards."""

    async def main() -> None:
        loader = SimulatedLoader({"a": 60, "b": 60})
        pool = simulated_pool(loader, 100)
        is_over = False

        async def visitors() -> None:
            while not is_over:
                await use(pool, "a", 3.0)

        busy = [asyncio.ensure_future(visitors()) for _ in range(3)]
        await asyncio.sleep(20)
        await use(pool, "b")
        is_over = True
        await asyncio.gather(*busy)
        assert loader.log[:3] == ["a loaded", "a unloaded", "b loaded"]

    run(main())


def test_what_can_never_fit_is_refused_with_what_it_needs_and_what_there_is() -> None:
    async def main() -> None:
        loader = SimulatedLoader({"a": 60 << 20, "b": 80 << 20, "c": 200 << 20})
        pool = simulated_pool(loader, 100 << 20, pinned=("a",))
        await use(pool, "a")
        with pytest.raises(DoesNotFit, match=r"'c' needs 200 MiB of memory beside 60 MiB .* may have 100 MiB"):
            await use(pool, "c")
        with pytest.raises(DoesNotFit):  # a stays, whatever happens
            await use(pool, "b")
        assert states(pool) == {"a": "ready", "b": "failed", "c": "failed"} and loader.log == ["a loaded"]

    run(main())


def test_a_load_that_fails_leaves_the_others_and_says_why_to_all_who_wait() -> None:
    async def main() -> None:
        loader = SimulatedLoader({"a": 40, "b": 40}, broken={"b"})
        pool = simulated_pool(loader, 100)
        await use(pool, "a")
        outcomes = await asyncio.gather(*(use(pool, "b") for _ in range(5)), return_exceptions=True)
        assert all(isinstance(outcome, LoadFailed) for outcome in outcomes)
        assert loader.log == ["a loaded", "b failed"] and pool.used_bytes == 40
        with pytest.raises(LoadFailed):  # at once: nobody tries again within seconds
            await use(pool, "b")
        assert loader.log == ["a loaded", "b failed"]
        loader.broken.clear()
        await asyncio.sleep(10)
        await use(pool, "b")
        assert loader.log[-1] == "b loaded"

    run(main())


def test_nothing_is_kept_of_those_who_are_told_again_what_failed() -> None:
    """An exception that is raised again has the frames of everybody who got it, with what they asked."""

    async def main() -> None:
        pool = simulated_pool(SimulatedLoader({"a": 40}, broken={"a"}), 100)
        lengths = []
        for _ in range(20):
            with pytest.raises(LoadFailed) as caught:
                await use(pool, "a")
            lengths.append(len(list(walk_tb(caught.value.__traceback__))))
        assert max(lengths[1:]) == lengths[1]

    run(main())


def test_a_load_that_hangs_is_given_up_and_its_memory_is_kept_until_it_ends() -> None:
    async def main() -> None:
        loader = SimulatedLoader({"a": 60, "b": 30, "c": 60}, hanging={"a"})
        pool = simulated_pool(loader, 100)
        hung = asyncio.ensure_future(use(pool, "a"))
        await asyncio.sleep(1)
        other = asyncio.ensure_future(use(pool, "b"))
        with pytest.raises(LoadFailed, match="given up"):
            await hung
        await other
        assert pool.used_bytes == 90
        with pytest.raises(DoesNotFit):
            await use(pool, "c")

    run(main())


def test_what_hangs_is_not_loaded_a_second_time_beside_itself() -> None:
    async def main() -> None:
        loader = SimulatedLoader({"a": 30}, hanging={"a"}, hang_seconds=2000)
        pool = simulated_pool(loader, 100)
        for _ in range(3):
            with pytest.raises(LoadFailed, match="given up"):
                await use(pool, "a")
            await asyncio.sleep(60)
            assert (loader.num_begun, pool.used_bytes) == (1, 30)
        await asyncio.sleep(2000)
        assert (loader.held, pool.used_bytes) == ({}, 0), "it has ended, and is given back"
        loader.hanging.clear()
        await use(pool, "a")
        assert (loader.num_begun, pool.used_bytes) == (2, 30)

    run(main())


def test_who_leaves_while_it_loads_disturbs_nobody() -> None:
    async def main() -> None:
        loader = SimulatedLoader({"a": 10})
        pool = simulated_pool(loader, 100)
        waiting = [asyncio.ensure_future(use(pool, "a")) for _ in range(3)]
        await asyncio.sleep(0.5)
        waiting[0].cancel()
        await asyncio.gather(*waiting[1:])
        assert loader.log == ["a loaded"] and pool.find("a").num_waiting == 0

    run(main())


def test_a_model_goes_when_nobody_used_it_for_long() -> None:
    async def main() -> None:
        loader = SimulatedLoader({"a": 10, "b": 10})
        pool = simulated_pool(loader, 100, idle_seconds=60, pinned=("b",))
        await asyncio.gather(use(pool, "a", 100), use(pool, "b"))
        await asyncio.sleep(50)
        assert states(pool)["a"] == "ready"
        await use(pool, "a")
        await asyncio.sleep(59)
        assert states(pool)["a"] == "ready"
        await asyncio.sleep(10)
        assert states(pool) == {"a": "unloaded", "b": "ready"}
        pool.pin(pool.find("b"), False)
        await asyncio.sleep(70)
        assert states(pool)["b"] == "unloaded"
        await use(pool, "a")  # and comes back

    run(main())


@pytest.mark.parametrize("is_pinned", [False, True])
def test_who_was_idle_for_long_is_looked_at_again_when_others_have_loaded(is_pinned: bool) -> None:
    """What changes memory takes turns. Who was used, or pinned, before it was its turn had to go all the same."""

    async def main() -> None:
        loader = SimulatedLoader({"a": 10, "b": 10})
        pool = simulated_pool(loader, 100, idle_seconds=60)
        await use(pool, "a")
        await asyncio.sleep(50)
        loader.seconds = 30.0
        other = asyncio.ensure_future(use(pool, "b"))
        await asyncio.sleep(20)
        assert states(pool) == {"a": "ready", "b": "loading"}
        if is_pinned:
            pool.pin(pool.find("a"))
        else:
            await use(pool, "a")
        await other
        await asyncio.sleep(20)
        assert states(pool)["a"] == "ready"
        pool.pin(pool.find("a"), False)
        await asyncio.sleep(70)
        assert states(pool)["a"] == "unloaded"

    run(main())


def test_unloading_by_hand_waits_for_nobody_and_takes_from_nobody() -> None:
    async def main() -> None:
        pool = simulated_pool(SimulatedLoader({"a": 10}), 100)
        running = asyncio.ensure_future(use(pool, "a", 30))
        await asyncio.sleep(10)
        assert not await pool.unload(pool.find("a"))
        await running
        assert await pool.unload(pool.find("a"))
        assert states(pool) == {"a": "unloaded"} and pool.used_bytes == 0

    run(main())


def test_a_lease_in_other_hands_keeps_the_model_and_counts_once() -> None:
    async def main() -> None:
        pool = simulated_pool(SimulatedLoader({"a": 10}), 100)
        lease = await pool.obtain(pool.find("a"))
        other = lease.hand_on()
        assert pool.find("a").num_users == 1
        lease.release()
        assert pool.find("a").num_users == 1 and not await pool.unload(pool.find("a"))
        other.release()
        assert pool.find("a").num_users == 0 and await pool.unload(pool.find("a"))

    run(main())


def test_a_model_that_finds_no_room_is_told_so() -> None:
    async def main() -> None:
        pool = simulated_pool(SimulatedLoader({"a": 60, "b": 60}), 100)
        running = asyncio.ensure_future(use(pool, "a", 10_000))
        await asyncio.sleep(10)
        with pytest.raises(Unavailable, match="found no room") as caught:
            await use(pool, "b")
        assert isinstance(caught.value, PieError) and caught.value.code == "no_room"
        assert pool.lease(pool.find("a")) is not None  # it takes others again
        running.cancel()

    run(main())


class Counting(SimulatedLoader):
    """Each model takes seven steps in its life, and one runs at the end of it."""

    async def load(self, entry: PoolEntry, watcher: Watcher) -> ServedModel:
        await super().load(entry, watcher)
        return served(Measured(Stats(total_steps=7, num_running=1)), name=entry.id)


def test_counts_survive_every_unload() -> None:
    async def main() -> None:
        pool, found = simulated_pool(Counting({"a": 10}), 100), []
        for _ in range(3):
            await use(pool, "a")
            found.append(pool.stats()["a"])
            await pool.unload(pool.find("a"))
            found.append(pool.stats()["a"])
        assert [(stats.total_steps, stats.num_running) for stats in found] == [
            (7, 1), (7, 0), (14, 1), (14, 0), (21, 1), (21, 0),
        ]  # fmt: skip

    run(main())


def test_what_was_just_loaded_is_not_taken_before_who_waited_has_it() -> None:
    async def main() -> None:
        loader = SimulatedLoader({"a": 60, "b": 60}, need_seconds=0.0)
        pool = simulated_pool(loader, 100)
        async with asyncio.timeout(100):
            await asyncio.gather(*(use(pool, name) for name in "abab"))
        assert loader.log == ["a loaded", "a unloaded", "b loaded"]

    run(main())


def test_the_operator_s_own_are_loaded_before_anybody_asks() -> None:
    async def main() -> None:
        loader = SimulatedLoader({"a": 40, "b": 40, "c": 40})
        entries = [PoolEntry(name, Config(), is_preloaded=name != "b") for name in loader.sizes]
        pool = ModelPool(entries, loader, max_bytes=100, clock=clock)
        pool.preload()
        await asyncio.sleep(10)
        assert states(pool) == {"a": "ready", "b": "unloaded", "c": "ready"}

    run(main())
