"""The configuration read again: what counts from then on, what from the next start, and what leaves all as it was."""

from collections.abc import Callable
from typing import Any

import pytest

from proxy_inference_engine.config import ApiKey, Config
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.pool.entry import list_entries
from proxy_inference_engine.pool.pool import ModelPool
from proxy_inference_engine.pool.reload import PoolReload
from tests.unit.pool.simulated import SimulatedLoader, model_of

SIZE = 1 << 49  # more than is free anywhere


def config(*names: str, **settings: Any) -> Config:
    return Config.model_validate({"models": {name: {"model": f"{name}.gguf"} for name in names}, **settings})


class Reloaded:
    """A pool of one model, loaded and not counted, as where a server was started for it alone."""

    def __init__(self, read: Callable[[], Config], started: Config | None = None) -> None:
        self.loader = SimulatedLoader({"a": SIZE, "b": 1}, need_seconds=0.0)
        self.pool = ModelPool(list_entries(config("a")), self.loader)
        self.pool.members[0].adopt(model_of("a"), 0)
        self._reload = PoolReload(read, started or config("a"), self.pool, self.loader)  # type: ignore[arg-type]  # as good

    async def reload(self) -> list[str]:
        """What counts from the next start."""
        return (await self._reload.reload()).unapplied

    @property
    def budgets(self) -> tuple[int | None, int | None, int]:
        return self.pool.max_bytes, self.loader.max_bytes, self.pool.used_bytes


async def test_one_that_becomes_several_counts_from_then_on() -> None:
    reloaded = Reloaded(lambda: config("a", "b", memory=2 * SIZE))
    assert await reloaded.reload() == []
    assert reloaded.budgets == (2 * SIZE, 2 * SIZE, SIZE)
    await reloaded.reload()
    assert reloaded.budgets == (2 * SIZE, 2 * SIZE, SIZE)


async def test_what_is_loaded_is_a_part_of_what_all_may_have() -> None:
    reloaded = Reloaded(lambda: config("a", "b"))
    await reloaded.reload()
    most, loaders, used = reloaded.budgets
    assert most is not None and most == loaders and most > used == SIZE, "and what is free beside it"


async def test_one_that_stays_alone_is_not_counted() -> None:
    reloaded = Reloaded(lambda: config("a", memory=1 << 30))
    await reloaded.reload()
    assert reloaded.budgets == (None, None, 0)


async def test_what_counts_from_the_next_start_is_told_every_time() -> None:
    ports = [1, 1, Config().port]
    reloaded = Reloaded(lambda: config("a", port=ports.pop(0), idle_minutes=3, context=64))
    assert [await reloaded.reload() for _ in range(3)] == [["port"], ["port"], []]


async def test_keys_and_who_leads_among_them_are_told_too_but_for_those_of_the_file() -> None:
    anna, ben = ApiKey("anna", "sk-1"), ApiKey("ben", "sk-2", is_from_file=True)
    keys: list[tuple[ApiKey, ...]] = [(anna, ben), (ben,), (ben,)]
    leaders = [(), ("anna",), ()]
    reloaded = Reloaded(lambda: config("a", api_keys=keys.pop(), priority_keys=leaders.pop()), config("a"))
    assert [await reloaded.reload() for _ in range(3)] == [[], ["priority_keys"], ["api_keys"]]


async def test_what_cannot_be_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    reloaded = Reloaded(lambda: config("a", "b", memory=2 * SIZE, aliases={"gpt-4o": "nobody"}))
    with pytest.raises(StartupError, match="not served"):
        await reloaded.reload()
    assert reloaded.budgets == (None, None, 0) and list(reloaded.pool.names) == ["a"]
    assert "stays as it was" in caplog.text


async def test_several_processes_still_load_nothing() -> None:
    far = {"engine": "vllm", "processes": 2}
    reloaded = Reloaded(lambda: config("a", "b"), config("a", **far))
    with pytest.raises(StartupError, match="processes = 2"):
        await reloaded.reload()
