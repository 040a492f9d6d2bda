"""`pie serve`: take the port, load the model, answer until told to stop."""

import contextlib
import errno
import socket
from typing import TYPE_CHECKING

from proxy_inference_engine.cli.banner import Banner, url
from proxy_inference_engine.cli.progress import ProgressLine
from proxy_inference_engine.config import Config, require_keys
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models.download import obtain

if TYPE_CHECKING:  # `pie --help` does not wait for numpy
    from proxy_inference_engine.engine.worker import Worker

_BACKLOG = 2048


def serve(config: Config) -> int:
    """Run the server; the exit code is its."""
    require_keys(config)
    listen(config.host, config.port).close()  # a download may take hours: a busy port is noticed before
    with ProgressLine() as line:
        name = obtain(config, line).name
    # Before the weights: a busy port is noticed at once, and early clients wait instead of being refused.
    with listen(config.host, config.port) as sock:
        from proxy_inference_engine.models.load import load_engine
        from proxy_inference_engine.server.run import open_store
        from proxy_inference_engine.server.run import serve as serve_http

        with contextlib.closing(open_store(config)) as store:
            with contextlib.closing(ProgressLine()) as line:
                worker = load_engine(config, line)
            try:
                with contextlib.suppress(OSError, ValueError):  # a closed stdout is no reason not to serve
                    print(_banner(name, worker, config, sock).render(), flush=True)
                return serve_http(worker, config, sock, model_id=name, store=store)
            finally:
                worker.stop()


def _banner(name: str, worker: "Worker", config: Config, sock: socket.socket) -> Banner:
    return Banner(
        model=name,
        description=worker.info.description,
        context_tokens=worker.context_tokens,
        lanes=worker.lanes,
        kv_bytes_per_token=worker.info.kv_bytes_per_token,
        cache_bytes=worker.stats().max_cached_bytes,
        url=url(config.host, sock.getsockname()[1]),
        has_keys=bool(config.api_keys),
    )


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
