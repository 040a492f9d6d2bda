"""The configuration read again while the server runs: models come and go, and whatever else changed is named."""

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple

from proxy_inference_engine.config import ApiKey, Config, available_memory
from proxy_inference_engine.config.models import is_of_model
from proxy_inference_engine.config.shown import place
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.pool.entry import PoolEntry, aliases_of, check_processes, list_entries
from proxy_inference_engine.pool.loader import EngineLoader
from proxy_inference_engine.pool.pool import ModelPool, Renewal

MEMORY_SHARE = 0.8  # of what is free, for all models where there are several
# Settings that count from now on. Keys of the file have a way of their own to be read again.
_RENEWED = frozenset({"models", "model_folders", "hub", "aliases", "memory", "idle_minutes"})
_log = logging.getLogger(__name__)


class Reloaded(NamedTuple):
    models: Renewal
    unapplied: list[str]  # settings that have changed and count from the next start


class PoolReload:
    """`read` gives the configuration as it is now; it may read files, so it is called in a thread."""

    def __init__(self, read: Callable[[], Config], config: Config, pool: ModelPool, loader: EngineLoader) -> None:
        self._read = read
        self._started = config  # what counts until the next start
        self._pool = pool
        self._loader = loader
        self._turn = asyncio.Lock()

    async def reload(self) -> Reloaded:
        """Raises StartupError: then nothing has changed, and the log says why."""
        async with self._turn:
            try:
                return await self._reload()
            except StartupError as error:
                _log.warning("the configuration stays as it was: %s", error.message)
                raise

    async def _reload(self) -> Reloaded:
        config, entries = await asyncio.to_thread(self._look)
        aliases = aliases_of(config)
        self._pool.check_names(entries, aliases)  # before anything has changed
        max_bytes = await self._budget(config, entries)
        renewal = self._pool.renew(entries, aliases, max_bytes)
        self._loader.max_bytes = max_bytes
        _log.info(
            "read the configuration again",
            extra={"fields": {name: ",".join(names) for name, names in renewal._asdict().items() if names}},
        )
        unapplied = [name for name in Config.model_fields if _is_unapplied(name, self._started, config)]
        if unapplied:
            _log.warning("these settings count from the next start: %s", ", ".join(unapplied))
        return Reloaded(renewal, unapplied)

    def _look(self) -> tuple[Config, list[PoolEntry]]:
        config = self._read()
        entries = list_entries(config)
        check_processes(self._started, entries)
        return config, entries

    async def _budget(self, config: Config, entries: list[PoolEntry]) -> int | None:
        """The budget of memory, found as at the start; what is loaded by now is a part of it."""
        if config.memory is not None and len(entries) > 1:
            await self._count_uncounted(config.memory)
            return config.memory
        if self._pool.max_bytes is not None or len(entries) == 1:
            return self._pool.max_bytes
        free = int(await asyncio.to_thread(available_memory) * MEMORY_SHARE)
        await self._count_uncounted(free)
        return free + self._pool.used_bytes

    async def _count_uncounted(self, max_bytes: int) -> None:
        """A model that was alone took what it found. Among others it counts like them."""
        if self._pool.max_bytes is None:
            self._loader.max_bytes = max_bytes
            for member in self._pool.members:
                if member.model is not None:
                    member.num_bytes = await self._loader.need(member.entry)


def _is_unapplied(name: str, before: Config, now: Config) -> bool:
    if name == "api_keys":
        return _lasting_keys(before) != _lasting_keys(now)
    is_renewed = name in _RENEWED or is_of_model(name, place(Config.model_fields[name]).group)
    return not is_renewed and getattr(before, name) != getattr(now, name)


def _lasting_keys(config: Config) -> set[ApiKey]:
    """Those that stay until the next start, whatever becomes of the file."""
    return {key for key in config.api_keys if not key.is_from_file}
