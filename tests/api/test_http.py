"""Below the API: hosts, origins, headers, framing, connections. Written to raw sockets where a client would not."""

import json
import socket

import httpx
import pytest

from proxy_inference_engine.server.http import body, connections, protocol
from tests.api.running import HELLO, MODEL, Running, running
from tests.polling import HANG_S

CHAT = json.dumps({"model": MODEL, "messages": HELLO, "max_tokens": 3}).encode()
LOCAL = "Host: localhost"


def exchange(server: Running, data: bytes) -> bytes:
    """What the server answers until it closes."""
    with socket.create_connection(server.address, timeout=HANG_S) as sock:
        received = b""
        try:
            sock.sendall(data)
            while chunk := sock.recv(65536):
                received += chunk
        except ConnectionError:
            pass
        return received


def head(target: str = "/health", *headers: str, method: str = "GET") -> bytes:
    lines = [f"{method} {target} HTTP/1.1", *(headers or (LOCAL,)), "Connection: close"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


def status(response: bytes) -> int:
    return int(response.split(b" ", 2)[1]) if response else 0


@pytest.mark.parametrize(
    ("headers", "expected", "code"),
    [
        (["Host: localhost:8000"], 200, None),
        (["Host: evil.example:8000"], 403, "host_not_allowed"),
        (["Host: localhost/v1/models?"], 400, None),
        (["Host: a/?x="], 400, None),
        (["Host: localhost", "Host: localhost"], 400, None),
        (["Accept: */*"], 400, None),
        (["Host: localhost", "Upgrade: websocket", "Connection: upgrade"], 400, None),
    ],
)
def test_hosts(server: Running, headers: list[str], expected: int, code: str | None) -> None:
    response = exchange(server, head("/v1/models", *headers))
    assert status(response) == expected
    assert code is None or f'"code":"{code}"'.encode() in response


@pytest.mark.parametrize(
    "path", ["/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize", "/apply-template"]
)
@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.com"},
        {"origin": "http://localhost.evil.com"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"host": "evil.example:8000"},
    ],
)
def test_foreign_pages_are_kept_out_before_the_body(http: httpx.Client, path: str, headers: dict[str, str]) -> None:
    response = http.post(path, content=b"{", headers={"content-type": "text/plain", **headers})
    assert response.status_code == 403
    preflight = http.options(path, headers={**headers, "access-control-request-method": "POST"})
    assert preflight.status_code in (403, 405)
    for answer in (response, preflight):
        assert not [name for name in answer.headers if name.startswith("access-control-")]


def test_own_page_may_post(http: httpx.Client, server: Running) -> None:
    headers = {"origin": server.url, "content-type": "application/json", "sec-fetch-site": "same-origin"}
    assert http.post("/v1/chat/completions", content=CHAT, headers=headers).status_code == 200


BROKEN = {
    "absolute target": head("http://localhost/health"),
    "asterisk": head("*"),
    "connect": head("localhost:80", method="CONNECT"),
    "no version": b"GET /health\r\nHost: localhost\r\n\r\n",
    "length and chunks": head("/tokenize", LOCAL, "Content-Length: 5", "Transfer-Encoding: chunked") + b"0\r\n\r\n",
    "two lengths": head("/tokenize", LOCAL, "Content-Length: 5", "Content-Length: 6", method="POST") + b"hello!",
    "folded header": head("/health", LOCAL, "X: a\r\n b"),
    "garbage": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\xff" * 50 + b"\r\n\r\n",
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_http_is_refused(server: Running, name: str) -> None:
    response = exchange(server, BROKEN[name])
    assert status(response) == 400
    error = json.loads(response.split(b"\r\n\r\n", 1)[1])["error"]
    assert error["type"] == "invalid_request_error"
    assert b"\r\nx-request-id: req" in response


@pytest.mark.parametrize(
    "data",
    [
        head("/health", LOCAL, "X-Big: " + "x" * (5 * 1024 * 1024)),
        head("/health", LOCAL, "X-Big: " + "x" * (70 * 1024)),
        head("/" + "x" * (1024 * 1024)),
        head("/health", LOCAL, *(f"X-{number}: 1" for number in range(10_000))),
        head("/health", LOCAL, *(f"X-{number}: 1" for number in range(101))),
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 200_000,
    ],
    ids=["5 MiB header", "70 KiB header", "1 MiB target", "10k headers", "101 headers", "unfinished header"],
)
def test_headers_have_a_limit(server: Running, data: bytes) -> None:
    # The server may hang up while we still write, and its answer may be lost with that.
    assert status(exchange(server, data)) in (431, 0)


def test_one_hundred_headers_are_fine(server: Running) -> None:
    assert status(exchange(server, head("/health", LOCAL, *(f"X-{n}: 1" for n in range(97))))) == 200


def test_a_huge_length_is_refused_before_reading(server: Running) -> None:
    request = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    response = exchange(server, request + b"Content-Length: 10737418240\r\n\r\n")
    assert status(response) == 413 and b"connection: close" in response


def test_endless_chunks_are_cut(server: Running) -> None:
    request = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    chunk = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
    response = exchange(server, request + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 40)
    assert status(response) in (413, 0)


def test_slow_headers_and_slow_bodies_time_out(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body, "RECEIVE_SECONDS", 0.3)
    monkeypatch.setattr(protocol, "REQUEST_SECONDS", 0.3)
    assert status(exchange(server, b"GET /health HTTP/1.1\r\nHost: loc")) == 408
    assert status(exchange(server, b"")) == 408
    request = head("/tokenize", LOCAL, "Content-Type: application/json", "Content-Length: 9", method="POST")
    assert status(exchange(server, request + b"{")) == 408


def test_a_request_refused_early_does_not_hold_its_connection(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "REQUEST_SECONDS", 2.0)  # the headers have to come in that time
    request = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: 9\r\n\r\n{"
    assert status(exchange(server, request)) == 415


def test_a_broken_chunk_is_400(server: Running) -> None:
    request = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    response = exchange(server, request + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n")
    assert status(response) == 400


def test_pipelining_closes_the_connection(server: Running) -> None:
    request = (
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n" % len(CHAT)
    )
    response = exchange(server, (request + CHAT) * 100)
    assert response.count(b"HTTP/1.1 200") <= 1
    server.wait_idle()


def test_a_wish_for_http_2_is_passed_over(server: Running) -> None:
    """As Java's client has it in its first request, and again in each until it is fulfilled."""
    wish = "Upgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAA\r\nConnection: Upgrade, HTTP2-Settings\r\n"
    asked = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{wish}"
    headers = f"{asked}Content-Length: {len(CHAT)}\r\n\r\n".encode()
    with socket.create_connection(server.address, timeout=HANG_S) as sock:
        for pieces in ([headers, CHAT], [headers + CHAT], [headers[:30], headers[30:] + CHAT[:5], CHAT[5:]]):
            for piece in pieces:
                sock.sendall(piece)
            answer = sock.recv(65536)
            assert status(answer) == 200 and b"chatcmpl-" in answer and b"101 " not in answer
        sock.sendall(headers.replace(b"Connection: ", b"Connection: close, ") + CHAT)
        answer = b"".join(iter(lambda: sock.recv(65536), b""))
        assert status(answer) == 200 and b"\r\nconnection: close" in answer


def test_a_refused_socket_is_the_last_request(server: Running) -> None:
    """Its body would be read as the next one."""
    asked = head("/v1/chat/completions", LOCAL, "Upgrade: websocket", "Content-Length: 1", method="POST")
    asked = asked.replace(b"Connection: close", b"Connection: upgrade")
    for rest in (b"{", b"{" + head(), head("/tokenize")):
        with socket.create_connection(server.address, timeout=HANG_S) as sock:
            sock.sendall(asked)
            answer = b"".join(iter(lambda: sock.recv(65536), b""))
            assert status(answer) == 400 and b"\r\nconnection: close" in answer
        assert exchange(server, asked + rest).count(b"HTTP/1.1 ") <= 1


def test_connections_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 3)
    with running() as small:
        request = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        held = [socket.create_connection(small.address, timeout=HANG_S) for _ in range(3)]
        for sock in held:
            sock.sendall(request + b"Content-Length: 9\r\nExpect: 100-continue\r\n\r\n")
            assert status(sock.recv(65536)) == 100, "its body is waited for: it is not idle"
        assert status(exchange(small, head())) == 503
        for sock in held:
            sock.close()
        small.wait_alone()
        assert status(exchange(small, head())) == 200


def test_a_stream_for_http_1_0_is_not_chunked(server: Running) -> None:
    """It knows no chunks: the end of the connection is the end of the stream."""
    body = json.dumps({**json.loads(CHAT), "stream": True}).encode()
    request = b"POST /v1/chat/completions HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    answer = exchange(server, request + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    headers, _, events = answer.partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in headers.lower() and b"connection: close" in headers.lower()
    assert events.startswith(b"data: {") and events.endswith(b"data: [DONE]\n\n")


def test_head_and_keep_alive(server: Running) -> None:
    with server.http() as http:
        assert http.head("/health").status_code == 200
        assert http.get("/health").headers.get("server") is None
        for _ in range(3):
            assert http.post("/tokenize", json={"prompt": "x"}).status_code == 200
            assert http.post("/tokenize", json={"prompt": 5}).status_code == 400
