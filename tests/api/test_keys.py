"""Deny by default: every route but health, readiness and the pages needs a key, however the path is written."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest
from starlette.routing import Route
from starlette.testclient import TestClient

from proxy_inference_engine.config import ApiKey, Config
from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.engine.worker import Worker
from proxy_inference_engine.runners.base import Lane
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.served.model import ServedModel
from proxy_inference_engine.server.app import create_app
from tests.api.running import HELLO, MODEL, Running, running

KEYS = (ApiKey("anna", "key-of-anna"), ApiKey("ben", "key-of-ben"))
PUBLIC = {
    "/health",
    "/v1/health",
    "/ready",
    "/",
    "/page/settings.json",
    "/page/{version}/{name}",
    "/docs",
    "/openapi.json",
}


@pytest.fixture(scope="module")
def guarded() -> Iterator[Running]:
    with running(config=Config(api_keys=KEYS, drain_seconds=0.2)) as live:
        yield live


def all_routes() -> list[Route]:
    app = create_app([ServedModel.of(Worker(StepEngine(FakeRunner(), max_cache_bytes=0)), Config())], Config())
    return [route for route in app.routes if isinstance(route, Route)]


@pytest.mark.parametrize("route", all_routes(), ids=lambda route: route.path)
def test_every_route_needs_a_key(guarded: Running, route: Route) -> None:
    path = route.path.replace("{model_id:path}", MODEL)
    with guarded.http() as http:
        for method in route.methods or set():
            response = http.request(method, path)
            assert (response.status_code == 401) == (path not in PUBLIC), (method, path, response.status_code)


@pytest.mark.parametrize(
    "path",
    ["//v1/models", "/v1/../v1/models", "/V1/models", "/v1/models/", "/v1/%6dodels", "/v1/models;x", "/health/x",
     "/health/../v1/models", "/ready%2f..%2fv1/models", "/nothing"],
)  # fmt: skip
def test_path_tricks_do_not_open_a_door(guarded: Running, path: str) -> None:
    with guarded.http() as http:
        request = http.build_request("GET", "/", headers={"x-original-url": "/health", "x-http-method-override": "GET"})
        request.url = request.url.copy_with(raw_path=path.encode())
        assert http.send(request).status_code in (401, 404)


WRONG: list[list[tuple[str, str | bytes]]] = [
    [],
    [("authorization", "")],
    [("authorization", "Bearer")],
    [("authorization", "Bearer x")],
    [("authorization", "bearer key-of-ann")],
    [("authorization", "Basic key-of-anna")],
    [("authorization", "key-of-anna")],
    [("authorization", "Bearer key-of-anna"), ("authorization", "Bearer key-of-anna")],
    [("authorization", "Bearer key-of-anna"), ("x-api-key", "key-of-ben")],
    [("authorization", b"Bearer \xff\xfe")],
    [("x-api-key", "")],
    [("x-api-key", "KEY-OF-ANNA")],
    [("x-api-key", "k" * 60_000)],
]


@pytest.mark.parametrize("headers", WRONG, ids=lambda headers: str(headers)[:60])
def test_a_wrong_key_is_one_kind_of_wrong(guarded: Running, headers: list[tuple[str, str]]) -> None:
    with guarded.http() as http:
        response = http.get("/v1/models?api_key=key-of-anna", headers=headers)
        missing = http.get("/v1/models")
    assert response.status_code == 401
    assert response.json() == missing.json()
    assert response.json()["error"]["code"] == "invalid_api_key"
    assert response.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "headers",
    [{"authorization": "Bearer key-of-anna"}, {"authorization": "bearer key-of-ben"}, {"x-api-key": "key-of-anna"}],
)
def test_both_headers_open_the_same_doors(guarded: Running, headers: dict[str, str]) -> None:
    body = {"model": MODEL, "messages": HELLO, "max_tokens": 3}
    with guarded.http(headers=headers) as http:
        assert http.get("/v1/models").status_code == 200
        assert http.get("/nothing").status_code == 404
        assert http.post("/v1/chat/completions", json=body).status_code == 200


METRICS_KEY = ApiKey("metrics", "key-of-prometheus")


@pytest.mark.parametrize(
    ("keys", "metrics_key", "sent", "status"),
    [
        ((), None, None, 200),
        ((), None, "anything", 200),
        ((), METRICS_KEY, None, 401),
        ((), METRICS_KEY, "anything", 401),
        ((), METRICS_KEY, "key-of-prometheus", 200),
        (KEYS, None, None, 401),
        (KEYS, None, "anything", 401),
        (KEYS, None, "key-of-anna", 403),
        (KEYS, METRICS_KEY, None, 401),
        (KEYS, METRICS_KEY, "key-of-anna", 403),
        (KEYS, METRICS_KEY, "key-of-prometheus", 200),
        (KEYS, KEYS[0], "key-of-anna", 200),
        (KEYS, KEYS[0], "key-of-ben", 403),
    ],
)
def test_metrics_tell_of_everybody_and_have_a_key_of_their_own(
    keys: tuple[ApiKey, ...], metrics_key: ApiKey | None, sent: str | None, status: int
) -> None:
    config = Config(api_keys=keys, metrics_key=metrics_key)
    app = create_app([ServedModel.of(Worker(StepEngine(FakeRunner(), max_cache_bytes=0)), config)], config)
    headers = {} if sent is None else {"authorization": f"Bearer {sent}"}
    with TestClient(app, base_url="http://localhost", headers=headers) as http:
        response = http.get("/metrics")
        models = http.get("/v1/models").status_code
    assert response.status_code == status
    if status == 403:
        assert response.json()["error"]["code"] == "metrics_key_needed"
    if sent == METRICS_KEY.key and keys:
        assert models == 401, "it opens nothing else"


def test_the_official_client_sends_its_key(guarded: Running) -> None:
    with guarded.openai(key="key-of-anna") as client:
        assert client.models.list().data[0].id == MODEL


SECRET = "secret " * 50
TURNS = [{"role": "user", "content": SECRET}]
CACHING: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "/v1/chat/completions": ({"messages": TURNS, "max_tokens": 2}, ("prompt_tokens_details", "cached_tokens")),
    "/v1/completions": ({"prompt": SECRET, "max_tokens": 2}, ("prompt_tokens_details", "cached_tokens")),
    "/v1/responses": ({"input": SECRET, "max_output_tokens": 16}, ("input_tokens_details", "cached_tokens")),
    "/v1/messages": ({"messages": TURNS, "max_tokens": 2}, ("cache_read_input_tokens",)),
}


@pytest.mark.parametrize("path", CACHING)
def test_tenants_do_not_share_the_cache(path: str) -> None:
    fields, place = CACHING[path]

    def cached(key: str) -> int:
        with live.http(headers={"x-api-key": key}) as http:
            found = http.post(path, json={"model": MODEL, **fields}).json()["usage"]
        for name in place:
            found = found[name]
        return int(found)

    with running(config=Config(api_keys=KEYS, drain_seconds=0.2)) as live:
        assert cached("key-of-anna") == 0
        assert cached("key-of-anna") > 300
        assert cached("key-of-ben") == 0


def test_a_key_s_name_is_the_tenant_for_fairness() -> None:
    """One key fills every slot for minutes; another is served within seconds."""
    config = Config(api_keys=KEYS, drain_seconds=0.2)
    runner = FakeRunner(lanes=(Lane(2, 8192),), step_seconds=lambda _: 0.02)
    body = {"model": MODEL, "messages": HELLO, "ignore_eos": True}
    with running(runner, config) as live, ExitStack() as stack:
        greedy = stack.enter_context(live.http(headers={"x-api-key": "key-of-anna"}))
        for _ in range(4):
            wish = {**body, "max_tokens": 4000, "stream": True}
            stack.enter_context(greedy.stream("POST", "/v1/chat/completions", json=wish))
        with live.http(headers={"x-api-key": "key-of-ben"}) as http:
            answer = http.post("/v1/chat/completions", json={**body, "max_tokens": 20})
        assert answer.status_code == 200 and answer.json()["usage"]["completion_tokens"] == 20
        assert live.stats.num_waiting >= 1  # the first key's own still wait


def test_without_keys_everything_is_open(http: httpx.Client) -> None:
    assert http.get("/v1/models").status_code == 200
    assert http.get("/v1/models", headers={"authorization": "Bearer anything"}).status_code == 200


def test_no_key_or_prompt_is_logged(guarded: Running, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    with guarded.http(headers={"x-api-key": "key-of-anna", "x-request-id": "log-1"}) as http:
        http.post("/v1/completions?query=canary", json={"model": MODEL, "prompt": "canary in a mine", "max_tokens": 3})
        http.post("/v1/completions", json={"model": MODEL, "prompt": "canary", "canary": 1})
        http.get("/v1/models", headers={"x-api-key": "canary"})
    ours = [record for record in caplog.records if record.name.startswith(("proxy_inference_engine", "uvicorn"))]
    logged = str([(record.getMessage(), record.exc_text, getattr(record, "fields", {})) for record in ours])
    assert "canary" not in logged and "key-of-anna" not in logged
    fields = next(record.fields for record in ours if hasattr(record, "fields"))
    assert fields.items() >= {"route": "/v1/completions", "status": 200, "prompt": 16, "id": "log-1"}.items()
    assert fields["completion"] <= 3 and fields["ms"] > 0 and fields["key"] == "anna"
