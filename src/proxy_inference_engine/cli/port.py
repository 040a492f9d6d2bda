"""The port of a server: taken, or a line that says what to do."""

import errno
import socket
import sys

from proxy_inference_engine.errors import StartupError

_BACKLOG = 2048


def listen(host: str, port: int, *, is_shared: bool = False) -> socket.socket:
    """A listening socket, or a StartupError that says what to do. `is_shared`: others of ours may have the port too."""
    try:
        family, address = _address(host, port)
        return socket.create_server(address, family=family, backlog=_BACKLOG, reuse_port=is_shared)
    except (socket.gaierror, UnicodeError):
        raise StartupError(f"host {host!r} is not known: give an address of this machine") from None
    except OSError as error:
        raise StartupError(_reason(error, host, port)) from None


def listen_often(host: str, port: int, number: int) -> list[socket.socket]:
    """One socket for each of so many processes: Linux spreads connections over them. Elsewhere they share one."""
    if not sys.platform.startswith("linux"):
        sock = listen(host, port)
        return [sock, *(sock.dup() for _ in range(number - 1))]
    first = listen(host, port, is_shared=True)
    port = first.getsockname()[1]
    return [first, *(listen(host, port, is_shared=True) for _ in range(number - 1))]


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
