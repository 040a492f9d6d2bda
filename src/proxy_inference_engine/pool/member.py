"""One model of the pool: whether it is loaded, who uses it, and what became of its last load. Event loop only."""

import asyncio
import time
from collections.abc import Callable
from typing import Literal, Protocol

from proxy_inference_engine.errors import PieError
from proxy_inference_engine.models.watcher import Watcher
from proxy_inference_engine.pool.entry import PoolEntry
from proxy_inference_engine.served.model import ServedModel

MemberState = Literal["unloaded", "waiting", "loading", "ready", "unloading", "failed"]


class ModelLoader(Protocol):
    """Whoever can bring a model into memory and out of it, one at a time."""

    async def need(self, entry: PoolEntry) -> int:
        """The bytes it will take, without loading anything. Raises PieError."""
        ...

    async def load(self, entry: PoolEntry, watcher: Watcher) -> ServedModel:
        """Raises PieError; then nothing of it is left in memory."""
        ...

    async def unload(self, model: ServedModel) -> None:
        """Gives back all that it took."""
        ...


class LoadProgress:
    """A `Watcher` that remembers: whoever waits is told. Written by the thread that loads."""

    def __init__(self) -> None:
        self.line = ""
        self.share = 0.0

    def say(self, line: str) -> None:
        self.line, self.share = line, 0.0

    def show(self, num_bytes: int, total_bytes: int) -> None:
        self.share = num_bytes / max(1, total_bytes)


class Member:
    def __init__(self, entry: PoolEntry, clock: Callable[[], float]) -> None:
        self.entry = entry
        self.id = entry.id
        self.state: MemberState = "unloaded"
        self.model: ServedModel | None = None
        self.num_bytes = 0  # kept for it, from before its load until after its unload
        self.num_users = 0  # leases
        self.num_waiting = 0  # who want it and wait for its load
        self.is_pinned = entry.is_pinned
        self.is_leaving = False  # who runs finishes, who comes waits: somebody has waited long for the room
        self.progress = LoadProgress()
        self.error: PieError | None = None  # of its last load
        self.failed_at = 0.0
        self.loading: asyncio.Task[None] | None = None
        self.clock = clock
        self.last_used = clock()
        self.used_at: int | None = None  # the same for people, in seconds of the calendar
        self.created = int(time.time())
        self.on_idle: Callable[[Member], None] | None = None  # hears when its last lease is over
        self.is_retired = False  # not listed any more: it goes when nobody uses it

    @property
    def is_idle(self) -> bool:
        """Loaded, and nobody would notice if it were not."""
        return self.state == "ready" and not self.num_users and (self.is_leaving or not self.num_waiting)

    @property
    def is_stuck(self) -> bool:
        """A load of it was given up and has not ended: it may still take memory, and a second one would take more."""
        return self.state == "failed" and self.num_bytes > 0

    @property
    def news(self) -> str:
        """How far it is, in one line, for those who wait for it."""
        if self.state != "loading":
            return f"{self.id} waits for room"
        share = f" {self.progress.share:.0%}" if self.progress.share else ""
        return f"{self.id} is being loaded{share}"

    def renew(self, entry: PoolEntry) -> bool:
        """Take new settings for the same model; whether it may now go at another time. Pinned by hand it stays so."""
        before, was_pinned = self.entry, self.is_pinned
        if entry.is_pinned != before.is_pinned:
            self.is_pinned = entry.is_pinned
        self.entry = entry
        return self.is_pinned != was_pinned or entry.idle_seconds != before.idle_seconds

    def adopt(self, model: ServedModel, num_bytes: int) -> None:
        """Take a model that is loaded."""
        self.model, self.num_bytes, self.state = model, num_bytes, "ready"
