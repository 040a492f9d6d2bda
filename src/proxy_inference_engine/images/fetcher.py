"""The one way an image comes from the web: http or https, public addresses only, bounded in size and in time.

A host is resolved once; if any of its addresses is not public it is not asked, and the connection goes to the address
that was checked. Every redirect starts over.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from threading import Thread
from typing import NamedTuple

from proxy_inference_engine.images.address import is_public
from proxy_inference_engine.images.exchange import get
from proxy_inference_engine.images.refusal import ImageRefused
from proxy_inference_engine.images.target import AllowedHosts, Target, parse_target

_MAX_REDIRECTS = 3
_MAX_FETCHES_PER_HOST = 4
_MAX_FETCHES = 32
_NUM_RESOLVERS = 4

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]  # host and port to addresses; may raise OSError


class Endpoint(NamedTuple):
    """Where to connect: an address that was checked, and the name a certificate has to have."""

    address: str
    port: int
    tls_name: str | None  # None: no TLS


Connect = Callable[[Endpoint], Awaitable[Connection]]  # may raise OSError


@dataclass(frozen=True, slots=True)
class FetchLimits:
    max_bytes: int = 10 * 1024 * 1024
    connect_seconds: float = 5.0
    total_seconds: float = 10.0  # with redirects, and waiting for other fetches from the same host


class Fetcher:
    """Belongs to one event loop. `resolve` and `connect` are the network."""

    def __init__(
        self,
        limits: FetchLimits | None = None,
        allowed: AllowedHosts | None = None,
        *,
        resolve: Resolve | None = None,
        connect: Connect | None = None,
    ) -> None:
        self._limits = limits or FetchLimits()
        self._allowed = allowed or AllowedHosts()
        self._resolve = resolve or SystemResolver()
        self._connect = connect or SystemConnector()
        self._turns = asyncio.Semaphore(_MAX_FETCHES)
        self._host_turns: dict[str, asyncio.Semaphore] = {}
        self._num_waiting: dict[str, int] = {}  # for a host, those at work included

    async def fetch(self, url: str) -> bytes:
        """What is at a URL. Raises ImageRefused."""
        target = parse_target(url)
        try:
            async with asyncio.timeout(self._limits.total_seconds):
                for _ in range(1 + _MAX_REDIRECTS):
                    found = await self._get(target)
                    if isinstance(found, bytes):
                        return found
                    target = target.redirected(found)
        except TimeoutError:
            raise _unreachable("it takes too long") from None
        raise _unreachable(f"it redirects more than {_MAX_REDIRECTS} times")

    async def _get(self, target: Target) -> bytes | str:
        if not target.has_usual_port and not self._allowed.has(target):
            raise _not_allowed()
        async with self._turn(target.host), self._opened(target) as (reader, writer):
            try:
                return await get(reader, writer, target, self._limits.max_bytes)
            except (OSError, EOFError):
                raise _unreachable("the connection broke") from None

    @asynccontextmanager
    async def _turn(self, host: str) -> AsyncIterator[None]:
        """Wait for a turn at a host, which is asked for few images at a time."""
        turns = self._host_turns.setdefault(host, asyncio.Semaphore(_MAX_FETCHES_PER_HOST))
        self._num_waiting[host] = self._num_waiting.get(host, 0) + 1
        try:
            async with turns, self._turns:
                yield
        finally:
            self._num_waiting[host] -= 1
            if self._num_waiting[host] == 0:
                del self._num_waiting[host], self._host_turns[host]

    @asynccontextmanager
    async def _opened(self, target: Target) -> AsyncIterator[Connection]:
        tls_name = target.host if target.is_secure else None
        connection = await self._connected(await self._addresses(target), target.port, tls_name)
        try:
            yield connection
        finally:
            connection[1].transport.abort()  # nothing is left to say

    async def _addresses(self, target: Target) -> Sequence[str]:
        try:
            addresses = await self._resolve(target.host, target.port)
        except (OSError, ValueError):  # a name that is none
            addresses = ()
        is_safe = self._allowed.has(target) or all(map(is_public, addresses))
        if not addresses or not is_safe:
            raise _not_allowed()  # the same for both: names of a private network are nobody's business
        return addresses

    async def _connected(self, addresses: Sequence[str], port: int, tls_name: str | None) -> Connection:
        try:
            async with asyncio.timeout(self._limits.connect_seconds):
                for address in addresses[:-1]:
                    try:
                        return await self._connect(Endpoint(address, port, tls_name))
                    except OSError:
                        continue
                return await self._connect(Endpoint(addresses[-1], port, tls_name))
        except (OSError, ValueError):  # a time that ran out, and a certificate that is not the host's, are among them
            raise _unreachable("its host does not answer") from None


class SystemResolver:
    """Looks names up in a few threads that nobody waits for: a name server that does not answer holds up nothing
    else, and not the end of the process.
    """

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(_NUM_RESOLVERS)

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        await self._turns.acquire()
        loop = asyncio.get_running_loop()
        found: asyncio.Future[list[str] | OSError | ValueError] = loop.create_future()

        def finish(outcome: list[str] | OSError | ValueError) -> None:
            self._turns.release()  # here: who stops waiting does not stop the thread
            if not found.done():
                found.set_result(outcome)

        def work() -> None:
            outcome = _look_up(host, port)
            with suppress(RuntimeError):  # the loop is no more
                loop.call_soon_threadsafe(finish, outcome)

        try:
            Thread(target=work, name="resolve", daemon=True).start()
        except RuntimeError:  # the machine has no thread left
            self._turns.release()
            raise
        outcome = await found
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def _look_up(host: str, port: int) -> list[str] | OSError | ValueError:
    try:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    except (OSError, ValueError) as error:
        return error
    return list(dict.fromkeys(str(address[0]) for *_, address in infos))


class SystemConnector:
    """Connects over TCP, and over TLS with the certificates that this machine trusts."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls

    async def __call__(self, endpoint: Endpoint) -> Connection:
        if endpoint.tls_name is None:
            return await asyncio.open_connection(endpoint.address, endpoint.port)
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return await asyncio.open_connection(
            endpoint.address, endpoint.port, ssl=self._tls, server_hostname=endpoint.tls_name
        )


def _not_allowed() -> ImageRefused:
    return ImageRefused("its host cannot be asked for images from here", "url_not_allowed")


def _unreachable(reason: str) -> ImageRefused:
    return ImageRefused(f"it could not be fetched: {reason}", "invalid_image_url")
