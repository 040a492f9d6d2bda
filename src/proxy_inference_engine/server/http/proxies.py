"""Behind a proxy: who calls, and by which name, where the proxy may be believed; and the path it puts before ours.

Only there where one of the two is configured. What a caller claims that is no trusted proxy is not looked at.
"""

import ipaddress
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from proxy_inference_engine.config.callers import Network

FORWARDED_HOST = "proxy_inference_engine.forwarded_host"  # in a scope: the Host that the client sent to the proxy
FORWARDED_FOR = "proxy_inference_engine.forwarded_for"  # the client's address, as the proxy saw it
_MAX_HOPS = 32


class TrustedProxies:
    def __init__(self, networks: Sequence[Network]) -> None:
        self._networks = networks

    def include(self, address: str) -> bool:
        if not self._networks:
            return False
        try:
            found = ipaddress.ip_address(address)
        except ValueError:
            return False
        if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
            found = found.ipv4_mapped
        return any(found in network for network in self._networks)


class Proxied:
    """Middleware around all others."""

    def __init__(self, app: ASGIApp, proxies: TrustedProxies, root_path: str) -> None:
        self._app = app
        self._proxies = proxies
        self._root_path = root_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            client = scope.get("client")
            if client and self._proxies.include(client[0]):
                self._believe(scope, client[1])
            self._strip(scope)
        await self._app(scope, receive, send)

    def _believe(self, scope: Scope, port: int) -> None:
        headers = Headers(scope=scope)
        address = self._client(headers.getlist("x-forwarded-for"))
        if address is not None:
            scope["client"] = (address, port)
            scope[FORWARDED_FOR] = address
        host = _last(headers.getlist("x-forwarded-host"))
        if host:
            scope[FORWARDED_HOST] = host
        scheme = _last(headers.getlist("x-forwarded-proto"))
        if scheme in ("http", "https"):
            scope["scheme"] = scheme

    def _client(self, lines: Sequence[str]) -> str | None:
        """The last address that is no proxy of ours: those before it are what that client claims."""
        found: str | None = None
        for hop in reversed(",".join(lines).split(",")[-_MAX_HOPS:]):
            try:
                found = str(ipaddress.ip_address(hop.strip().strip("[]")))
            except ValueError:
                return found
            if not self._proxies.include(found):
                return found
        return found

    def _strip(self, scope: Scope) -> None:
        """A path that does not begin with the prefix is taken as it is: the proxy took it away, or there was none."""
        path, prefix = scope["path"], self._root_path
        if prefix and (path == prefix or path.startswith(prefix + "/")):
            scope["path"] = path[len(prefix) :] or "/"
            raw = scope.get("raw_path")
            if raw is not None and raw.startswith(prefix.encode()):
                scope["raw_path"] = raw[len(prefix) :] or b"/"


def _last(lines: Sequence[str]) -> str:
    """What the nearest proxy wrote: it is the one that we know."""
    return lines[-1].rpartition(",")[2].strip() if lines else ""
