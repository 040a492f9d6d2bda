"""Answers with very many log-probabilities: refused when they are too many, else written without holding anybody up."""

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import httpx
import pytest

from proxy_inference_engine.config import ApiKey, Config
from proxy_inference_engine.runners.base import Lane
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.served import request as served_request
from proxy_inference_engine.server import state
from proxy_inference_engine.server.http.protocol import LimitedProtocol
from proxy_inference_engine.store import Store, StoreLimits
from tests.api.running import HELLO, MODEL, Running, running
from tests.polling import HANG_S, wait_until

CHAT: dict[str, Any] = {"model": MODEL, "messages": HELLO, "ignore_eos": True, "logprobs": True, "top_logprobs": 20}
TEXT: dict[str, Any] = {"model": MODEL, "prompt": "x", "ignore_eos": True, "logprobs": 5}
RESPONSE: dict[str, Any] = {"model": MODEL, "input": "x", "store": False, "top_logprobs": 20, "ignore_eos": True}


@pytest.fixture(scope="module")
def live() -> Iterator[Running]:
    with running(FakeRunner(lanes=(Lane(16, 8192),))) as server:
        yield server


@pytest.fixture
def http(live: Running) -> Iterator[httpx.Client]:
    with live.http() as client:
        client.timeout = httpx.Timeout(2 * HANG_S)
        yield client


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/chat/completions", {**CHAT, "n": 16, "max_tokens": 8000}, "top_logprobs"),
        ("/v1/completions", {**TEXT, "n": 16, "max_tokens": 8000, "prompt": ["x"] * 4}, "logprobs"),
        ("/v1/completions", {**TEXT, "n": 16, "max_tokens": 1, "prompt": ["x" * 6000] * 8, "echo": True}, "logprobs"),
    ],
)
@pytest.mark.parametrize("is_stream", [True, False])
def test_too_many_are_refused_before_anything_is_computed(
    live: Running, http: httpx.Client, path: str, body: dict[str, Any], param: str, is_stream: bool
) -> None:
    """They made a body of 148 MiB: no /health for ten seconds, and 1.5 GB."""
    before = live.stats.total_prompt_tokens
    answer = http.post(path, json={**body, "stream": is_stream})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param and "2000000" in answer.json()["error"]["message"]
    assert live.stats.total_prompt_tokens == before


@pytest.mark.parametrize(
    ("path", "body", "most"),
    [
        ("/v1/chat/completions", CHAT, 1000 // 21),
        ("/v1/chat/completions", {**CHAT, "n": 2}, 1000 // 42),
        ("/v1/responses", RESPONSE, 1000 // 105),
    ],
)
def test_without_a_limit_as_many_tokens_come_as_may(
    http: httpx.Client, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any], most: int
) -> None:
    monkeypatch.setattr(served_request, "MAX_LOGPROBS", 1000)
    answer = http.post(path, json=body).json()
    if path == "/v1/responses":
        assert answer["status"] == "incomplete" and answer["usage"]["output_tokens"] == most
    else:
        assert {choice["finish_reason"] for choice in answer["choices"]} == {"length"}
        assert answer["usage"]["completion_tokens"] == most * body.get("n", 1)
    plain = {name: value for name, value in body.items() if "logprobs" not in name} | {"max_tokens": 60}
    if path != "/v1/responses":
        assert http.post(path, json=plain).json()["usage"]["completion_tokens"] == 60 * body.get("n", 1)


LARGE = {
    "/v1/chat/completions": {**CHAT, "n": 4, "max_tokens": 400},
    "/v1/completions": {**TEXT, "n": 8, "max_tokens": 1500, "prompt": "hello", "echo": True},
    "/v1/responses": {**RESPONSE, "max_output_tokens": 1500},
}


def received(live: Running, path: str, body: dict[str, Any]) -> tuple[dict[str, str], bytes]:
    """Somebody else is answered after the headers have come and before the rest is read."""
    with live.http() as http, http.stream("POST", path, json=body, timeout=HANG_S) as response:
        assert response.status_code == 200
        with live.http() as other:
            assert other.get("/health").status_code == 200
        return dict(response.headers), response.read()


@pytest.mark.parametrize("path", LARGE)
def test_a_large_answer_is_whole_however_it_is_written(live: Running, path: str) -> None:
    body = {**LARGE[path], "seed": 1}
    headers, data = received(live, path, body)
    assert headers["transfer-encoding"] == "chunked" and len(data) > 256 * 1024
    answer = json.loads(data)
    if path == "/v1/responses":
        (part,) = answer["output"][0]["content"]
        assert len(part["logprobs"]) == 1500 and all(len(each["top_logprobs"]) == 20 for each in part["logprobs"])
    elif path == "/v1/completions":
        for choice in answer["choices"]:
            lists = choice["logprobs"]
            assert {len(values) for values in lists.values()} == {1505}
            assert lists["token_logprobs"][0] is None and lists["top_logprobs"][0] is None
    else:
        for choice in answer["choices"]:
            assert len(choice["logprobs"]["content"]) == 400
            text = b"".join(bytes(entry["bytes"]) for entry in choice["logprobs"]["content"])
            assert text.decode("utf-8", "replace") == choice["message"]["content"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_a_stream_says_the_same(live: Running, http: httpx.Client, path: str) -> None:
    body = {**LARGE[path], "seed": 1, "n": 1}
    whole = http.post(path, json=body).json()["choices"][0]["logprobs"]
    text = http.post(path, json={**body, "stream": True}).text
    frames = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    parts = [frame["choices"][0]["logprobs"] for frame in frames if frame["choices"][0]["logprobs"]]
    names = ["content"] if path == "/v1/chat/completions" else list(whole)
    for name in names:
        assert [entry for part in parts for entry in part[name]] == whole[name]


def test_a_large_answer_that_nobody_reads_costs_little(live: Running) -> None:
    """It is made as it is read."""
    body = json.dumps(LARGE["/v1/chat/completions"]).encode()
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect(live.address)
        sock.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n" % len(body) + body
        )
        assert sock.recv(100).startswith(b"HTTP/1.1 200")
        connections = [each for each in live.server.server_state.connections if isinstance(each, LimitedProtocol)]
        (connection,) = [each for each in connections if each.client == sock.getsockname()]
        assert connection.transport.get_write_buffer_size() < 512 * 1024


def unread(live: Running, head: str, key: str, body: bytes = b"") -> socket.socket:
    """A request whose answer nobody reads beyond its first line."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.settimeout(HANG_S)
    sock.connect(live.address)
    fields = f"Host: localhost\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json"
    sock.sendall(f"{head} HTTP/1.1\r\n{fields}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    return sock


@pytest.mark.parametrize(
    ("head", "body"),
    [
        ("GET /v1/chat/completions?limit=100", b""),
        ("POST /tokenize", json.dumps({"prompt": "x" * 1_000_000}).encode()),
        ("POST /apply-template", json.dumps({"messages": [{"role": "user", "content": "x" * 6_000_000}]}).encode()),
    ],
)
def test_what_is_made_sooner_than_read_has_a_budget(head: str, body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand such answers that nobody reads would have taken all memory."""
    monkeypatch.setattr(state, "MAX_ANSWER_BYTES", 100 << 20)
    config = Config(drain_seconds=0.2, api_keys=(ApiKey("anna", "key-of-anna"), ApiKey("ben", "key-of-ben")))
    with (
        running(FakeRunner(), config) as live,
        live.http(headers={"x-api-key": "key-of-anna"}) as http,
        ExitStack() as stack,
    ):
        for _ in range(8):
            http.post("/v1/chat/completions", json={**CHAT, "max_tokens": 400, "store": True}).raise_for_status()
        heads = []
        for _ in range(20):
            sock = stack.enter_context(unread(live, head, "key-of-anna", body))
            heads.append(sock.recv(12).decode())
        assert heads[0] == "HTTP/1.1 200" and heads[-1] == "HTTP/1.1 429", heads
        with unread(live, head, "key-of-ben", body) as sock:
            assert sock.recv(12) == b"HTTP/1.1 200", "nobody gets all of it"
        stack.close()  # they are gone, and so is what they held
        wait_until(lambda: http.get("/v1/chat/completions?limit=100").status_code == 200)


@pytest.mark.parametrize("is_stream", [True, False])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
def test_what_is_too_large_to_be_kept_ends_when_that_is_known(path: str, is_stream: bool) -> None:
    """It failed with 413 after all of it was generated."""
    body = {**(CHAT if "chat" in path else RESPONSE), "store": True, "stream": is_stream}
    body["max_tokens" if "chat" in path else "max_output_tokens"] = 4000
    with (
        closing(Store.open(None, limits=StoreLimits(max_bytes=20_000))) as store,
        running(FakeRunner(step_seconds=lambda _: 0.02), store=store) as small,  # 80 s for all of it
        small.http() as http,
    ):
        answer = http.post(path, json=body)
        small.wait_idle()
        assert small.stats.total_generated_tokens < 3000
        assert "cannot be stored" in answer.text
        assert answer.status_code == (200 if is_stream else 413)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
def test_what_is_surely_too_large_to_be_kept_is_refused_at_once(path: str) -> None:
    body = {**(CHAT if "chat" in path else RESPONSE), "store": True, "min_tokens": 100}
    with (
        closing(Store.open(None, limits=StoreLimits(max_bytes=20_000))) as store,
        running(store=store) as small,
        small.http() as http,
    ):
        answer = http.post(path, json=body)
        assert answer.status_code == 413 and answer.json()["error"]["param"] == "min_tokens"
        assert small.stats.total_prompt_tokens == 0
