"""Who is asking: API keys, deny by default.

Decides on the request path alone, for every method and also for paths that do not exist.
"""

import hashlib
import hmac
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from proxy_inference_engine.config import ApiKey
from proxy_inference_engine.errors import Unauthenticated
from proxy_inference_engine.server.record import record_of

PUBLIC_PATHS = frozenset({"/health", "/ready"})
LOCAL_TENANT = "local"


class Keyring:
    """The configured keys as digests. `tenant` compares with every one of them, so time tells nothing."""

    def __init__(self, keys: Sequence[ApiKey]) -> None:
        self._digests = [(key.name, _digest(key.key.encode())) for key in keys]

    @property
    def is_open(self) -> bool:
        return not self._digests

    def tenant(self, key: bytes) -> str | None:
        wanted = _digest(key)
        found: str | None = None
        for name, digest in self._digests:
            if hmac.compare_digest(digest, wanted):
                found = name
        return found


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


class Auth:
    """Middleware: sets the tenant, or refuses."""

    def __init__(self, app: ASGIApp, keyring: Keyring) -> None:
        self._app = app
        self._keyring = keyring

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in PUBLIC_PATHS:
            record_of(scope).tenant = self._tenant(Headers(scope=scope))
        await self._app(scope, receive, send)

    def _tenant(self, headers: Headers) -> str:
        if self._keyring.is_open:
            return LOCAL_TENANT
        key = sent_key(headers)
        tenant = None if key is None else self._keyring.tenant(key)
        if tenant is None:
            raise Unauthenticated("A valid API key is needed: send it as Authorization: Bearer or as x-api-key.")
        return tenant


def sent_key(headers: Headers) -> bytes | None:
    """The one key of a request; None when it has none, or more than one."""
    bearers = headers.getlist("authorization")
    plain = headers.getlist("x-api-key")
    if len(bearers) + len(plain) != 1:
        return None
    if plain:
        return plain[0].encode("latin-1")
    scheme, _, key = bearers[0].partition(" ")
    return key.strip().encode("latin-1") if scheme.lower() == "bearer" else None
