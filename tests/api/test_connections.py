"""Connections that do nothing, do not read, speak an old HTTP, or never become a request."""

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from proxy_inference_engine.server.http import connections, lifetime, protocol
from proxy_inference_engine.server.http.sse import Patience
from tests.api.running import HELLO, MODEL, Running, running
from tests.api.test_http import LOCAL, exchange, head, status
from tests.polling import HANG_S, wait_until

CHAT = {"model": MODEL, "messages": HELLO, "max_tokens": 5, "ignore_eos": True}


def post(path: str, body: object, version: str = "1.1") -> bytes:
    data = json.dumps(body).encode()
    lines = [f"POST {path} HTTP/{version}", LOCAL, "Content-Type: application/json", f"Content-Length: {len(data)}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 3)
    with running() as live:
        yield live


@pytest.mark.parametrize("sent", [b"", b"GET /health HTTP/1.1\r\nHost: loc"], ids=["nothing", "half a header"])
def test_idle_connections_keep_nobody_out(small: Running, sent: bytes) -> None:
    """1,024 of them made /health a 503 for 30 seconds."""
    held = [socket.create_connection(small.address) for _ in range(3)]
    for sock in held:
        sock.sendall(sent)
    for _ in range(5):
        assert status(exchange(small, head())) == 200
    for sock in held:
        sock.close()


def test_kept_connections_make_way_too(small: Running) -> None:
    held = [socket.create_connection(small.address, timeout=HANG_S) for _ in range(3)]
    for sock in held:
        sock.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert sock.recv(65536).startswith(b"HTTP/1.1 200")
    assert status(exchange(small, head())) == 200
    assert held[0].recv(10) == b"", "the one that was idle longest"
    held[2].sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert held[2].recv(65536).startswith(b"HTTP/1.1 200")
    for sock in held:
        sock.close()


@pytest.mark.parametrize("closes", [True, False])
def test_an_answer_in_one_piece_that_nobody_reads_is_dropped(closes: bool) -> None:
    """Only streams were: twelve unread lists held 2.4 GB for ever."""
    with running(patience=Patience(stall_s=0.2)) as live, socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect(live.address)
        request = post("/detokenize", {"tokens": [120] * 3_900_000})
        sock.sendall(request.replace(LOCAL.encode(), b"Host: localhost\r\nConnection: close") if closes else request)
        live.wait_alone()
        received = 0
        try:
            while chunk := sock.recv(1 << 20):
                received += len(chunk)
        except ConnectionError:
            pass
        assert received < 3_900_000
        assert status(exchange(live, head())) == 200


def test_what_many_do_not_read_is_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of a thousand connections could leave megabytes unread for a minute; here for ten."""
    monkeypatch.setattr(lifetime, "MAX_UNSENT_BYTES", 500_000)
    with running(patience=Patience(stall_s=10 * HANG_S)) as live, ExitStack() as stack:
        for _ in range(12):
            sock = stack.enter_context(socket.socket())
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.connect(live.address)
            sock.sendall(post("/detokenize", {"tokens": [120] * 3_900_000}))
            assert sock.recv(12) == b"HTTP/1.1 200"
        wait_until(lambda: 1 <= len(live.server.server_state.connections) <= 6)
        assert status(exchange(live, head())) == 200


@pytest.mark.parametrize("is_stream", [True, False])
def test_http_1_0_has_no_chunks(server: Running, is_stream: bool) -> None:
    """They stood in the middle of the text for a client that does not know them."""
    response = exchange(server, post("/v1/chat/completions", {**CHAT, "stream": is_stream}, "1.0"))
    headers, _, body = response.partition(b"\r\n\r\n")
    assert status(response) == 200
    assert b"transfer-encoding" not in headers and b"connection: close" in headers
    if is_stream:
        assert body.startswith(b"data: {") and body.endswith(b"}\n\ndata: [DONE]\n\n")
        assert all(line.startswith(b"data: ") for line in body.split(b"\n\n")[:-1])
    else:
        assert json.loads(body)["choices"]


BELOW = {
    "bad chunk": (post("/v1/messages", {}).replace(b"Content-Length: 2", b"Transfer-Encoding: chunked"), 400),
    "too many headers": (head("/v1/messages", LOCAL, *(f"X-{number}: 1" for number in range(101))), 431),
    "unfinished header": (b"POST /v1/messages?beta=true HTTP/1.1\r\nHost: localhost\r\nX: x", 408),
    "count": (head("/v1/messages/count_tokens", LOCAL, *(f"X-{number}: 1" for number in range(101))), 431),
    "target": (head("http://localhost/v1/messages"), 400),
    "other path": (head("/v1/chat/completions", LOCAL, *(f"X-{number}: 1" for number in range(101))), 431),
}


@pytest.mark.parametrize("name", BELOW)
def test_errors_below_http_have_the_shape_of_their_path(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    data, expected = BELOW[name]
    if expected == 408:  # the others are to come in time on however busy a machine
        monkeypatch.setattr(protocol, "REQUEST_SECONDS", 0.2)
    with running() as live, live.http() as http:
        response = exchange(live, data)
        counted = http.get("/metrics").text
    headers, _, body = response.partition(b"\r\n\r\n")
    answer = json.loads(body)
    assert status(response) == expected
    if name in ("target", "other path"):
        assert set(answer) == {"error"} and set(answer["error"]) == {"message", "type", "param", "code"}
    else:
        assert answer["type"] == "error" and set(answer["error"]) == {"type", "message"}
        assert f"request-id: {answer['request_id']}".encode() in headers
    assert f'pie_http_requests_total{{route="connection",status="{expected}"}} 1.0' in counted
