"""How many connections there may be, the files that they need, and which goes when one more comes.

Whoever is being answered stays. Connections without a request make way, those that have been idle longest first, then
those that have been sending their headers longest: so nobody is kept out by connections that do nothing.
"""

import asyncio
import ipaddress
import logging
from collections.abc import Callable, Collection
from typing import Protocol

try:
    import resource
except ImportError:  # on Windows, which has no limit of open files
    resource = None  # type: ignore[assignment]

_log = logging.getLogger(__name__)

MAX_CONNECTIONS = 1024
MAX_CONNECTIONS_PER_ADDRESS = 128  # but for this machine's own, and those of proxies, behind which many are
_OTHER_FILES = 256  # weights, the store, images being fetched
NEEDED_FILES = MAX_CONNECTIONS + _OTHER_FILES
# Before vLLM every choice of an answer is a connection more. macOS grants 10,240 in all.
WANTED_FILES = NEEDED_FILES + 8 * MAX_CONNECTIONS


def allow_files() -> None:
    """Raise this process's limit of open files, up to what its user may have.

    Shells allow 1,024 at first, and the connection after that would wait unseen.
    """
    if resource is None:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= WANTED_FILES:
        return
    most = WANTED_FILES if hard == resource.RLIM_INFINITY else min(hard, WANTED_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    if most < NEEDED_FILES:
        _log.warning("only %d files may be open: many connections at once would be kept waiting", most)


class IdleConnection(Protocol):
    @property
    def client(self) -> tuple[str, int] | None: ...

    @property
    def transport(self) -> asyncio.Transport: ...

    @property
    def waits_since(self) -> float | None:
        """Since when the connection is without a whole request; None: it has one."""
        ...

    @property
    def is_reading_headers(self) -> bool: ...


def make_way(
    newcomer: IdleConnection,
    connections: Collection[IdleConnection],
    is_proxy: Callable[[str], bool] = lambda _address: False,
) -> bool:
    """Whether the newcomer, who is among the connections, may stay. Another may have been closed for that."""
    address = _address(newcomer)
    same: Collection[IdleConnection] = ()
    is_many = len(connections) > MAX_CONNECTIONS_PER_ADDRESS
    if is_many and address and not _is_loopback(address) and not is_proxy(address):
        same = [each for each in connections if _address(each) == address]
    return _fit(newcomer, connections, MAX_CONNECTIONS) and _fit(newcomer, same, MAX_CONNECTIONS_PER_ADDRESS)


def _fit(newcomer: IdleConnection, connections: Collection[IdleConnection], most: int) -> bool:
    if len(connections) <= most:
        return True
    staying = [each for each in connections if not each.transport.is_closing()]
    return len(staying) <= most or _close_one(newcomer, staying)


def _close_one(newcomer: IdleConnection, connections: Collection[IdleConnection]) -> bool:
    waiting = [(each.is_reading_headers, each.waits_since, each) for each in connections if each is not newcomer]
    idle = [(reads, since, each) for reads, since, each in waiting if since is not None]
    if not idle:
        return False
    _, _, oldest = min(idle, key=lambda entry: entry[:2])
    oldest.transport.close()
    return True


def _address(connection: IdleConnection) -> str:
    return connection.client[0] if connection.client else ""


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
