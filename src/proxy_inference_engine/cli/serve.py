"""`pie serve`: take the port, load the model, answer until told to stop."""

import contextlib
import errno
import socket
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from proxy_inference_engine.cli.banner import url
from proxy_inference_engine.cli.progress import ProgressLine
from proxy_inference_engine.cli.traces import tracing_of
from proxy_inference_engine.config import Config, available_memory, check_origins, require_keys
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models.download.model import obtain

if TYPE_CHECKING:  # `pie --help` does not wait for numpy
    from proxy_inference_engine.pool.entry import PoolEntry
    from proxy_inference_engine.pool.loader import EngineLoader
    from proxy_inference_engine.pool.pool import ModelPool
    from proxy_inference_engine.pool.reload import PoolReload
    from proxy_inference_engine.served.model import Threads

_BACKLOG = 2048


def serve(config: Config, read: "Callable[[], Config] | None" = None) -> int:
    """Run the server; the exit code is its. `read` gives the configuration anew; None: it stays as it is."""
    require_keys(config)
    check_origins(config)
    listen(config.host, config.port).close()  # a download may take hours: a busy port is noticed before
    from proxy_inference_engine.pool.entry import has_own_model, list_entries

    if has_own_model(config) and config.engine != "vllm":  # its weights are elsewhere
        with ProgressLine() as line:
            obtain(config, line)
    entries = list_entries(config)
    memory_bytes = available_memory()  # as a larger model would find it
    # Before the weights: a busy port is noticed at once, and early clients wait instead of being refused.
    with listen(config.host, config.port) as sock:
        from proxy_inference_engine.cli.greeting import greeting
        from proxy_inference_engine.server.process import open_sealer, open_store
        from proxy_inference_engine.server.process import serve as serve_http

        # What is kept is looked at before the weights too.
        with contextlib.closing(open_store(config)) as store, tracing_of(config) as tracing:
            sealer = open_sealer(config, store)
            with _filled(config, entries) as filled:
                with contextlib.suppress(OSError, ValueError):  # a closed stdout is no reason not to serve
                    print(
                        greeting(filled.pool, config, url(config.host, sock.getsockname()[1]), memory_bytes), flush=True
                    )
                return serve_http(
                    filled.pool,
                    config,
                    sock,
                    threads=filled.threads,
                    store=store,
                    sealer=sealer,
                    tracing=tracing,
                    reload=None if read is None else filled.reload_by(read, config),
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


def listen(host: str, port: int) -> socket.socket:
    """A listening socket, or a StartupError that says what to do."""
    try:
        family, address = _address(host, port)
        return socket.create_server(address, family=family, backlog=_BACKLOG)
    except (socket.gaierror, UnicodeError):
        raise StartupError(f"host {host!r} is not known: give an address of this machine") from None
    except OSError as error:
        raise StartupError(_reason(error, host, port)) from None


def _address(host: str, port: int) -> tuple[socket.AddressFamily, tuple[str, int]]:
    """The first address of a host, IPv4 before IPv6: that is what most clients try for localhost."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = min(found, key=lambda info: info[0] != socket.AF_INET)
    return family, (str(address[0]), port)


def _reason(error: OSError, host: str, port: int) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return f"port {port} on {host} is in use: stop the other program or choose another port with --port"
        case errno.EACCES | errno.EPERM:
            return f"this user may not listen on port {port}: choose one above 1023 with --port"
        case errno.EADDRNOTAVAIL:
            return f"host {host!r} is not an address of this machine"
        case _:
            return f"cannot listen on {host} port {port}: {error.strerror}"
