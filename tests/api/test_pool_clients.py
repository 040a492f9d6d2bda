"""Models that are loaded on demand, as clients of Ollama's API and of the Responses WebSocket see them."""

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from websockets.sync.client import connect

from proxy_inference_engine.config import Config
from proxy_inference_engine.pool.entry import PoolEntry
from proxy_inference_engine.server.http.sse import Patience
from tests.api.pools import PoolServer, pool_server
from tests.polling import HANG_S

HELLO: list[Any] = [{"role": "user", "content": "Hello"}]
A, B, C = (PoolEntry(name, Config()) for name in ("a", "b", "c"))
HASTY = Patience(first_ping_s=0.05, next_ping_s=0.05)
SHORT = {"num_predict": 5}


@pytest.fixture
def three() -> Iterator[PoolServer]:
    with pool_server(A, B, C) as server:
        yield server


def test_what_is_listed_and_what_is_loaded(three: PoolServer) -> None:
    with three.live.http() as http:
        assert [model["name"] for model in http.get("/api/tags").json()["models"]] == ["a", "b", "c"]
        assert http.get("/api/ps").json() == {"models": []}
        assert http.post("/api/show", json={"model": "b"}).json()["model_info"] == {}
        loaded = http.post("/api/generate", json={"model": "b"}).json()
        assert loaded["done_reason"] == "load" and three.loader.log == ["b loaded"]
        assert [model["name"] for model in http.get("/api/ps").json()["models"]] == ["b"]
        assert http.post("/api/show", json={"model": "b:latest"}).json()["model_info"]["fake.context_length"] > 0


def test_who_wants_a_model_gone_does_not_bring_it(three: PoolServer) -> None:
    with three.live.http() as http:
        answer = http.post("/api/generate", json={"model": "a", "keep_alive": 0})
        assert answer.json()["done_reason"] == "unload" and "x-pie-ignored" not in answer.headers
        assert three.loader.log == []
        http.post("/api/chat", json={"model": "a", "messages": HELLO, "options": SHORT, "stream": False})
        answer = http.post("/api/chat", json={"model": "a", "messages": [], "keep_alive": 0})
        assert answer.json()["done_reason"] == "load" and answer.headers["x-pie-ignored"] == "keep_alive"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/chat", {"messages": HELLO, "options": SHORT}),
        ("/api/generate", {"prompt": "Hello", "options": SHORT, "stream": False}),
        ("/api/embed", {"input": "Hello"}),
    ],
)
def test_ollama_brings_a_model_and_lets_it_go(three: PoolServer, path: str, body: dict[str, Any]) -> None:
    with three.live.http() as http:
        for name in ("b", "a", "c"):  # two fit at a time
            assert http.post(path, json={"model": name, **body}).status_code == 200
        assert three.loader.log == ["b loaded", "a loaded", "b unloaded", "c loaded"]


def test_lines_that_wait_for_a_model_are_lines() -> None:
    with pool_server(A, patience=HASTY) as server, server.live.http() as http:
        gate = server.loader.gates["a"] = threading.Event()
        body = {"model": "a", "messages": HELLO, "options": SHORT}
        with http.stream("POST", "/api/chat", json=body) as response:
            assert response.headers["content-type"] == "application/x-ndjson"
            gate.set()
            lines = [json.loads(line) for line in response.iter_lines()]
        assert lines[-1]["done"] and lines[-1]["load_duration"] > 0


def test_a_turn_on_a_socket_waits_for_its_model(three: PoolServer) -> None:
    url = three.live.url.replace("http", "ws") + "/v1/responses"
    with connect(url) as line:
        for name in ("b", "a", "c"):
            line.send(json.dumps({"type": "response.create", "model": name, "input": "Hi", "max_output_tokens": 5}))
            while (event := json.loads(line.recv(timeout=HANG_S)))["type"] not in ("response.incomplete", "error"):
                pass
            assert event["response"]["model"] == name
    assert three.loader.log == ["b loaded", "a loaded", "b unloaded", "c loaded"]
