"""Keeps browsers of other sites out: localhost is not a trust boundary.

Looks at Host, Origin and Sec-Fetch-Site only, before any key or body is read.
"""

import ipaddress
import re
from collections.abc import Iterable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from proxy_inference_engine.errors import Forbidden, InvalidRequest

_AUTHORITY = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?", re.ASCII)
_LOCAL_NAMES = frozenset({"localhost", "localhost.localdomain"})
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class Guard:
    """Middleware: one Host that is ours, and no writes from a foreign page."""

    def __init__(self, app: ASGIApp, hosts: Iterable[str]) -> None:
        self._app = app
        names = [host.lower().strip("[]") for host in hosts]
        self._hosts = _LOCAL_NAMES.union(names)
        # Listening on every address, any address of the machine is ours; names still have to be known.
        self._takes_any_address = any(_is_unspecified(name) for name in names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            self._check_host(headers)
            self._check_site(scope["method"], headers)
            if "upgrade" in headers:
                raise InvalidRequest("Upgrading the connection is not supported; use plain HTTP/1.1.")
        await self._app(scope, receive, send)

    def _check_host(self, headers: Headers) -> None:
        hosts = headers.getlist("host")
        host = _host_name(hosts[0]) if len(hosts) == 1 else None
        if host is None:
            raise InvalidRequest("The request needs exactly one valid Host header.", code="invalid_host")
        if not self._is_ours(host):
            raise Forbidden("This Host is not served here.", code="host_not_allowed")

    def _check_site(self, method: str, headers: Headers) -> None:
        if method in _SAFE_METHODS:
            return
        if headers.get("sec-fetch-site", "none").lower() == "cross-site":
            raise Forbidden("Requests from other sites are not allowed.", code="origin_not_allowed")
        if any(not self._is_own_origin(origin, headers["host"]) for origin in headers.getlist("origin")):
            raise Forbidden("Requests from this Origin are not allowed.", code="origin_not_allowed")

    def _is_own_origin(self, origin: str, host: str) -> bool:
        scheme, separator, authority = origin.partition("://")
        return separator != "" and scheme in ("http", "https") and authority.lower() == host.lower()

    def _is_ours(self, host: str) -> bool:
        if host in self._hosts:
            return True
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return False
        return address.is_loopback or self._takes_any_address


def _host_name(authority: str) -> str | None:
    match = _AUTHORITY.fullmatch(authority)
    return match["host"].strip("[]").lower() if match else None


def _is_unspecified(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False
