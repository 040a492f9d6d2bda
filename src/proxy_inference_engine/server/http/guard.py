"""Who may call: no browser of another site, since localhost is not a trust boundary, and only who has a key.

`Guard` looks at Host, Origin and Sec-Fetch-Site, before any key or body is read. `Auth` decides on the path alone,
for every method and also for paths that do not exist: what is not public needs a key, what is the operator's an
admin's, and the metrics, which tell of everybody, a key of their own or an admin's.
"""

import ipaddress
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Literal

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from proxy_inference_engine.config import ApiKey
from proxy_inference_engine.errors import Forbidden, InvalidRequest, Unauthenticated
from proxy_inference_engine.server.http.access import LOCAL_TENANT, Visit, visit_of
from proxy_inference_engine.server.http.keyring import Keyring
from proxy_inference_engine.server.http.limits import RateLimits
from proxy_inference_engine.server.http.origins import Origins
from proxy_inference_engine.server.http.proxies import FORWARDED_HOST

KeyKind = Literal["public", "user", "metrics", "admin"]

# Which kind of key a path needs; what is not here needs a user's, and an admin's will do for all.
KINDS: dict[str, KeyKind] = {
    "/": "public",  # the page, which asks for a key itself
    "/docs": "public",
    "/openapi.json": "public",
    "/health": "public",
    "/v1/health": "public",
    "/ready": "public",
    "/metrics": "metrics",
}
ADMIN_PREFIX = "/admin/"
PAGE_PREFIX = "/page/"

_AUTHORITY = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?", re.ASCII)
_LOCAL_NAMES = frozenset({"localhost", "localhost.localdomain"})
# A page that rebinds DNS has the browser resolve a name of its own to this machine, and that name is in Host. Whoever
# can do that on the Internet owns a public domain. These two are in no public DNS and never will be (RFC 6762; ICANN's
# resolution of 29 July 2024), so no such page is called like that. Somebody on the same local network could still
# answer for a name in them: so programs may use them, and pages that come from there may not write, unless the name is
# listed.
_PRIVATE_SUFFIXES = (".local", ".internal")
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_UNLIMITED_SUFFIXES = ("/cancel", "/stop")  # who has used up a limit may still stop what runs


class Guard:
    """Middleware: one Host that is ours, and no writes from a foreign page."""

    def __init__(self, app: ASGIApp, hosts: Iterable[str], origins: Origins, *, takes_any_host: bool = False) -> None:
        """`takes_any_host`: whoever calls needs a key anyway, which a page that rebinds DNS does not have."""
        self._app = app
        names = [host.lower().strip("[]") for host in hosts]
        self._hosts = _LOCAL_NAMES.union(names)
        self._origins = origins
        self._takes_any_host = takes_any_host
        # Listening on every address, any address of the machine is ours; names still have to be known.
        self._takes_any_address = any(_is_unspecified(name) for name in names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            headers = Headers(scope=scope)
            if self._origins.are_listed:
                visit_of(scope).headers += self._origins.answer_headers(headers)
            hosts = self._check_hosts(headers, scope.get(FORWARDED_HOST))
            # A page of another site may open a socket, and read and write what it likes then.
            method = scope.get("method", "POST")
            if method == "OPTIONS" and "access-control-request-method" in headers and "origin" in headers:
                await self._answer_preflight(headers, send)
                return
            self._check_site(method, headers, hosts)
            if scope["type"] == "http" and headers.get("upgrade", "").lower() == "websocket":
                raise InvalidRequest("Upgrading the connection is not supported; use plain HTTP/1.1.")
        await self._app(scope, receive, send)

    def _check_hosts(self, headers: Headers, forwarded: str | None) -> list[str]:
        """The Host, and what a proxy says it was. Each has to be ours: a page could send the second itself."""
        given = headers.getlist("host")
        if len(given) != 1:
            raise _bad_host()
        hosts = given if forwarded is None else [given[0], forwarded]
        for host in hosts:
            name = _host_name(host)
            if name is None:
                raise _bad_host()
            if not (self._takes_any_host or self._is_ours(name) or name.endswith(_PRIVATE_SUFFIXES)):
                raise Forbidden("This Host is not served here.", code="host_not_allowed")
        return hosts

    def _check_site(self, method: str, headers: Headers, hosts: list[str]) -> None:
        if method in _SAFE_METHODS:
            return
        origins = headers.getlist("origin")
        if origins and all(map(self._origins.allows, origins)):
            return
        if headers.get("sec-fetch-site", "none").lower() == "cross-site":
            raise Forbidden("Requests from other sites are not allowed.", code="origin_not_allowed")
        if not all(any(self._is_own_origin(origin, host) for host in hosts) for origin in origins):
            raise _foreign_origin()

    def _is_own_origin(self, origin: str, host: str) -> bool:
        scheme, separator, authority = origin.partition("://")
        if separator == "" or scheme not in ("http", "https") or authority.lower() != host.lower():
            return False
        return self._takes_any_host or self._is_ours(_host_name(host) or "")

    async def _answer_preflight(self, headers: Headers, send: Send) -> None:
        """A browser asks whether a page may send what it is about to send."""
        answer = self._origins.preflight_headers(headers)
        if answer is None:
            raise _foreign_origin()
        await send({"type": "http.response.start", "status": 204, "headers": answer})
        await send({"type": "http.response.body", "body": b""})

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


def _bad_host() -> InvalidRequest:
    return InvalidRequest("The request needs exactly one valid Host header.", code="invalid_host")


def _foreign_origin() -> Forbidden:
    return Forbidden("Requests from this Origin are not allowed.", code="origin_not_allowed")


def kind_of(path: str) -> KeyKind:
    """Which keys may ask for a path, which is compared letter by letter, as the router does."""
    kind = KINDS.get(path)
    if kind is not None:
        return kind
    if path.startswith(PAGE_PREFIX):
        return "public"
    return "admin" if path.startswith(ADMIN_PREFIX) else "user"


class Auth:
    """Middleware: sets the tenant, or refuses; then sees to it that nobody uses more than they may."""

    def __init__(
        self,
        app: ASGIApp,
        keyring: Keyring,
        metrics_keyring: Keyring,
        limits: RateLimits | None = None,
        leading: Collection[str] = (),
    ) -> None:
        """`leading`: the names of keys that may go before others, beside those of admins."""
        self._app = app
        self._keyring = keyring
        self._metrics_keyring = metrics_keyring
        self._limits = limits
        self._leading = frozenset(leading)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            kind, visit = kind_of(scope["path"]), visit_of(scope)
            if kind != "public":
                key = self._key(kind, sent_keys(Headers(scope=scope)), visit)
                visit.key = key
                visit.tenant = LOCAL_TENANT if key is None else key.name
                visit.may_lead = key is None or key.is_admin or key.name in self._leading
            if self._limits is not None and kind == "user" and _is_limited(scope):
                visit.limiter = limiter = self._limits.of(visit.tenant)
                # To open a socket is no work; each turn on it is.
                if limiter is not None and scope["type"] == "http":
                    limiter.admit()
        await self._app(scope, receive, send)

    def _key(self, kind: KeyKind, keys: Sequence[bytes], visit: Visit) -> ApiKey | None:
        """None: there are no keys. Raises Unauthenticated, or Forbidden, of which the log says who it was."""
        if kind == "metrics" and not self._metrics_keyring.is_open:
            reader = _holder(self._metrics_keyring, keys)
            if reader is not None:
                return reader
            if self._keyring.is_open:
                raise no_key()
        if self._keyring.is_open:
            return None
        found = _holder(self._keyring, keys)
        if found is None:
            raise no_key()
        if kind != "user" and not found.is_admin:
            visit.tenant = found.name
            raise _wrong_kind(kind)
        return found


def _is_limited(scope: Scope) -> bool:
    """What asks for work; looking at what is there, and stopping what runs, is free."""
    return scope.get("method", "POST") == "POST" and not scope["path"].endswith(_UNLIMITED_SUFFIXES)


def no_key() -> Unauthenticated:
    return Unauthenticated("A valid API key is needed: send it as Authorization: Bearer or as x-api-key.")


def _wrong_kind(kind: KeyKind) -> Forbidden:
    if kind == "metrics":
        return Forbidden("Metrics need the key that is configured for them, or an admin's.", code="metrics_key_needed")
    return Forbidden("This needs the key of an admin.", code="admin_key_needed")


def _holder(keyring: Keyring, keys: Sequence[bytes]) -> ApiKey | None:
    """Whose keys they are. Clients send the same in both headers, or a placeholder in one; two holders are nobody."""
    found = {each.name: each for each in map(keyring.find, keys) if each is not None}
    return next(iter(found.values())) if len(found) == 1 else None


def sent_keys(headers: Headers) -> list[bytes]:
    """The key of a request, in one header or in each of two; none where a header comes twice."""
    bearers = headers.getlist("authorization")
    keys = headers.getlist("x-api-key")
    if len(bearers) > 1 or len(keys) > 1:
        return []
    for bearer in bearers:
        scheme, _, key = bearer.partition(" ")
        keys += [key.strip()] if scheme.lower() == "bearer" else []
    return [key.encode("latin-1") for key in keys]
