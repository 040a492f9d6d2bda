"""What is the same on every route: methods, media, JSON, keys, hosts, origins, and HTTP that is none."""

from collections.abc import Iterator
from dataclasses import replace

from tests.golden.case import MODEL, Case, Json, get, user

CHAT = "/v1/chat/completions"
ASK: Json = {"model": MODEL, "messages": [user("Hello")], "seed": 1, "max_tokens": 2}
PATHS = (
    "/v1/chat/completions", "/v1/chat/completions/a", "/v1/chat/completions/a/messages", "/v1/completions",
    "/v1/responses", "/v1/responses/input_tokens", "/v1/responses/compact", "/v1/responses/a",
    "/v1/responses/a/cancel", "/v1/responses/a/input_items", "/v1/conversations", "/v1/conversations/a",
    "/v1/conversations/a/items", "/v1/conversations/a/items/b", "/v1/embeddings", "/v1/rerank", "/v1/models",
    "/v1/models/a", "/tokenize", "/detokenize", "/apply-template", "/health", "/ready", "/metrics",
)  # fmt: skip
READING = (
    "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/responses/input_tokens", "/v1/responses/compact",
    "/v1/conversations", "/v1/conversations/a/items", "/v1/conversations/a", "/v1/chat/completions/a", "/v1/embeddings",
    "/v1/rerank", "/tokenize", "/detokenize", "/apply-template",
)  # fmt: skip
DEEP = b'{"a":' * 64
BODIES: dict[str, bytes] = {
    "nothing": b"",
    "null": b"null",
    "a list": b"[]",
    "a text": b'"text"',
    "half an object": b"{",
    "single quotes": b"{'a': 1}",
    "something after it": b'{"a": 1} x',
    "a BOM": b'\xef\xbb\xbf{"a": 1}',
    "no UTF-8": b'{"a": "\xff"}',
    "NaN": b'{"a": NaN}',
    "infinity": b'{"a": [1, -Infinity]}',
    "too large a float": b'{"a": 1e999}',
    "too large an integer": b'{"a": 9223372036854775808}',
    "too large an integer in a list": b'{"a": [0, 9223372036854775808]}',
    "far too large an integer": b'{"a": ' + b"1" * 5000 + b"}",
    "a key twice": b'{"a": 1, "a": 2}',
    "a strange key twice": b'{"a": {"b\\u0000": 1, "b\\u0000": 2}}',
    "half a character": b'{"a": "\\ud800"}',
    "half a character as key": b'{"a": {"\\udc00": 1}}',
    "half a character after a whole one": b'{"a": [1, "\\ud83d\\ude00", "\\ud83d"]}',
    "64 levels": DEEP + b"1" + b"}" * 64,
    "65 levels": DEEP + b"{}" + b"}" * 64,
    "65 levels, the last a list": DEEP + b"[]" + b"}" * 64,
    "65 lists": b"[" * 65 + b"]" * 65,
    "far too many levels": b"[" * 100_000,
    "a control character": b'{"a": "\x01"}',
}
MEDIA: tuple[tuple[tuple[str, str | None], ...], ...] = (
    (("content-type", None),),
    (("content-type", "text/plain"),),
    (("content-type", "application/x-www-form-urlencoded"),),
    (("content-type", "application/json"), ("content-type", "application/json")),
    (("content-encoding", "gzip"),),
    (("content-length", "99999999"),),
)
FINE: tuple[tuple[tuple[str, str | None], ...], ...] = (
    (("content-type", "Application/JSON; charset=utf-8"),),
    (("content-encoding", "identity"),),
)
HOSTS = ("example.com", "example.com:80", "10.0.0.1", "", "a b", "localhost@example.com", "[::1", "http://localhost")
OUR_HOSTS = ("localhost", "LOCALHOST:1", "127.0.0.2", "[::1]:8000", "localhost.localdomain")
ORIGINS = ("http://example.com", "null", "https://127.0.0.1", "ftp://localhost", "")
RAW: dict[str, bytes] = {
    "not HTTP": b"hello\r\n\r\n",
    "another version": b"GET /health HTTP/3.0\r\nhost: localhost\r\n\r\n",
    "an address as target": b"GET http://localhost/health HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "an asterisk as target": b"OPTIONS * HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "no host": b"GET /health HTTP/1.1\r\n\r\n",
    "two hosts": b"GET /health HTTP/1.1\r\nhost: localhost\r\nhost: localhost\r\n\r\n",
    "too many headers": b"GET /health HTTP/1.1\r\nhost: localhost\r\n" + b"a: b\r\n" * 101 + b"\r\n",
    "too long a header": b"GET /health HTTP/1.1\r\nhost: localhost\r\na: " + b"b" * 70_000 + b"\r\n\r\n",
    "a header without an end": b"GET /health HTTP/1.1\r\nhost: localhost\r\na: " + b"b" * 70_000,
    "HTTP/2.0": b"GET /health HTTP/2.0\r\nhost: localhost\r\n\r\n",
    "two at once": b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n" * 2,
    "HTTP/1.0": b"GET /health HTTP/1.0\r\nhost: localhost\r\n\r\n",
    "an upgrade": b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
    "a length that is none": b"POST /tokenize HTTP/1.1\r\nhost: localhost\r\ncontent-length: x\r\n\r\n",
    "in chunks": b"POST /tokenize HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    b'transfer-encoding: chunked\r\n\r\n7\r\n{"promp\r\n9\r\nt": "Hi"}\r\n0\r\n\r\n',
    "a method of its own": b"BREW /health HTTP/1.1\r\nhost: localhost\r\n\r\n",
}


def cases() -> Iterator[Case]:
    for path in PATHS:
        for method in ("OPTIONS", "HEAD", "PUT", "PATCH", "DELETE", "GET", "POST"):
            yield Case(f"{method} {path}", path, method=method)
    for path in (
        "/v1",
        "/v1/",
        "/v1/models/",
        "/v1//models",
        "/V1/models",
        "/health/",
        "/redoc",
        "/v1/audio/speech",
    ):
        yield get(path)
    yield Case("POST to no path", "/nothing", {})
    yield from _bodies()
    yield from _keys()
    yield from _hosts()
    for name, raw in RAW.items():
        yield Case(f"raw: {name}", "/health", method="RAW", raw=raw)


def _bodies() -> Iterator[Case]:
    for path in READING:
        for body in (b"{", b"[]", b'{"a": 1, "a": 2}', b'{"unknown": 1}'):
            yield Case(f"{path} refuses {body.decode()}", path, body)
        yield Case(f"{path} refuses text", path, b"{}", headers=[("content-type", "text/plain")])
    for name, body in BODIES.items():
        yield Case(f"JSON: {name}", CHAT, body)
    for headers in MEDIA:
        yield Case(f"media: {headers}", CHAT, b"{}", headers=headers)
    for headers in FINE:
        yield Case(f"media that is fine: {headers}", CHAT, ASK, headers=headers)


def _keys() -> Iterator[Case]:
    for path in PATHS:
        yield Case(f"{path} without a key", path, method="GET", server="keyed")
    yield get("/nothing", "no path without a key", server="keyed")
    anna, ben = ("authorization", "Bearer key-of-anna"), ("x-api-key", "key-of-ben")
    model = Case("", "/v1/models", method="GET", server="keyed")
    for headers in ([anna], [ben], [("Authorization", "bearer  key-of-anna ")], [anna, ben], [anna, anna],
                    [("authorization", "key-of-anna")], [("authorization", "Basic key-of-anna")], [("x-api-key", "")],
                    [("authorization", "Bearer key-of-ann")], [("x-api-key", "schlüssel")]):  # fmt: skip
        yield replace(model, name=f"a key as {headers}", headers=headers)
    yield replace(
        model, name="a wrong key for a post", path=CHAT, method="POST", body=ASK, headers=[("x-api-key", "a")]
    )
    yield replace(model, name="a wrong key for a long post", path=CHAT, method="POST", body=b" " * 70_000)


def _hosts() -> Iterator[Case]:
    for host in (*HOSTS, *OUR_HOSTS):
        yield get("/v1/models", f"host {host!r}", headers=[("host", host)])
    post = Case("", "/tokenize", {"prompt": "Hi"})
    for origin in ORIGINS:
        yield replace(post, name=f"origin {origin!r}", headers=[("origin", origin)])
    yield replace(post, name="its own origin", headers=[("host", "localhost"), ("origin", "http://LOCALHOST")])
    for site in ("cross-site", "same-origin", "none"):
        yield replace(post, name=f"from {site}", headers=[("sec-fetch-site", site)])
    yield get(
        "/v1/models", "reading from elsewhere", headers=[("origin", "http://a.com"), ("sec-fetch-site", "cross-site")]
    )
