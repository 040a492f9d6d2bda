"""Brings models into memory with the engines there are, and out of it again. Each load has a thread of its own."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future

from proxy_inference_engine.config import Config
from proxy_inference_engine.engine.base import Answerer
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.images import ImageLoader
from proxy_inference_engine.models.allotment import Allotment, allot
from proxy_inference_engine.models.load import is_far, load_engine, load_far, share_processor
from proxy_inference_engine.models.resolve import resolve, resolve_words
from proxy_inference_engine.models.watcher import Watcher
from proxy_inference_engine.pool.entry import PoolEntry
from proxy_inference_engine.pool.garbage import give_back
from proxy_inference_engine.pool.loads import LoadFailed
from proxy_inference_engine.served.model import ServedModel, Threads


class EngineLoader:
    """A `ModelLoader`. `max_bytes` is the budget of all models; None: there is one model, which takes what it finds."""

    def __init__(self, max_bytes: int | None, threads: Threads, images: Callable[[Config], ImageLoader]) -> None:
        self.max_bytes = max_bytes
        self._threads = threads
        self._images = images

    def share(self, max_bytes: int) -> int:
        """Have several models under this budget from now on; what is loaded already has its memory beside it."""
        self.max_bytes = max_bytes
        return max_bytes

    async def need(self, entry: PoolEntry) -> int:
        allotment = await asyncio.to_thread(self._allot, entry)
        return 0 if allotment is None else allotment.num_bytes

    async def load(self, entry: PoolEntry, watcher: Watcher) -> ServedModel:
        return await _in_own_thread(lambda: self._load(entry, watcher))

    async def unload(self, model: ServedModel) -> None:
        await asyncio.to_thread(self.stop, model)
        del model
        await asyncio.to_thread(give_back)

    def load_now(self, entry: PoolEntry, watcher: Watcher) -> tuple[ServedModel, int]:
        """Load a model before the event loop runs: the model and its bytes. Raises StartupError."""
        allotment = self._allot(entry)
        return self._serve(entry, watcher, allotment), 0 if allotment is None else allotment.num_bytes

    def stop(self, model: ServedModel) -> None:
        model.close()

    def _allot(self, entry: PoolEntry) -> Allotment | None:
        if self.max_bytes is None or entry.config.engine == "vllm":
            return None
        try:
            return allot(entry.config, self.max_bytes)
        except StartupError as error:
            raise _failure(entry, error) from error

    def _load(self, entry: PoolEntry, watcher: Watcher) -> ServedModel:
        try:
            return self._serve(entry, watcher, self._allot(entry))
        except StartupError as error:
            raise _failure(entry, error) from error

    def _serve(self, entry: PoolEntry, watcher: Watcher, allotment: Allotment | None) -> ServedModel:
        config = entry.config
        if allotment is not None:
            share_processor(config)
            config = config.model_copy(update={"kv_memory": allotment.kv, "cache_memory": allotment.cache})
        is_alone = allotment is None
        answerer: Answerer = (
            load_far(config, watcher) if is_far(config) else load_engine(config, watcher, is_alone=is_alone)
        )
        try:
            model = ServedModel.of(answerer, config, name=entry.id, images=self._images(config), threads=self._threads)
            model.machines.warm()
        except BaseException:
            answerer.stop()
            raise
        return model


async def _in_own_thread(work: Callable[[], ServedModel]) -> ServedModel:
    """One that nobody waits for when the server ends: a load may take minutes, and one that hangs does not end."""
    found: Future[ServedModel] = Future()

    def run() -> None:
        found.set_running_or_notify_cancel()
        try:
            found.set_result(work())
        except BaseException as error:
            found.set_exception(error)

    threading.Thread(target=run, name="load", daemon=True).start()
    return await asyncio.wrap_future(found)


def _failure(entry: PoolEntry, error: StartupError) -> LoadFailed:
    """What clients are told: the reason, without where the operator keeps the file."""
    reason = error.message
    for place in {entry.config.model or "", _path(entry)}:
        reason = reason.replace(place, entry.id) if place else reason
    return LoadFailed(f"The model {entry.id!r} cannot be loaded: {reason.removeprefix(f'model {entry.id!r}: ')}")


def _path(entry: PoolEntry) -> str:
    try:
        find = resolve_words if entry.config.engine == "vllm" else resolve
        return str(find(entry.config.model, entry.config.cache_dir).path)
    except StartupError:
        return ""
