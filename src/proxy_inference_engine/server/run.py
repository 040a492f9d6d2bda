"""Runs the app with uvicorn on a socket that is already bound, and ends it well.

SIGTERM or SIGINT: no new connections, running answers get their time, then they end with an error. A second
signal exits at once.
"""

import asyncio
import logging
import math
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType

import uvicorn
from starlette.applications import Starlette

from proxy_inference_engine.config import Config
from proxy_inference_engine.engine.base import Engine
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.server.app import create_app, store_limits
from proxy_inference_engine.server.background import Runs
from proxy_inference_engine.server.protocol import LimitedProtocol
from proxy_inference_engine.server.sealing import Sealer
from proxy_inference_engine.server.supervise import Drain
from proxy_inference_engine.store import Store

KEEP_ALIVE_SECONDS = 30
_GRACE_SECONDS = 5  # for the last error events to leave
_log = logging.getLogger(__name__)

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class DrainingServer(uvicorn.Server):
    """uvicorn's server with our end: it does not raise the signal again, and streams end with an error event."""

    def __init__(self, app: Starlette, drain_seconds: float) -> None:
        super().__init__(_uvicorn_config(app, drain_seconds))
        self._drain: Drain = app.state.services.drain
        self._runs: Runs = app.state.services.runs
        self._drain_seconds = drain_seconds

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            os._exit(128 + sig)
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._drain.begin()
        if self.server_state.tasks:
            _log.warning("waiting up to %g s for what still runs; another signal ends it now", self._drain_seconds)
        timer = asyncio.get_running_loop().call_later(self._drain_seconds, self._drain.end)
        try:
            await super().shutdown(sockets)
            await self._runs.join()
        finally:
            timer.cancel()


def serve(
    engine: Engine, config: Config, sock: socket.socket, *, model_id: str | None = None, store: Store | None = None
) -> int:
    """Answer requests until a signal comes. The engine is started before and stopped after by the caller.

    So is the store; without one, what is stored is lost in the end.
    """
    app = create_app(engine, config, model_id=model_id, store=store)
    if store is not None:
        # What clients keep sealed is read again after a restart, as what is stored is.
        app.state.services = replace(app.state.services, sealer=Sealer.in_folder(config.data_dir))
    server = DrainingServer(app, config.drain_seconds)
    server.run(sockets=[sock])
    return 0 if server.started else 1


def open_store(config: Config) -> Store:
    """What is kept between runs. Raises StartupError."""
    if config.data_dir is None:
        raise StartupError("this user has no home folder: set PIE_DATA_DIR, where stored responses are kept")
    return Store.open(config.data_dir / "store.db", limits=store_limits(config))


def _uvicorn_config(app: Starlette, drain_seconds: float) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        loop="auto",
        http=LimitedProtocol,
        ws="none",
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
