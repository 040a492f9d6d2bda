"""Keys of three kinds, what an admin sees, and pages that may call."""

from collections.abc import Iterator
from dataclasses import replace

from tests.golden.case import MODEL, Case, get, user

CALLERS = {
    "nobody": [],
    "a stranger": [("x-api-key", "key-of-nobody")],
    "a user": [("x-api-key", "key-of-anna")],
    "prometheus": [("authorization", "Bearer key-of-prometheus")],
    "an admin": [("authorization", "Bearer key-of-root")],
}
ROOT = CALLERS["an admin"]
CANCEL, RELOAD = "/admin/requests/nothing/cancel", "/admin/keys/reload"
ANEW = "/admin/reload"
PAGE, OTHER = ("origin", "https://app.example.com"), ("origin", "https://evil.com")
WISH = [("access-control-request-method", "POST"), ("access-control-request-headers", "authorization,x-stainless-os")]
ASK = {"model": MODEL, "messages": [user("Hello")], "max_tokens": 2, "temperature": 0}


def cases() -> Iterator[Case]:
    for case in _cases():
        yield replace(case, server="governed")


def _cases() -> Iterator[Case]:
    embed = {"model": MODEL, "input": "Hello", "dimensions": 2}
    yield Case("something is used", "/v1/embeddings", embed, headers=CALLERS["a user"])
    for caller, headers in CALLERS.items():
        for path in ("/admin/usage", "/admin/requests", "/admin/nothing"):
            yield get(path, f"{caller} reads {path}", headers=headers)
        for path in (CANCEL, RELOAD, ANEW):
            yield Case(f"{caller} posts to {path}", path, headers=headers)
    yield get("/metrics", "a user reads /metrics", headers=CALLERS["a user"])
    for method in ("OPTIONS", "HEAD", "PUT", "DELETE"):
        for path in ("/admin/usage", "/admin/requests", CANCEL, RELOAD):
            yield Case(f"{method} {path}", path, method=method, headers=ROOT)
    yield from _panels()
    yield from _pages()


def _panels() -> Iterator[Case]:
    """What the views of the operator ask. Nothing here reaches a hub: names that cannot be are refused before."""
    for path in ("/admin/cache", "/admin/cache?nodes=0", "/admin/cache?texts=yes", "/admin/pulls"):
        yield get(path, f"an admin reads {path}", headers=ROOT)
    for path in ("/admin/stats", "/admin/hub/search", "/admin/hub/files?model=x", "/admin/fit?model=/etc/passwd"):
        for caller in ("a user", "an admin"):
            if (caller, path) != ("an admin", "/admin/stats"):  # its figures are those of the moment
                yield get(path, f"{caller} reads {path}", headers=CALLERS[caller])
    for body in ({"model": "../x"}, {"model": 5}, {}):
        yield Case(f"a pull of {body}", "/admin/pulls", body, headers=ROOT)
    yield Case("a pull that is not there", "/admin/pulls/nothing/cancel", headers=ROOT)
    schema = {"type": "array", "uniqueItems": True}
    for wanted in ({"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}, {"type": "x"}):
        asked = {"model": MODEL, "response_format": wanted}
        yield Case(f"a check of {wanted['type']}", "/v1/schemas/check", asked, headers=CALLERS["a user"])


def _pages() -> Iterator[Case]:
    for name, origin in (("a page", PAGE), ("another page", OTHER), ("no page", ("origin", "null"))):
        for path in ("/v1/chat/completions", "/admin/usage"):
            yield Case(f"{name} asks about {path}", path, method="OPTIONS", headers=[origin, *WISH])
        yield Case(f"{name} without a key", "/v1/messages", ASK, headers=[origin])
        yield Case(f"{name} with a key", "/v1/chat/completions", ASK, headers=[*ROOT, origin])
        yield Case(f"{name} streams", "/v1/messages", {**ASK, "stream": True}, headers=[*ROOT, origin])
        yield Case(f"{name} sends nonsense", "/v1/messages", b"{", headers=[*ROOT, origin])
        yield get("/admin/nothing", f"{name} reads", headers=[*ROOT, origin])
    raw = b"GET /v1/messages HTTP/1.1\r\nhost: a\r\norigin: https://app.example.com\r\n" + b"a: b\r\n" * 101 + b"\r\n"
    yield Case("a page sends too many headers", "/v1/messages", method="RAW", raw=raw)
    yield get("/admin/nothing", "any name will do", headers=[("host", "host.docker.internal:8000"), *ROOT])
