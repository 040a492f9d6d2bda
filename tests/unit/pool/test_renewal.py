"""Another list of models while the pool runs: who stays is not touched, who goes is let finish."""

import asyncio
from typing import Any

import pytest

from proxy_inference_engine.config import Config
from proxy_inference_engine.errors import NotFound, StartupError, Unavailable
from proxy_inference_engine.pool.entry import PoolEntry
from proxy_inference_engine.pool.pool import ModelPool
from tests.unit.pool.simulated import SimulatedLoader, simulated_pool
from tests.unit.pool.test_loads import states, use
from tests.virtual_time import run


def entry(
    name: str, *, pin: bool = False, preload: bool = False, idle_seconds: float | None = None, **settings: Any
) -> PoolEntry:
    return PoolEntry(name, Config(**settings), is_pinned=pin, is_preloaded=preload, idle_seconds=idle_seconds)


def make() -> tuple[SimulatedLoader, ModelPool]:
    loader = SimulatedLoader({"a": 40, "b": 40, "c": 40})
    return loader, simulated_pool(loader, 100)


def test_models_come_and_go_and_who_stays_is_not_touched() -> None:
    async def main() -> None:
        loader, pool = make()
        await use(pool, "a")
        await use(pool, "b")
        kept = pool.find("a")
        renewal = pool.renew([entry("a"), entry("c")], {"gpt-4o": "c"}, 100)
        assert (renewal.added, renewal.removed, renewal.changed) == ([], ["b"], [])
        assert pool.find("a") is kept and pool.find("gpt-4o").id == "c"
        with pytest.raises(NotFound):
            pool.find("b")
        await asyncio.sleep(1)
        assert loader.log == ["a loaded", "b loaded", "b unloaded"] and pool.used_bytes == 40
        assert pool.renew([entry("a"), entry("b"), entry("c")], {}, 100).added == ["b"]
        await use(pool, "b")
        assert states(pool) == {"a": "ready", "b": "ready", "c": "unloaded"}
        assert set(pool.stats()) == {"a", "b", "c"}

    run(main())


def test_who_is_in_use_finishes_first() -> None:
    async def main() -> None:
        loader, pool = make()
        running = asyncio.ensure_future(use(pool, "a", 30))
        await asyncio.sleep(10)
        pool.renew([entry("b"), entry("c")], {}, 100)
        await use(pool, "b")
        assert "a unloaded" not in loader.log and pool.used_bytes == 80 and len(pool.loaded()) == 2
        await running
        await asyncio.sleep(1)
        assert loader.log == ["a loaded", "b loaded", "a unloaded"] and pool.used_bytes == 40

    run(main())


def test_one_with_other_settings_is_loaded_anew_when_the_old_one_has_gone() -> None:
    async def main() -> None:
        loader, pool = make()
        running = asyncio.ensure_future(use(pool, "a", 30))
        await asyncio.sleep(10)
        assert pool.renew([entry("a", context=64), entry("b"), entry("c")], {}, 100).changed == ["a"]
        await asyncio.gather(running, use(pool, "a"))
        assert loader.log == ["a loaded", "a unloaded", "a loaded"] and loader.most == 40

    run(main())


def test_settings_may_change_again_while_one_waits_for_those_before() -> None:
    """It waited for itself."""

    async def main() -> None:
        loader, pool = make()
        others = [entry("b"), entry("c")]
        uses = [asyncio.ensure_future(use(pool, "a", 30))]
        for context in (64, 128, 256):
            await asyncio.sleep(5)
            pool.renew([entry("a", context=context), *others], {}, 100)
            uses.append(asyncio.ensure_future(use(pool, "a")))
        async with asyncio.timeout(100):
            await asyncio.gather(*uses)
        await asyncio.sleep(1)
        assert loader.log == [*["a loaded", "a unloaded"] * 3, "a loaded"] and loader.most == 40
        assert pool._loads.everyone == pool.members

    run(main())


def test_who_had_to_let_another_in_and_is_listed_no_more_still_answers_who_waits() -> None:
    """Who waited was refused, though the model was there."""

    async def main() -> None:
        _, pool = make()
        busy = [asyncio.ensure_future(use(pool, name, 1000)) for name in "ab"]
        await asyncio.sleep(10)
        wanting = asyncio.ensure_future(use(pool, "c"))
        await asyncio.sleep(25)  # it has lost patience: who is in its way takes nothing new
        waiting = asyncio.ensure_future(use(pool, "a"))
        await asyncio.sleep(1)
        assert not waiting.done() and pool.find("a").num_waiting == 1
        pool.renew([entry("b"), entry("c")], {}, 100)
        assert isinstance((await asyncio.gather(wanting, return_exceptions=True))[0], Unavailable)
        await asyncio.gather(waiting, *busy)
        await asyncio.sleep(1)
        assert pool._loads.everyone == pool.members

    run(main())


def test_who_waits_for_a_load_gets_it_though_the_model_is_listed_no_more() -> None:
    async def main() -> None:
        loader, pool = make()
        waiting = asyncio.ensure_future(use(pool, "a"))
        await asyncio.sleep(0.5)
        pool.renew([entry("b")], {}, 100)
        await waiting
        await asyncio.sleep(1)
        assert loader.log == ["a loaded", "a unloaded"] and pool.used_bytes == 0

    run(main())


def test_a_load_that_fails_or_hangs_is_forgotten_with_its_model() -> None:
    async def main() -> None:
        loader, pool = make()
        loader.broken.add("a")
        waiting = asyncio.ensure_future(use(pool, "a"))
        await asyncio.sleep(0.5)
        pool.renew([entry("b")], {}, 100)
        assert isinstance((await asyncio.gather(waiting, return_exceptions=True))[0], Exception)
        await asyncio.sleep(1)
        assert pool._loads.everyone == pool.members

    run(main())


def test_pins_and_idleness_change_without_a_load() -> None:
    async def main() -> None:
        loader, pool = make()
        await use(pool, "a")
        pool.renew([entry("a", pin=True), entry("b"), entry("c")], {}, 100)
        await use(pool, "b")
        await use(pool, "c")
        assert loader.log == ["a loaded", "b loaded", "b unloaded", "c loaded"]
        pool.renew([entry("a", idle_seconds=5), entry("b"), entry("c")], {}, 100)
        await use(pool, "a")
        await asyncio.sleep(10)
        assert states(pool)["a"] == "unloaded"

    run(main())


def test_what_was_pinned_by_hand_stays_so_until_the_list_says_otherwise() -> None:
    async def main() -> None:
        _, pool = make()
        pool.pin(pool.find("a"))
        for pin, is_pinned in ((False, True), (True, True), (False, False)):
            pool.renew([entry("a", pin=pin), entry("b")], {}, 100)
            assert pool.find("a").is_pinned == is_pinned

    run(main())


def test_the_budget_and_what_is_preloaded_count_from_then_on() -> None:
    async def main() -> None:
        loader, pool = make()
        pool.renew([entry("a", preload=True), entry("b"), entry("c", preload=True)], {}, 60)
        await asyncio.sleep(10)
        assert loader.log == ["a loaded", "a unloaded", "c loaded"] and pool.max_bytes == 60
        pool.renew([entry("a"), entry("b"), entry("c")], {}, 130)
        await asyncio.gather(*(use(pool, name) for name in "abc"))
        assert states(pool) == {"a": "ready", "b": "ready", "c": "ready"}

    run(main())


def test_who_is_idle_already_learns_of_another_time() -> None:
    """It went only when it had been used once more."""

    async def main() -> None:
        _, pool = make()
        for name, seconds in (("a", None), ("b", 60)):
            pool.renew([entry(each, idle_seconds=seconds) for each in "abc"], {}, 100)
            await use(pool, name)
        pool.renew([entry("a", idle_seconds=30), entry("b", pin=True, idle_seconds=30), entry("c")], {}, 100)
        await asyncio.sleep(20)
        assert states(pool) == {"a": "ready", "b": "ready", "c": "unloaded"}
        await asyncio.sleep(100)
        assert states(pool) == {"a": "unloaded", "b": "ready", "c": "unloaded"}
        pool.renew([entry("a"), entry("b", idle_seconds=30), entry("c")], {}, 100)
        await asyncio.sleep(31)
        assert states(pool)["b"] == "unloaded", "pinned no more"

    run(main())


def test_what_cannot_be_leaves_everything_as_it_was() -> None:
    async def main() -> None:
        _, pool = make()
        for entries, aliases in (([entry("a"), entry("a")], {}), ([entry("a")], {"gpt": "nobody"})):
            with pytest.raises(StartupError):
                pool.renew(entries, aliases, 100)
        assert [member.id for member in pool.members] == ["a", "b", "c"] and pool.find("b").id == "b"

    run(main())


def test_a_setting_of_the_server_is_none_of_a_model() -> None:
    assert entry("a", port=1).loads_like(entry("a", port=2, idle_minutes=3))
    for settings in ({"context": 64}, {"model": "x"}, {"stop": ("y",)}, {"adapters": {"p": "q"}}, {"kv_memory": 1}):
        assert not entry("a").loads_like(entry("a", **settings))
