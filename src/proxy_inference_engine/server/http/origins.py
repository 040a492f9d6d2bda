"""Pages that may call from a browser (CORS): those whose origin the operator listed, and no others.

Nothing here lets a browser send cookies or other credentials of its own: a page has to have the key itself.
"""

import re
from collections.abc import Sequence

from starlette.datastructures import Headers

from proxy_inference_engine.config.callers import ANY, OPAQUE, AllowedOrigin
from proxy_inference_engine.server.http.limits import UNITS

RawHeaders = list[tuple[bytes, bytes]]

_ORIGIN = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<host>[a-z0-9._~-]+|\[[0-9a-f:.]+\])(?::(?P<port>[0-9]{1,5}))?", re.ASCII
)
_ORIGIN_CHARS = 512
_METHODS = b"GET, POST, DELETE"
_ASKED = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~, -]{1,4096}", re.ASCII)  # names of headers, and what separates them
_PREFLIGHT_SECONDS = b"600"
# What a page may read beside the few headers that it may always read.
_EXPOSED = ", ".join(
    (
        "x-request-id",
        "request-id",
        "retry-after",
        "x-should-retry",
        "x-pie-relaxed",
        "x-pie-queue-position",
        "x-pie-queue-seconds",
        "x-pie-ignored",
        *(f"x-ratelimit-{name}-{unit}" for unit in UNITS for name in ("limit", "remaining", "reset")),
        *(f"anthropic-ratelimit-{unit}-{name}" for unit in UNITS for name in ("limit", "remaining", "reset")),
    )
).encode()
_VARY = (b"vary", b"Origin")


class Origins:
    def __init__(self, allowed: Sequence[AllowedOrigin]) -> None:
        self.are_listed = bool(allowed)
        self._allowed = frozenset(allowed)
        self._takes_any = any(origin.scheme == ANY for origin in allowed)
        self._takes_opaque = self._takes_any or any(origin.scheme == OPAQUE for origin in allowed)

    def allows(self, origin: str) -> bool:
        if not self.are_listed or len(origin) > _ORIGIN_CHARS:
            return False
        if origin == OPAQUE:
            return self._takes_opaque
        match = _ORIGIN.fullmatch(origin)
        if match is None:
            return False
        scheme, host, port = match["scheme"], match["host"], match["port"]
        forms = {(scheme, host, port), (scheme, host, ANY), (scheme, ANY, None)}
        return self._takes_any or not self._allowed.isdisjoint(forms)

    def answer_headers(self, headers: Headers) -> RawHeaders:
        """The headers of every answer, also of errors, that say who may read it, and that this depends on who asks."""
        origin = self._allowed_origin(headers)
        if origin is None:
            return [_VARY]
        return [_VARY, (b"access-control-allow-origin", origin), (b"access-control-expose-headers", _EXPOSED)]

    def preflight_headers(self, headers: Headers) -> RawHeaders | None:
        """Beside those of every answer, what a browser wants to know before it sends a request; None: it may not."""
        if self._allowed_origin(headers) is None:
            return None
        answer = [(b"access-control-allow-methods", _METHODS), (b"access-control-max-age", _PREFLIGHT_SECONDS)]
        # Clients send many headers of their own, so whatever is asked for is allowed: only the key opens anything.
        asked = headers.get("access-control-request-headers", "")
        if _ASKED.fullmatch(asked):
            answer.append((b"access-control-allow-headers", asked.encode("ascii")))
        if headers.get("access-control-request-private-network") == "true":
            answer.append((b"access-control-allow-private-network", b"true"))
        return answer

    def _allowed_origin(self, headers: Headers) -> bytes | None:
        origins = headers.getlist("origin")
        if len(origins) != 1 or not self.allows(origins[0]):
            return None
        return origins[0].encode("ascii")
