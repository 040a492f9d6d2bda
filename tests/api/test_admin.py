"""The admin routes: who may use them, what they show, and that they stop what runs."""

import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.routing import Route

from proxy_inference_engine.config import ApiKey, Config, load_config
from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.engine.worker import Worker
from proxy_inference_engine.pool.entry import PoolEntry
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.served.model import ServedModel
from proxy_inference_engine.server.app import create_app
from proxy_inference_engine.server.http.guard import KeyKind, kind_of
from proxy_inference_engine.server.http.sse import Patience
from proxy_inference_engine.store import Store
from tests.api.pools import PoolServer, pool_server
from tests.api.running import HELLO, MODEL, Running, running
from tests.api.test_keys import PUBLIC, all_routes
from tests.polling import HANG_S, wait_until

KEYS = (ApiKey("anna", "key-of-anna"), ApiKey("ben", "key-of-ben"), ApiKey("root", "key-of-root", is_admin=True))
METRICS_KEY = ApiKey("metrics", "key-of-prometheus")
ANNA, ROOT = {"x-api-key": "key-of-anna"}, {"x-api-key": "key-of-root"}
CANARY = "canary in a coal mine"
# Which kind of key a route needs. All others need a user's.
NEEDS: dict[KeyKind, set[str]] = {
    "public": PUBLIC,
    "metrics": {"/metrics"},
    "admin": {
        *("/admin/keys/reload", "/admin/reload", "/admin/requests", "/admin/requests/{request_id}/cancel"),
        *("/admin/usage", "/admin/models", "/admin/models/events", "/admin/models/{model_id:path}/load"),
        *("/admin/models/{model_id:path}/unload", "/admin/models/{model_id:path}/pin"),
        *("/admin/models/{model_id:path}/unpin", "/admin/stats", "/admin/cache", "/admin/fit", "/admin/hub/search"),
        *("/admin/hub/files", "/admin/pulls", "/admin/pulls/events", "/admin/pulls/{pull_id}/cancel", "/admin/stop"),
    },
}
ENDS = "/admin/stop"  # after which there is no server for the next test
# What each caller gets to hear, by what a route needs; None: it is let in.
CALLERS: dict[str, tuple[str | None, dict[KeyKind, int | None]]] = {
    "nobody": (None, {"public": None, "user": 401, "metrics": 401, "admin": 401}),
    "a stranger": ("key-of-nobody", {"public": None, "user": 401, "metrics": 401, "admin": 401}),
    "a user": ("key-of-anna", {"public": None, "user": None, "metrics": 403, "admin": 403}),
    "prometheus": ("key-of-prometheus", {"public": None, "user": 401, "metrics": None, "admin": 401}),
    "an admin": ("key-of-root", {"public": None, "user": None, "metrics": None, "admin": None}),
}


class Gate:
    """A runner whose passes wait until they may go on."""

    def __init__(self) -> None:
        self.is_open = threading.Event()
        self.runner = FakeRunner(on_forward=lambda _rows: self._wait(), end_bias=-100)

    def _wait(self) -> None:
        self.is_open.wait()


@contextmanager
def gated(config: Config) -> Iterator[tuple[Running, Gate]]:
    gate = Gate()
    with running(gate.runner, config) as live:
        try:
            yield live, gate
        finally:
            gate.is_open.set()


@pytest.fixture(scope="module")
def guarded() -> Iterator[Running]:
    with running(config=Config(api_keys=KEYS, metrics_key=METRICS_KEY, drain_seconds=0.2)) as live:
        yield live


def needed(route: Route) -> KeyKind:
    """By the table above, and what is the operator's is recognised by its path."""
    if route.path.startswith("/admin/"):
        return "admin"
    return next((kind for kind, paths in NEEDS.items() if route.path in paths), "user")


def test_the_table_is_that_of_the_app() -> None:
    routes = all_routes()
    assert set().union(*NEEDS.values()) <= {route.path for route in routes}
    for route in routes:
        assert kind_of(route.path) == needed(route)
        # Nobody can put an admin's function under a path that a user's key opens.
        assert (".apis.admin." in route.endpoint.__module__) == (needed(route) == "admin")


@pytest.mark.parametrize("caller", CALLERS)
def test_every_route_needs_the_right_kind_of_key(guarded: Running, caller: str) -> None:
    key, expected = CALLERS[caller]
    with guarded.http(headers={} if key is None else {"authorization": f"Bearer {key}"}) as http:
        for route in all_routes():
            kind = needed(route)
            path = route.path.replace("{model_id:path}", "nobody").replace("{", "").replace("}", "")
            for method in route.methods or set():
                if path == ENDS and expected[kind] is None:
                    continue
                with http.stream(method, path) as answer:  # one of them never ends
                    status = answer.status_code
                assert status == expected[kind] or (expected[kind] is None and status not in (401, 403)), (method, path)
                assert status < 500, (method, path, status)


@pytest.mark.parametrize("kind", ["admin", "metrics"])
def test_a_user_is_told_which_key_is_missing(guarded: Running, kind: KeyKind) -> None:
    with guarded.http(headers=ANNA) as http:
        error = http.get(min(NEEDS[kind])).json()["error"]
    assert error["type"] == "permission_error" and error["code"] == f"{kind}_key_needed"


def test_the_log_says_whose_key_was_not_enough(guarded: Running, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    with guarded.http(headers=ANNA) as http:
        assert http.get("/admin/usage").status_code == 403
    lines = [record.fields for record in caplog.records if hasattr(record, "fields")]
    assert [line["key"] for line in lines if line.get("code") == "admin_key_needed"] == ["anna"]


@pytest.mark.parametrize(
    "path",
    ["//admin/usage", "/admin//usage", "/Admin/usage", "/admin/usage/", "/admin/../admin/usage", "/admin/usage;x",
     "/health/../admin/usage", "/admin%2fusage", "/%61dmin/usage", "/v1/models/../../admin/usage", "/admin", "/admin/",
     "/admin/nothing", "/admin/requests/x/cancel/", "/metrics/", "/%6detrics"],
)  # fmt: skip
def test_path_tricks_open_no_admin_route(guarded: Running, path: str) -> None:
    for headers, allowed in (({}, {401}), (ANNA, {403, 404}), (ROOT, {200, 404, 405})):
        with guarded.http(headers=headers) as http:
            tricks = {"x-original-url": "/health", "x-http-method-override": "GET", "x-forwarded-prefix": "/admin"}
            request = http.build_request("GET", "/", headers=tricks)
            request.url = request.url.copy_with(raw_path=path.encode())
            answer = http.send(request)
            assert answer.status_code in allowed, (path, headers)
            # A plain spelling of an admin route is one, whichever way its letters are written.
            assert headers != ANNA or answer.status_code == 403 or "usage" not in answer.text


def test_without_keys_the_local_user_is_the_admin(http: httpx.Client) -> None:
    for path in ("/admin/usage", "/admin/requests", "/metrics"):
        assert http.get(path).status_code == 200
    assert http.get("/admin/usage", headers={"x-api-key": "anything"}).status_code == 200


REFUSED: list[tuple[dict[str, str], set[int]]] = [
    ({"host": "evil.example"}, {403}),
    ({"origin": "http://evil.com"}, {403}),
    ({"origin": "null", "sec-fetch-site": "cross-site"}, {403}),
    ({"upgrade": "websocket", "connection": "upgrade"}, {400}),
]


@pytest.mark.parametrize(("headers", "status"), REFUSED)
def test_no_foreign_page_ends_the_server(http: httpx.Client, headers: dict[str, str], status: set[int]) -> None:
    for _ in range(2):  # the second would find nobody
        assert http.post(ENDS, headers=headers).status_code in status


def test_without_keys_nobody_ends_it_from_afar() -> None:
    config = Config(trusted_proxies=("127.0.0.1",), drain_seconds=0.2)  # type: ignore[arg-type]  # parsed
    with running(config=config) as live, live.http() as http:
        refused = http.post(ENDS, headers={"x-forwarded-for": "203.0.113.5"})
        assert refused.status_code == 403 and refused.json()["error"]["code"] == "not_local"
        assert http.post(ENDS).json() == {"object": "server", "stopping": True, "num_running": 0}
        wait_until(lambda: live.server.server_state.connections == set() and not _is_listening(live))


def _is_listening(live: Running) -> bool:
    with suppress(OSError), socket.create_connection(live.address):
        return True
    return False


async def test_a_server_that_another_program_runs_is_not_ended() -> None:
    model = ServedModel.of(Worker(StepEngine(FakeRunner(), max_cache_bytes=0)), Config())
    transport = httpx.ASGITransport(create_app([model], Config()))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
        refused = await http.post(ENDS)
    assert refused.status_code == 400 and "another program" in refused.text


@pytest.mark.parametrize("path", sorted(NEEDS["admin"] - {ENDS}))
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        *REFUSED,
        ({"range": "bytes=" + ",".join(f"{n}-{n}" for n in range(5000))}, {200, 400, 404, 405, 415}),
        ({"content-type": "text/plain"}, {200, 400, 404, 405, 415}),
    ],
)
def test_attacks_on_admin_routes(http: httpx.Client, path: str, headers: dict[str, str], status: set[int]) -> None:
    """Also of those that only read: a page may send them, and could not read the answer."""
    for method in ("POST", "DELETE", "PUT", "PATCH", "TRACE"):
        answer = http.request(method, path, headers=headers, content=b"{" if method != "TRACE" else b"")
        assert answer.status_code in status | {405}
        assert set(answer.json()["error"] if answer.is_error else {}) <= {"message", "type", "param", "code"}
        assert not [name for name in answer.headers if name.startswith("access-control-")]
    assert http.get("/health").status_code == 200


@pytest.mark.parametrize("id_", ["x", "1", "%00", "..%2f..", "%0d%0aa:b", "a" * 5000, "%F0%9F%98%80", "'--", "*"])
def test_ids_that_nothing_has(http: httpx.Client, id_: str) -> None:
    answer = http.post(f"/admin/requests/{id_}/cancel")
    assert answer.status_code == 404
    assert len(answer.text) < 400


def ask(path: str, stream: bool) -> dict[str, Any]:
    limit = {"/v1/responses": "max_output_tokens"}.get(path, "max_tokens")
    said: dict[str, Any] = {"input": CANARY} if path == "/v1/responses" else {"messages": HELLO}
    if path == "/v1/completions":
        said = {"prompt": CANARY}
    return {"model": MODEL, limit: 500, "stream": stream, **said}


def listed(http: httpx.Client) -> list[dict[str, Any]]:
    answer = http.get("/admin/requests").json()
    assert answer["object"] == "list"
    data: list[dict[str, Any]] = answer["data"]
    return data


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"])
def test_a_running_request_is_listed_and_cancelled(path: str, stream: bool) -> None:
    config = Config(api_keys=KEYS, drain_seconds=0.2)
    with gated(config) as (live, gate), live.http(headers=ROOT) as root, ThreadPoolExecutor() as pool:
        named = {**ANNA, "x-request-id": "one"}
        with live.http(headers=named) as http:
            running_one = pool.submit(http.post, path, json=ask(path, stream))
            wait_until(lambda: [each for each in listed(root) if each["state"] == "waiting"])
            [entry] = listed(root)
            assert CANARY not in json.dumps(entry)
            seen = {name: entry[name] for name in ("object", "request_id", "key", "route", "model")}
            assert seen == {"object": "request", "request_id": "one", "key": "anna", "route": path, "model": MODEL}
            assert entry["prompt_tokens"] > 0 and entry["completion_tokens"] == 0 and entry["seconds"] >= 0
            # Neither what the client calls it nor a part of our id will do.
            for wrong in ("one", entry["id"][:-1], entry["id"] + "0", entry["id"].upper() + "x"):
                assert root.post(f"/admin/requests/{wrong}/cancel").status_code == 404
            answer = root.post(f"/admin/requests/{entry['id']}/cancel")
            assert answer.json() == {"id": entry["id"], "object": "request", "cancelled": True}
            response = running_one.result(timeout=HANG_S)
            gate.is_open.set()
        check_cancelled(response, path, stream)
        wait_until(lambda: not listed(root))
        assert root.post(f"/admin/requests/{entry['id']}/cancel").status_code == 404
        live.wait_idle()
        usage = {each["key"]: each for each in root.get("/admin/usage").json()["data"]}
        assert usage["anna"]["requests"] == 1 and usage["anna"]["prompt_tokens"] == entry["prompt_tokens"]


def check_cancelled(response: httpx.Response, path: str, stream: bool) -> None:
    """It never looks like an answer that is whole."""
    assert response.status_code == (200 if stream else 403)
    assert "The operator of this server cancelled the request." in response.text
    if path == "/v1/messages":
        assert "permission_error" in response.text and ("event: error" in response.text) == stream
    else:
        assert "request_cancelled" in response.text
    if path == "/v1/responses" and stream:
        assert "event: response.failed" in response.text
    assert 'finish_reason":"' not in response.text and "response.completed" not in response.text


def test_a_request_whose_body_never_comes_is_cancelled_too() -> None:
    with gated(Config(drain_seconds=0.2)) as (live, _), live.http() as http, ThreadPoolExecutor() as pool:
        enough = threading.Event()

        def body() -> Iterator[bytes]:
            yield b"{"
            enough.wait()

        headers = {"content-type": "application/json"}
        slow = pool.submit(httpx.post, f"{live.url}/v1/completions", content=body(), headers=headers, timeout=HANG_S)
        wait_until(lambda: listed(http))
        [entry] = listed(http)
        assert entry["state"] == "preparing" and entry["model"] is None and entry["key"] == "local"
        assert http.post(f"/admin/requests/{entry['id']}/cancel").status_code == 200
        wait_until(lambda: not listed(http))
        enough.set()
        with suppress(httpx.TransportError):  # the server answered and hung up while the client was still writing
            assert slow.result(timeout=HANG_S).status_code == 403


def test_embeddings_are_cancelled_too() -> None:
    go_on = threading.Event()

    def wait(_number: int) -> None:
        go_on.wait()

    runner = FakeRunner(on_embed=wait)
    try:
        with running(runner) as live, live.http() as http, ThreadPoolExecutor() as pool:
            asked = pool.submit(http.post, "/v1/embeddings", json={"model": MODEL, "input": "Hello"})
            wait_until(lambda: [each for each in listed(http) if each["model"]])
            [entry] = listed(http)
            http.post(f"/admin/requests/{entry['id']}/cancel")
            assert asked.result(timeout=HANG_S).status_code == 403
            go_on.set()
    finally:
        go_on.set()


def test_a_response_in_the_background_is_listed_and_cancelled() -> None:
    with gated(Config(api_keys=KEYS, drain_seconds=0.2)) as (live, gate), live.http(headers=ROOT) as root:
        with live.http(headers=ANNA) as anna:
            body = {"model": MODEL, "input": CANARY, "background": True}
            id_ = anna.post("/v1/responses", json=body).json()["id"]
            [entry] = listed(root)
            assert entry["id"] == id_ and entry["key"] == "anna" and entry["model"] == MODEL
            assert entry["route"] == "/v1/responses" and CANARY not in json.dumps(entry)
            assert root.get(f"/v1/responses/{id_}").status_code == 404, "to read it is still its owner's"
            assert root.post(f"/admin/requests/{id_}/cancel").json()["cancelled"] is True
            gate.is_open.set()
            wait_until(lambda: anna.get(f"/v1/responses/{id_}").json()["status"] == "cancelled")
        wait_until(lambda: not listed(root))
        assert root.post(f"/admin/requests/{id_}/cancel").status_code == 404


def test_a_response_in_the_background_that_is_looked_at_is_one_request() -> None:
    """`pie ps` and the dashboard had two lines for each answer of the page, and said that two use the model."""
    with gated(Config(drain_seconds=0.2)) as (live, gate), live.http() as http:
        body = {"model": MODEL, "input": "Hello", "background": True, "stream": True}
        with http.stream("POST", "/v1/responses", json=body) as answer:
            next(answer.iter_lines())
            [entry] = listed(http)
            assert entry["id"].startswith("resp_")
            [model] = http.get("/admin/models").json()["data"]
            assert model["running"] == 1
            gate.is_open.set()


def test_usage_is_counted_by_key_and_survives(tmp_path: Path) -> None:
    config = Config(api_keys=KEYS, drain_seconds=0.2)
    counted = [0, 0, 0]
    body = {"model": MODEL, "messages": [{"role": "user", "content": "Hello " * 60}], "max_tokens": 5}
    for _ in range(2):  # two servers, one after the other
        with closing(Store.open(tmp_path / "store.db")) as store, running(config=config, store=store) as live:
            with live.http(headers=ANNA) as http:
                for stream in (False, True):
                    wish = {**body, "stream": stream, "stream_options": {"include_usage": True} if stream else None}
                    text = http.post("/v1/chat/completions", json=wish).text
                    last = text.removesuffix("\n\ndata: [DONE]\n\n").rpartition("data: ")[2] if stream else text
                    usage = json.loads(last)["usage"]
                    counted[0] += usage["prompt_tokens"]
                    counted[1] += usage["prompt_tokens_details"]["cached_tokens"]
                    counted[2] += usage["completion_tokens"]
                http.post("/v1/chat/completions", json={"model": "other", "messages": []})
                http.get("/v1/models")
            with live.http(headers=ROOT) as root:
                anna = {each["key"]: each for each in root.get("/admin/usage").json()["data"]}["anna"]
                metrics = root.get("/metrics").text
    assert anna == {
        "key": "anna",
        "requests": 4,
        "prompt_tokens": counted[0],
        "cached_tokens": counted[1],
        "completion_tokens": counted[2],
    }
    assert counted[1] > 0
    assert 'pie_key_requests_total{key="anna"} 2.0' in metrics, "since the start, as Prometheus wants it"


def test_embeddings_count_and_metrics_have_no_name_of_a_client() -> None:
    with running(config=Config(api_keys=KEYS, drain_seconds=0.2)) as live, live.http(headers=ROOT) as root:
        with live.http(headers=ANNA) as http:
            tokens = http.post("/v1/embeddings", json={"model": MODEL, "input": "Hello"}).json()["usage"][
                "total_tokens"
            ]
        for name in range(50):
            key = f"canary-{name}"
            root.get("/v1/models", headers={"x-api-key": key, "x-request-id": key, "user-agent": key})
        [usage] = root.get("/admin/usage").json()["data"]
        text = root.get("/metrics").text
    assert usage["key"] == "anna" and usage["prompt_tokens"] == tokens and usage["completion_tokens"] == 0
    assert "canary" not in text and text.count("pie_key_requests_total{") == 1


def test_keys_are_read_again_while_answers_run(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("anna:key-of-anna\nroot:key-of-root admin\n")
    path.chmod(0o600)
    config = load_config({"api_key_file": str(path)}, {"PIE_DRAIN_SECONDS": "0.2"}, tmp_path)
    runner = FakeRunner(end_bias=-100, step_seconds=lambda _: 0.002)
    with running(runner, config) as live, live.http(headers=ROOT) as root, live.http(headers=ANNA) as anna:
        body = {"model": MODEL, "messages": HELLO, "max_tokens": 300, "stream": True}
        with anna.stream("POST", "/v1/chat/completions", json=body) as stream:
            lines = stream.iter_lines()
            next(lines)
            path.write_text("# anna is gone\nroot:key-of-root admin\ndora:key-of-dora\n")
            answer = root.post("/admin/keys/reload")
            assert answer.json() == {"object": "keys", "num_keys": 2}
            assert anna.get("/v1/models").status_code == 401
            assert root.get("/v1/models", headers={"x-api-key": "key-of-dora"}).status_code == 200
            rest = list(lines)
            assert rest[-2] == "data: [DONE]" and '"finish_reason":"length"' in "".join(rest)
        path.write_text("nonsense\n")
        refused = root.post("/admin/keys/reload")
        assert refused.status_code == 400 and refused.json()["error"]["code"] == "invalid_key_file"
        assert str(tmp_path) not in refused.text and root.get("/admin/usage").status_code == 200
        # Without anybody asking: the file is looked at about once a second.
        path.write_text("root:key-of-root admin\nanna:key-of-anna\n")
        wait_until(lambda: anna.get("/v1/models").status_code == 200)
        assert root.get("/v1/models", headers={"x-api-key": "key-of-dora"}).status_code == 401


@pytest.mark.parametrize("path", ["/admin/models/events", "/admin/pulls/events"])
def test_who_is_an_admin_no_more_watches_no_longer(tmp_path: Path, path: str) -> None:
    keys = tmp_path / "keys"
    keys.write_text("eve:key-of-eve admin\nroot:key-of-root admin\n")
    keys.chmod(0o600)
    config = load_config({"api_key_file": str(keys)}, {"PIE_DRAIN_SECONDS": "0.2"}, tmp_path)
    with running(config=config) as live, live.http(headers={"x-api-key": "key-of-eve"}) as eve:
        with eve.stream("GET", path) as stream:
            lines = stream.iter_lines()
            assert next(lines).startswith("data: {")
            keys.write_text("eve:key-of-eve\nroot:key-of-root admin\n")
            rest = "".join(lines)  # which would never end
        assert '"code":"invalid_api_key"' in rest


def test_there_may_be_no_file_to_read_again(http: httpx.Client) -> None:
    answer = http.post("/admin/keys/reload")
    assert answer.status_code == 400 and "no key file" in answer.json()["error"]["message"]


PAGE = "https://app.example.com"


@pytest.fixture
def loading() -> Iterator[PoolServer]:
    """Its model is never loaded, and it says so every moment."""
    config = Config(drain_seconds=0.2, allowed_origins=PAGE, limits={"requests_per_day": 5})  # type: ignore[arg-type]  # parsed
    hasty = Patience(first_ping_s=0.02, next_ping_s=0.02)
    with pool_server(PoolEntry("slow", config), patience=hasty, config=config) as server:
        gate = server.loader.gates["slow"] = threading.Event()
        try:
            yield server
        finally:
            gate.set()


def test_a_request_that_waits_for_its_model_is_cancelled(loading: PoolServer) -> None:
    body = {"model": "slow", "messages": HELLO, "max_tokens": 3}
    with loading.live.http() as http, ThreadPoolExecutor() as pool:
        asked = pool.submit(http.post, "/v1/messages", json=body)
        wait_until(lambda: loading.pool.find("slow").num_waiting)
        [entry] = listed(http)
        assert entry["model"] == "slow" and entry["state"] == "preparing"
        assert http.post(f"/admin/requests/{entry['id']}/cancel").status_code == 200
        check_cancelled(asked.result(timeout=HANG_S), "/v1/messages", stream=False)
        wait_until(lambda: not loading.pool.find("slow").num_waiting)


def test_a_stream_that_was_begun_early_has_all_headers_and_is_cancelled(loading: PoolServer) -> None:
    body = {"model": "slow", "messages": HELLO, "max_tokens": 3, "stream": True}
    with loading.live.http() as http:
        with http.stream("POST", "/v1/messages", json=body, headers={"origin": PAGE}) as answer:
            assert answer.headers["access-control-allow-origin"] == PAGE and answer.headers["request-id"]
            assert answer.headers["anthropic-ratelimit-requests-remaining"] == "4"
            lines = answer.iter_lines()
            assert next(lines).startswith(": slow")
            [entry] = listed(http)
            http.post(f"/admin/requests/{entry['id']}/cancel")
            rest = "\n".join(lines)
        assert "event: error" in rest and "The operator of this server cancelled the request." in rest
        wait_until(lambda: not loading.pool.find("slow").num_waiting)
