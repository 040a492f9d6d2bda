"""Many large bodies at once, and texts that are hopeless from their length alone."""

import json
import socket
from contextlib import ExitStack

from proxy_inference_engine.config import ApiKey, Config
from tests.api.running import MODEL, Running, running
from tests.api.test_http import status
from tests.polling import HANG_S

KEYS = (ApiKey("anna", "key-of-anna"), ApiKey("ben", "key-of-ben"))
LENGTH = 31 * 1024 * 1024


def begin(live: Running, key: str, path: str = "/v1/completions") -> socket.socket:
    """A body of 31 MiB of which one byte comes."""
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", f"x-api-key: {key}"]
    sock = socket.create_connection(live.address, timeout=HANG_S)
    sock.sendall("\r\n".join([*lines, f"Content-Length: {LENGTH}", "Expect: 100-continue"]).encode() + b"\r\n\r\n")
    return sock


def test_unfinished_bodies_are_held_within_a_budget() -> None:
    """Sixty of them held 1.96 GB until their time was over."""
    body = {"model": MODEL, "prompt": "x" * 20_000_000, "max_tokens": 1}
    with ExitStack() as stack, running(config=Config(api_keys=KEYS, drain_seconds=0.2)) as live:
        answers = []
        for _ in range(10):
            sock = begin(live, "key-of-anna")
            stack.callback(sock.close)
            answers.append(sock.recv(65536))
        assert [status(answer) for answer in answers] == [100] * 4 + [429] * 6
        headers, _, refusal = answers[-1].decode().partition("\r\n\r\n")
        assert "retry-after: 1" in headers and json.loads(refusal)["error"]["code"] == "queue_full"
        with live.http(headers={"x-api-key": "key-of-anna"}) as http:
            small = http.post("/v1/completions", json={"model": MODEL, "prompt": "x", "max_tokens": 1})
            assert small.status_code == 200, "an ordinary body is not counted"
            assert http.post("/v1/completions", json=body).status_code == 429
        with live.http(headers={"x-api-key": "key-of-ben"}) as http:
            assert http.post("/v1/completions", json=body).status_code == 400, "read, and too long for the context"
        stack.close()
        with live.http(headers={"x-api-key": "key-of-anna"}) as http:
            while (response := http.post("/v1/completions", json=body)).status_code == 429:
                pass  # until the server has noticed that they are gone
            assert response.json()["error"]["code"] == "context_length_exceeded"
