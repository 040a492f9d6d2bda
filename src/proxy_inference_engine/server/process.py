"""Runs the app with uvicorn on a socket that is already bound, and ends it well.

SIGTERM, SIGINT or POST /admin/stop: no new connections, running answers get their time, then they end with an error. A
signal after that exits at once. SIGHUP: keys and configuration are read again; or, where the terminal was closed, an
end as well.
"""

import asyncio
import logging
import math
import os
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from types import FrameType
from typing import Any

import uvicorn
from starlette.applications import Starlette

from proxy_inference_engine.config import Config
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.pool.garbage import set_apart
from proxy_inference_engine.pool.pool import ModelPool
from proxy_inference_engine.pool.reload import PoolReload
from proxy_inference_engine.served.model import ServedModel, Threads
from proxy_inference_engine.server.apis.batches.runs import BatchRuns
from proxy_inference_engine.server.apis.shared.sealer import Sealer
from proxy_inference_engine.server.app import create_app, store_limits
from proxy_inference_engine.server.http.connections import allow_files
from proxy_inference_engine.server.http.protocol import LimitedProtocol
from proxy_inference_engine.server.http.websocket import OPTIONS, LimitedSocket
from proxy_inference_engine.server.neighbours import Neighbours
from proxy_inference_engine.server.state import ServerState
from proxy_inference_engine.server.tracing import Tracing
from proxy_inference_engine.store import Store

KEEP_ALIVE_SECONDS = 30
_GRACE_SECONDS = 5  # for the last error events to leave
_log = logging.getLogger(__name__)

_ENDING = (signal.SIGTERM, signal.SIGINT)
_HANGUP: signal.Signals | None = getattr(signal, "SIGHUP", None)  # not on Windows
_STDIN = 0
LOOK_SECONDS = 1.0  # between two looks whether the key file has changed, and two notes of the metrics for neighbours
SAVE_SECONDS = 60.0  # between two notes of what keys have used
ADOPT_SECONDS = 60.0  # between two looks whether another server left batches behind
TIDY_SECONDS = 3600.0  # between two looks for files that are nobody's


class DrainingServer(uvicorn.Server):
    """uvicorn's server with our end: it does not raise the signal again, and streams end with an error event."""

    def __init__(self, app: Starlette, drain_seconds: float, on_start: Callable[[], None] | None = None) -> None:
        super().__init__(_uvicorn_config(app, drain_seconds))
        state: ServerState = app.state.server
        self._on_start = on_start
        self._metrics = state.metrics
        self._neighbours = state.neighbours
        self._pool = state.models
        self._drain = state.drain
        self._runs = state.runs
        self._keys = state.keys
        self._reload = state.reload
        self._usage = state.usage
        self._batches: BatchRuns = app.state.batches
        self._drain_seconds = drain_seconds
        self._has_terminal = os.isatty(_STDIN)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._chores: list[asyncio.Future[None]] = []
        self._drain.on_asked = self._end

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in _ENDING}
        if _HANGUP is not None:
            before[_HANGUP] = signal.signal(_HANGUP, self.handle_hangup)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            os._exit(128 + sig)
        self.should_exit = True

    def _end(self) -> None:
        self.should_exit = True

    def handle_hangup(self, sig: int, frame: FrameType | None) -> None:
        # A terminal that hung up is one no more. Nobody could stop a server that outlived it with Ctrl-C.
        if self._has_terminal and not os.isatty(_STDIN):
            self.should_exit = True
        elif self._loop is not None:
            self._loop.call_soon_threadsafe(self._begin, self._read_again())

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._loop = asyncio.get_running_loop()
        self._pool.preload()
        self._begin(_every(SAVE_SECONDS, self._usage.try_to_save))
        self._begin(_every(ADOPT_SECONDS, self._batches.resume, at_once=True))
        self._begin(_every(TIDY_SECONDS, self._batches.tidy, at_once=True))
        if self._keys.path is not None:
            self._begin(_every(LOOK_SECONDS, partial(asyncio.to_thread, self._keys.look)))
        if self._neighbours is not None:
            self._begin(_every(LOOK_SECONDS, partial(self._leave_metrics, self._neighbours), at_once=True))
        if self._on_start is not None:
            self._on_start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._drain.begin()
        await self._batches.stop()
        if self.server_state.tasks:
            _log.warning("waiting up to %g s for what still runs; another signal ends it now", self._drain_seconds)
        timer = asyncio.get_running_loop().call_later(self._drain_seconds, self._drain.end)
        try:
            await super().shutdown(sockets)
            await self._runs.join()
        finally:
            timer.cancel()
            for chore in self._chores:
                chore.cancel()
            await self._usage.try_to_save()

    def _begin(self, chore: Coroutine[Any, Any, None]) -> None:
        self._chores = [each for each in self._chores if not each.done()]
        self._chores.append(asyncio.ensure_future(chore))

    async def _leave_metrics(self, neighbours: Neighbours) -> None:
        await asyncio.to_thread(neighbours.leave, self._metrics.render())

    async def _read_again(self) -> None:
        """Keys and configuration. Where one cannot be used the log says why, and the other may do."""
        if self._keys.path is not None:
            with suppress(StartupError):
                await asyncio.to_thread(self._keys.reload)
        if self._reload is not None:
            with suppress(StartupError):
                await self._reload.reload()


async def _every(seconds: float, work: Callable[[], Awaitable[None]], *, at_once: bool = False) -> None:
    """Again and again, each time when the last is done: a disk may take its time. `at_once`: also now."""
    wait_s = 0.0 if at_once else seconds
    while True:
        await asyncio.sleep(wait_s)
        wait_s = seconds
        try:
            await work()
        except Exception:
            _log.exception("a chore failed and is tried again")


def serve(
    models: ModelPool | Sequence[ServedModel],
    config: Config,
    sock: socket.socket,
    *,
    threads: Threads | None = None,
    store: Store | None = None,
    sealer: Sealer | None = None,
    tracing: Tracing | None = None,
    reload: PoolReload | None = None,
    neighbours: Neighbours | None = None,
    on_start: Callable[[], None] | None = None,
) -> int:
    """Answer requests until a signal comes. What is loaded then is stopped by the caller.

    The store is the caller's too; without one, what is stored is lost in the end, and without a sealer what clients
    keep sealed. `on_start` hears that it serves.
    """
    allow_files()
    app = create_app(
        models,
        config,
        threads=threads,
        store=store,
        sealer=sealer,
        tracing=tracing,
        reload=reload,
        neighbours=neighbours,
    )
    server = DrainingServer(app, config.drain_seconds, on_start)
    set_apart()
    server.run(sockets=[sock])
    return 0 if server.started else 1


def open_store(config: Config) -> Store:
    """What is kept between runs. Raises StartupError."""
    if config.store_url is not None:
        files = None if config.data_dir is None else config.data_dir / "files"
        return Store.open(config.store_url, limits=store_limits(config), files=files)
    if config.data_dir is None:
        raise StartupError("this user has no home folder: set PIE_DATA_DIR, where stored responses are kept")
    return Store.open(config.data_dir / "store.db", limits=store_limits(config))


def open_sealer(config: Config, store: Store) -> Sealer:
    """A sealer whose key outlives this run; it is in the store where other servers share that. Raises StartupError."""
    if config.store_url is not None:
        return Sealer.of_key(store.secret("sealing", Sealer.new_key()))
    return Sealer.in_folder(config.data_dir)


def _uvicorn_config(app: Starlette, drain_seconds: float) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        loop="auto",
        http=partial(LimitedProtocol, edge=app.state.edge),  # type: ignore[arg-type]  # called
        ws=LimitedSocket,
        **OPTIONS,
        lifespan="off",
        interface="asgi3",
        log_config=None,
        log_level="error",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=math.ceil(drain_seconds) + _GRACE_SECONDS,
    )
