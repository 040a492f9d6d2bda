"""Downloads that the operator began while the server runs: how far each is, its end, and the model in the pool then.

Each has a thread of its own, which is left to itself when the server ends: what came stays on the disk, and the next
pull of the same name goes on from there. Everything else runs in the event loop.
"""

import asyncio
import logging
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Literal

from proxy_inference_engine.config import Config
from proxy_inference_engine.errors import InvalidRequest, StartupError, shorten
from proxy_inference_engine.models.download.hub import Hub
from proxy_inference_engine.models.download.model import ConnectHub, pull
from proxy_inference_engine.models.hub import HubName, parse_name
from proxy_inference_engine.pool.entry import PoolEntry
from proxy_inference_engine.pool.pool import ModelPool

PullState = Literal["downloading", "cancelling", "done", "failed", "cancelled"]
_MAX_RUNNING = 4
_MAX_KEPT = 64
_MAX_NAME = 256
_log = logging.getLogger(__name__)


class _Cancelled(Exception):
    """Nobody wants it any more."""


class Pull:
    """A `Watcher` of one download, written by the thread that downloads."""

    def __init__(self, name: HubName) -> None:
        self.id = f"pull_{secrets.token_hex(12)}"
        self.name = str(name)
        self.state: PullState = "downloading"
        self.line = ""
        self.num_bytes = self.total_bytes = 0
        self.error: str | None = None
        self.is_served = False  # the pool has the model
        self.began_at = int(time.time())

    @property
    def is_running(self) -> bool:
        return self.state in ("downloading", "cancelling")

    def say(self, line: str) -> None:
        self.line = line
        self._check()

    def show(self, num_bytes: int, total_bytes: int) -> None:
        self.num_bytes, self.total_bytes = num_bytes, total_bytes
        self._check()

    def _check(self) -> None:
        if self.state == "cancelling":
            raise _Cancelled


def hub_name(text: str) -> HubName:
    """A name on the hub and nothing else: what an admin sends never becomes a path. Raises InvalidRequest."""
    name = None if len(text) > _MAX_NAME or text.endswith(".gguf") else parse_name(text)
    if name is None or Path(text).exists():
        message = (
            f"Invalid value for 'model': {shorten(text)!r} is no name on Hugging Face, such as owner/model:Q4_K_M."
        )
        raise InvalidRequest(message, param="model")
    return name


class Pulls:
    def __init__(self, pool: ModelPool, config: Config, connect: ConnectHub = Hub.from_environment) -> None:
        self._pool = pool
        self.config = config
        self.connect = connect
        self._pulls: dict[str, Pull] = {}

    def __iter__(self) -> Iterator[Pull]:
        return iter(list(self._pulls.values()))

    def config_of(self, name: HubName) -> Config:
        """What a model from the hub is loaded with: the server's own settings, but for what belongs to one model."""
        own = {"model": str(name), "mmproj": None, "draft_model": None, "adapters": None, "chat_template": None}
        return self.config.model_copy(update=own)

    def begin(self, name: HubName) -> Pull:
        """Start a download, or find the one of the same name that runs. Raises InvalidRequest where too many do."""
        if self.config.processes > 1:
            raise InvalidRequest("This server has several processes: it serves models that are computed elsewhere.")
        running = [each for each in self._pulls.values() if each.is_running]
        for each in running:
            if each.name == str(name):
                return each
        if len(running) >= _MAX_RUNNING:
            raise InvalidRequest(f"{len(running)} models are being downloaded already: wait, or cancel one.")
        self._forget()
        made = Pull(name)
        self._pulls[made.id] = made
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._work, args=(made, name, loop), name="pull", daemon=True).start()
        return made

    def find(self, id_: str) -> Pull | None:
        return self._pulls.get(id_)

    def cancel(self, each: Pull) -> None:
        """End a download. What came of it stays on the disk."""
        if each.state == "downloading":
            each.state = "cancelling"

    def _forget(self) -> None:
        over = [each.id for each in self._pulls.values() if not each.is_running]
        for id_ in over[: max(0, len(self._pulls) + 1 - _MAX_KEPT)]:
            del self._pulls[id_]

    def _work(self, each: Pull, name: HubName, loop: asyncio.AbstractEventLoop) -> None:
        try:
            pull(self.config_of(name), each, self.connect)
            end = partial(self._finish, each, name)
        except _Cancelled:
            end = partial(self._fail, each, "cancelled", None)
        except StartupError as error:
            end = partial(self._fail, each, "failed", error.message)
        except Exception as error:
            _log.exception("%s could not be downloaded", name)
            end = partial(self._fail, each, "failed", f"{type(error).__name__}: {error}")
        with suppress(RuntimeError):  # the server has ended
            loop.call_soon_threadsafe(end)

    def _finish(self, each: Pull, name: HubName) -> None:
        each.state, each.num_bytes = "done", each.total_bytes
        if self._pool.can_grow:
            self._pool.add(PoolEntry(str(name), self.config_of(name)))
            each.is_served = True

    def _fail(self, each: Pull, state: PullState, error: str | None) -> None:
        each.state, each.error = state, error
