"""A loader that takes its time on a virtual clock, counts its bytes, and notes whatever must not happen."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from proxy_inference_engine.config import Config
from proxy_inference_engine.models.watcher import Watcher
from proxy_inference_engine.pool.entry import PoolEntry
from proxy_inference_engine.pool.loads import LoadFailed
from proxy_inference_engine.pool.pool import ModelPool
from proxy_inference_engine.served.model import ServedModel
from tests.unit.served.scripted import served
from tests.virtual_time import clock

model_of = cache(lambda name: served(name=name))


@dataclass
class SimulatedLoader:
    sizes: Mapping[str, int]
    seconds: float = 2.0
    need_seconds: float = 0.01
    unload_seconds: float = 0.1
    broken: set[str] = field(default_factory=set)  # their loads fail, when half of it is loaded
    hanging: set[str] = field(default_factory=set)
    hang_seconds: float = 1e9
    held: dict[str, int] = field(default_factory=dict)  # bytes in memory
    log: list[str] = field(default_factory=list)
    most: int = 0
    num_begun: int = 0
    max_bytes: int | None = None  # as the loader with engines has it
    was_loaded_twice: bool = False  # at the same time; an assertion in `load` would be one more failure of a load

    async def need(self, entry: PoolEntry) -> int:
        if self.need_seconds:
            await asyncio.sleep(self.need_seconds)
        return self.sizes[entry.id]

    async def load(self, entry: PoolEntry, watcher: Watcher) -> ServedModel:
        self.num_begun += 1
        self.was_loaded_twice |= entry.id in self.held
        self.held[entry.id] = self.sizes[entry.id]
        self.most = max(self.most, sum(self.held.values()))
        watcher.say("loading")
        await asyncio.sleep(self.seconds / 2)
        if entry.id in self.hanging:
            await asyncio.sleep(self.hang_seconds)
        if entry.id in self.broken:
            del self.held[entry.id]
            self.log.append(f"{entry.id} failed")
            raise LoadFailed("it is broken", retry_after_s=5)
        await asyncio.sleep(self.seconds / 2)
        self.log.append(f"{entry.id} loaded")
        return model_of(entry.id)

    async def unload(self, model: ServedModel) -> None:
        await asyncio.sleep(self.unload_seconds)
        del self.held[model.id]
        self.log.append(f"{model.id} unloaded")


def simulated_pool(
    loader: SimulatedLoader, max_bytes: int | None, *, idle_seconds: float | None = None, pinned: tuple[str, ...] = ()
) -> ModelPool:
    entries = [PoolEntry(name, Config(), is_pinned=name in pinned, idle_seconds=idle_seconds) for name in loader.sizes]
    return ModelPool(entries, loader, max_bytes=max_bytes, clock=clock)
