"""`pie serve`: take the port, load the model, answer until told to stop."""

import contextlib
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from proxy_inference_engine.cli.banner import url
from proxy_inference_engine.cli.exit import leave
from proxy_inference_engine.cli.fronts import serve_fronts
from proxy_inference_engine.cli.port import listen
from proxy_inference_engine.cli.progress import ProgressLine
from proxy_inference_engine.cli.traces import tracing_of
from proxy_inference_engine.config import Config, available_memory, check_origins, require_keys
from proxy_inference_engine.models.download.model import obtain

if TYPE_CHECKING:  # `pie --help` does not wait for numpy
    from proxy_inference_engine.pool.entry import PoolEntry
    from proxy_inference_engine.pool.loader import EngineLoader
    from proxy_inference_engine.pool.pool import ModelPool
    from proxy_inference_engine.pool.reload import PoolReload
    from proxy_inference_engine.served.model import Threads
    from proxy_inference_engine.server.neighbours import Neighbours


@dataclass(frozen=True)
class FrontPlace:
    """Where a process serves: alone on a port, or as one of several front ends there."""

    sock: socket.socket
    is_greeting: bool = True
    neighbours: "Neighbours | None" = None
    on_start: Callable[[], None] | None = None


def serve(config: Config, read: "Callable[[], Config] | None" = None) -> int:
    """Run the server; the exit code is its. `read` gives the configuration anew; None: it stays as it is."""
    require_keys(config)
    check_origins(config)
    listen(config.host, config.port).close()  # a download may take hours: a busy port is noticed before
    if config.processes > 1:
        return serve_fronts(config, read)
    from proxy_inference_engine.pool.entry import has_own_model

    if has_own_model(config) and config.engine != "vllm":  # its weights are elsewhere
        with ProgressLine() as line:
            obtain(config, line)
    # Before the weights: a busy port is noticed at once, and early clients wait instead of being refused.
    with listen(config.host, config.port) as sock:
        code = serve_on(config, read, FrontPlace(sock))
    return leave(code)


def serve_on(config: Config, read: "Callable[[], Config] | None", place: FrontPlace) -> int:
    """Load what is listed, and answer on a socket until told to stop."""
    from proxy_inference_engine.cli.greeting import greeting
    from proxy_inference_engine.pool.entry import check_processes, list_entries
    from proxy_inference_engine.server.process import open_sealer, open_store
    from proxy_inference_engine.server.process import serve as serve_http

    entries = list_entries(config)
    check_processes(config, entries)
    memory_bytes = available_memory()  # as a larger model would find it
    # What is kept is looked at before the weights too.
    with contextlib.closing(open_store(config)) as store, tracing_of(config) as tracing:
        sealer = open_sealer(config, store)
        with _filled(config, entries) as filled:
            if place.is_greeting:
                address = url(config.host, place.sock.getsockname()[1])
                with contextlib.suppress(OSError, ValueError):  # a closed stdout is no reason not to serve
                    print(greeting(filled.pool, config, address, memory_bytes), flush=True)
            return serve_http(
                filled.pool,
                config,
                place.sock,
                threads=filled.threads,
                store=store,
                sealer=sealer,
                tracing=tracing,
                reload=None if read is None else filled.reload_by(read, config),
                neighbours=place.neighbours,
                on_start=place.on_start,
            )


class _Filled(NamedTuple):
    pool: "ModelPool"
    threads: "Threads"
    loader: "EngineLoader"

    def reload_by(self, read: "Callable[[], Config]", config: Config) -> "PoolReload":
        from proxy_inference_engine.pool.reload import PoolReload

        return PoolReload(read, config, self.pool, self.loader)


@contextlib.contextmanager
def _filled(config: Config, entries: "list[PoolEntry]") -> "Iterator[_Filled]":
    """The pool with its first model in it, where the server was started for that one."""
    from proxy_inference_engine.pool.entry import aliases_of, has_own_model
    from proxy_inference_engine.pool.loader import EngineLoader
    from proxy_inference_engine.pool.pool import ModelPool
    from proxy_inference_engine.pool.reload import MEMORY_SHARE
    from proxy_inference_engine.served.model import Threads
    from proxy_inference_engine.server.app import image_loader

    threads = Threads()
    max_bytes = None if len(entries) == 1 else config.memory or int(available_memory() * MEMORY_SHARE)
    loader = EngineLoader(max_bytes, threads, image_loader)
    pool = ModelPool(
        entries,
        loader,
        max_bytes=max_bytes,
        aliases=aliases_of(config),
        widen=lambda: loader.share(config.memory or int(available_memory() * MEMORY_SHARE)),
    )
    try:
        first = pool.members[0]
        if has_own_model(config):
            with contextlib.closing(ProgressLine()) as line:
                first.adopt(*loader.load_now(first.entry, line))
        yield _Filled(pool, threads, loader)
    finally:
        for model in pool.loaded():
            loader.stop(model)
