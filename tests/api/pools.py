"""A server over a pool of fake models that take their time to load, or fail, as a test says."""

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from proxy_inference_engine.config import Config
from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.engine.worker import Worker
from proxy_inference_engine.models.watcher import Watcher
from proxy_inference_engine.pool.entry import PoolEntry
from proxy_inference_engine.pool.loads import LoadFailed
from proxy_inference_engine.pool.pool import ModelPool
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.served.model import ServedModel
from proxy_inference_engine.server.http.sse import Patience
from proxy_inference_engine.server.tracing import Tracing
from tests.api.running import Listening, listening

SIZE = 100 << 20


@dataclass
class FakeLoader:
    """Every model has the same size; a load waits for its gate, where it has one."""

    gates: dict[str, threading.Event] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    log: list[str] = field(default_factory=list)
    workers: dict[str, Worker] = field(default_factory=dict)
    step_seconds: float = 0.0

    async def need(self, entry: PoolEntry) -> int:
        return SIZE

    async def load(self, entry: PoolEntry, watcher: Watcher) -> ServedModel:
        watcher.say("reading")
        watcher.show(1, 4)
        gate = self.gates.get(entry.id)
        if gate is not None:
            await asyncio.to_thread(gate.wait, 60)
        if entry.id in self.broken:
            raise LoadFailed(f"The model {entry.id!r} cannot be loaded: it is broken")
        runner = FakeRunner(step_seconds=lambda _: self.step_seconds)
        worker = self.workers[entry.id] = Worker(StepEngine(runner, max_cache_bytes=1 << 20))
        worker.start()
        self.log.append(f"{entry.id} loaded")
        return ServedModel.of(worker, entry.config, name=entry.id)

    async def unload(self, model: ServedModel) -> None:
        await asyncio.to_thread(model.close)
        self.log.append(f"{model.id} unloaded")


@dataclass(frozen=True)
class PoolServer:
    live: Listening
    pool: ModelPool
    loader: FakeLoader


@contextmanager
def pool_server(
    *entries: PoolEntry,
    room: int = 2,
    loader: FakeLoader | None = None,
    patience: Patience | None = None,
    aliases: Mapping[str, str] | None = None,
    config: Config | None = None,
    tracing: Tracing | None = None,
) -> Iterator[PoolServer]:
    """`room`: how many models fit at a time."""
    loader = loader or FakeLoader()
    pool = ModelPool(entries, loader, max_bytes=room * SIZE, aliases=aliases)
    try:
        with listening(pool, config or Config(drain_seconds=0.2), patience=patience, tracing=tracing) as live:
            yield PoolServer(live, pool, loader)
    finally:
        for model in pool.loaded():
            model.close()
