"""Attacks on every route there is, listed by the app itself: what is added is attacked from its first day."""

import json
import re
from collections.abc import Iterator

import httpx
import pytest

from proxy_inference_engine.config import Config
from tests.api.running import HELLO, MODEL, Running, running
from tests.api.test_keys import all_routes

ENDS = "/admin/stop"  # after which there is no server for the next test
JSON = {"content-type": "application/json"}
BODIES: dict[str, bytes] = {
    "nothing": b"",
    "half": b'{"model": ',
    "a list": b"[]",
    "a number": b"1",
    "null": b"null",
    "no number": b'{"model": "fake", "temperature": NaN}',
    "no finite number": b'{"model": "fake", "limit": 1e999}',
    "half a character": b'{"model": "\\ud800", "input": "\\udfff", "purpose": "\\ud800"}',
    "no character": b'{"model": "\xff\xfe"}',
    "a zero byte": b'{"model": "a\\u0000b", "name": "\\u0000", "input": "\\u0000", "metadata": {"\\u0000": "\\u0000"}}',
    "a mark before": b"\xef\xbb\xbf{}",
    "more behind": b"{} {}",
    "twice the same": b'{"model": "fake", "model": "other"}',
    "many digits": b'{"model": ' + b"9" * 5000 + b"}",
    "deep lists": b"[" * 100_000,
    "deep objects": b'{"a":' * 100_000,
    "another type everywhere": json.dumps(
        {key: [{}] for key in ("model", "input", "messages", "prompt", "items", "metadata", "schema", "type", "name")}
    ).encode(),
    "paths": json.dumps(dict.fromkeys(("model", "name", "source", "input_file_id"), "../../etc/passwd")).encode(),
}
NEVER_JSON = {"half", "no number", "no character", "more behind", "deep lists", "deep objects"}
HEADERS: dict[str, tuple[dict[str, str], int]] = {
    "a foreign page": ({"origin": "http://evil.example"}, 403),
    "a page without a name": ({"origin": "null", "sec-fetch-site": "cross-site"}, 403),
    "a name that was rebound": ({"host": "evil.example"}, 403),
    "another protocol": ({"upgrade": "websocket", "connection": "upgrade"}, 400),
}
PLACE = re.compile(r"\{\w+(:path)?\}")
QUERIES = (
    "limit=-1&order=sideways&after=%00&before=%ff",
    "limit=1e9&purpose=%F0%9F%98%80&model=..%2f..&nodes=99999999999999999999&q=%00",
    "&".join(f"x{number}=1" for number in range(500)),
)


@pytest.fixture(scope="module")
def live() -> Iterator[Running]:
    with running(config=Config(offline=True, drain_seconds=0.2)) as server:
        yield server
        with server.http() as http:
            answer = http.post("/v1/chat/completions", json={"model": MODEL, "messages": HELLO, "max_tokens": 3})
            assert answer.status_code == 200 and http.get("/ready").status_code == 200
        server.wait_idle()


@pytest.fixture(scope="module")
def http(live: Running) -> Iterator[httpx.Client]:
    with live.http() as client:
        yield client


def paths_with(method: str) -> list[str]:
    return sorted({route.path for route in all_routes() if method in (route.methods or ()) and route.path != ENDS})


def filled(path: str) -> str:
    """Ids that nothing has."""
    return PLACE.sub("x", path)


def check(path: str, answer: httpx.Response) -> None:
    """Nobody's fault but the client's, in the shape that clients of the path read, and no word too much."""
    assert answer.status_code < 500, answer.text
    if not answer.is_error:
        return
    body = answer.json()
    if path.startswith("/api"):
        assert body.keys() == {"error"} and isinstance(body["error"], str)
    elif path.startswith("/v1/messages"):
        assert body["type"] == "error" and body["error"].keys() >= {"type", "message"}
    else:
        assert body.keys() == {"error"} and body["error"].keys() == {"message", "type", "param", "code"}
    assert len(answer.text) < 2000 and "Traceback" not in answer.text and 'File "' not in answer.text


@pytest.mark.parametrize("path", paths_with("POST"))
def test_bodies(http: httpx.Client, path: str) -> None:
    for name, body in BODIES.items():
        answer = http.post(filled(path), content=body, headers=JSON)
        check(path, answer)
        assert answer.is_error or name not in NEVER_JSON, (name, answer.text)


@pytest.mark.parametrize("path", paths_with("POST"))
def test_kinds_of_bodies_and_callers(http: httpx.Client, path: str) -> None:
    for headers in ({"content-type": "text/plain"}, {**JSON, "content-encoding": "gzip"}):
        check(path, http.post(filled(path), content=b"{}", headers=headers))
    for headers, status in HEADERS.values():
        answer = http.post(filled(path), content=b"{", headers={**JSON, **headers})
        check(path, answer)
        assert answer.status_code == status


@pytest.mark.parametrize("path", paths_with("GET"))
def test_queries(http: httpx.Client, path: str) -> None:
    for query in QUERIES:
        with http.stream("GET", f"{filled(path)}?{query}") as answer:  # some never end
            if answer.is_error:
                answer.read()
            assert answer.status_code < 500
            if answer.is_error and not path.startswith("/page"):
                check(path, answer)


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
@pytest.mark.parametrize("id_", ["%00", "..%2f..%2fetc%2fpasswd", "a" * 5000, "%F0%9F%98%80", "*", "'--", "%0d%0aa:b"])
def test_ids(http: httpx.Client, method: str, id_: str) -> None:
    for path in paths_with(method):
        if "{" in path:
            request = http.build_request(method, "/", content=b"{}" if method == "POST" else None, headers=JSON)
            request.url = request.url.copy_with(raw_path=PLACE.sub(lambda _: id_, path).encode())
            check(path, http.send(request))


def test_routes_are_listed() -> None:
    assert {"/v1/batches", "/v1/files", "/v1/schemas/check", "/admin/pulls", "/api/chat"} <= set(paths_with("POST"))
