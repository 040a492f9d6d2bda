"""Clients that leave, queue up, or do not read; and the end of the server."""

import asyncio
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import openai
import pytest

from proxy_inference_engine.config import Config
from proxy_inference_engine.engine.admission import Admission
from proxy_inference_engine.runners.base import Lane, Runner
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.server.sse import Patience
from tests.api.running import HELLO, MODEL, RUNNERS, Running, on_every_runner, running

LONG: dict[str, Any] = {"model": MODEL, "messages": HELLO, "max_tokens": 4000, "ignore_eos": True}
ROUTES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": LONG,
    "/v1/completions": {"model": MODEL, "prompt": ["Once", "upon"], "max_tokens": 4000, "ignore_eos": True},
}


@pytest.fixture(scope="module", params=RUNNERS)
def slow(request: pytest.FixtureRequest) -> Iterator[Running]:
    """Ten milliseconds a step, or what MLX takes: an answer takes long enough to be left."""
    if request.param == "mlx":
        yield request.getfixturevalue("servers")["mlx"]
        return
    with running(FakeRunner(step_seconds=lambda _: 0.01)) as live:
        yield live


@pytest.fixture(params=RUNNERS)
def one_slot(request: pytest.FixtureRequest) -> Runner:
    """It runs one request at a time, and takes seconds for a long one."""
    if request.param == "mlx":
        make_tiny: Callable[..., Runner] = request.getfixturevalue("make_tiny")
        return make_tiny(Lane(1, 8192))
    return FakeRunner(lanes=(Lane(1, 8192),), step_seconds=lambda _: 0.01)


def send_request(server: Running, path: str, body: dict[str, Any]) -> socket.socket:
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    sock = socket.create_connection(server.address)
    sock.sendall(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
    return sock


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("is_stream", [True, False])
@pytest.mark.parametrize("after_s", [0.0, 0.02, 0.2])
@pytest.mark.parametrize("resets", [True, False])
def test_a_client_that_leaves_frees_everything(
    slow: Running, path: str, is_stream: bool, after_s: float, resets: bool
) -> None:
    sock = send_request(slow, path, {**ROUTES[path], "stream": is_stream, "n": 2})
    time.sleep(after_s)
    if resets:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    sock.close()
    time.sleep(0.05)
    slow.wait_idle(3)


def test_leaving_is_noticed_while_waiting_in_the_queue(one_slot: Runner) -> None:
    with running(one_slot) as one:
        first = send_request(one, "/v1/chat/completions", {**LONG, "stream": True})
        time.sleep(0.2)
        num_prompt_tokens = one.stats.total_prompt_tokens
        with send_request(one, "/v1/chat/completions", LONG):
            time.sleep(0.2)
        time.sleep(0.2)
        assert one.stats.num_running == 1
        first.close()
        one.wait_idle(3)
        time.sleep(0.1)
        assert one.stats.total_prompt_tokens == num_prompt_tokens  # the second never ran


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("is_stream", [True, False])
def test_a_full_queue_is_429_before_any_header(one_slot: Runner, path: str, is_stream: bool) -> None:
    with running(one_slot, admission=Admission(max_waiting=1)) as tiny, tiny.http() as http:
        held = [send_request(tiny, "/v1/chat/completions", LONG)]
        time.sleep(0.2)  # it runs; of two places in the queue, chat needs to find both taken and two prompts one
        for _ in range(2 if "chat" in path else 1):
            held.append(send_request(tiny, "/v1/chat/completions", LONG))
        time.sleep(0.2)
        response = http.post(path, json={**ROUTES[path], "stream": is_stream})
        assert response.status_code == 429
        assert 1 <= int(response.headers["retry-after"]) <= 60
        assert response.json()["error"]["type"] == "rate_limit_error"
        assert response.json()["error"]["code"] == "queue_full"
        for sock in held:
            sock.close()
        tiny.wait_idle()


def test_silence_is_filled_with_comments() -> None:
    runner = FakeRunner(step_seconds=lambda num_tokens: 0.3 if num_tokens > 5 else 0.0)
    patience = Patience(first_ping_s=0.05, next_ping_s=0.1)
    with running(runner, patience=patience) as live, live.http() as http:
        text = http.post("/v1/chat/completions", json={**LONG, "max_tokens": 3, "stream": True}).text
        whole = http.post("/v1/chat/completions", json={**LONG, "max_tokens": 3}).text
    assert text.startswith(": ping\n\n: ping\n\n") and text.endswith("data: [DONE]\n\n")
    assert "ping" not in whole


def test_a_client_that_does_not_read_is_dropped() -> None:
    patience = Patience(stall_s=0.3)
    with running(FakeRunner(), patience=patience) as live:
        body = {**LONG, "n": 8, "logprobs": True, "top_logprobs": 20, "stream": True}
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.connect(live.address)
            data = json.dumps(body).encode()
            sock.sendall(
                b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b"Content-Length: %d\r\n\r\n" % len(data) + data
            )
            time.sleep(0.5)
            live.wait_idle(15)
        with live.openai() as client:
            assert client.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=3).choices  # type: ignore[arg-type]


def test_a_failing_model_is_an_error_in_both_modes() -> None:
    runner = FakeRunner(poison_id=ord("~"))
    with running(runner) as live, live.openai() as client:
        poisoned: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "~"}]}
        with pytest.raises(openai.InternalServerError):
            client.chat.completions.create(**poisoned)
        with pytest.raises(openai.APIError) as caught:
            list(client.chat.completions.create(**poisoned, stream=True))
        assert caught.value.body
        healthy: Any = client.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=5)  # type: ignore[arg-type]
        assert healthy.choices[0].finish_reason
        live.wait_idle()


@on_every_runner
def test_sixty_four_clients_at_once(server: Running) -> None:
    answers: dict[int, str] = {}

    def ask(number: int) -> None:
        body = {"model": MODEL, "prompt": f"client {number}", "seed": number, "max_tokens": 30}
        with server.http() as http:
            if number % 2:
                text = http.post("/v1/completions", json={**body, "stream": True}).text
                frames = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
                answers[number] = "".join(frame["choices"][0]["text"] for frame in frames)
            else:
                answers[number] = http.post("/v1/completions", json=body).json()["choices"][0]["text"]

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    with server.http() as http:
        for number in (0, 1, 31, 63):
            body = {"model": MODEL, "prompt": f"client {number}", "seed": number, "max_tokens": 30}
            assert http.post("/v1/completions", json=body).json()["choices"][0]["text"] == answers[number]
    assert len(answers) == 64
    server.wait_idle()


def test_nothing_leaks(slow: Running) -> None:
    def counts() -> tuple[int, int, int]:
        tasks = [each for each in gc.get_objects() if isinstance(each, asyncio.Task) and not each.done()]
        return threading.active_count(), len(os.listdir("/proc/self/fd")), len(tasks)

    def storm() -> None:
        for number in range(30):
            body = {**LONG, "stream": number % 2 == 0}
            with send_request(slow, "/v1/chat/completions", body):
                time.sleep(0.01)
        slow.wait_idle()
        time.sleep(0.2)

    storm()
    before = counts()
    storm()
    assert all(now <= then + 2 for now, then in zip(counts(), before, strict=True))


PROGRAM = """
import socket, sys
from proxy_inference_engine.config import Config
from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.engine.worker import Worker
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.server.run import serve

worker = Worker(StepEngine(FakeRunner(step_seconds=lambda _: 0.01), max_cache_bytes=0))
worker.start()
sock = socket.socket()
sock.bind(("127.0.0.1", 0))
print(sock.getsockname()[1], flush=True)
code = serve(worker, Config(drain_seconds=float(sys.argv[1])), sock)
worker.stop()
sys.exit(code)
"""


class Process:
    def __init__(self, drain_seconds: float) -> None:
        command = [sys.executable, "-c", PROGRAM, str(drain_seconds)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url = f"http://127.0.0.1:{self._process.stdout.readline().strip()}"
        deadline = time.monotonic() + 10
        while True:
            try:
                assert httpx.get(f"{self.url}/ready").status_code == 200
                return
            except httpx.ConnectError:
                assert time.monotonic() < deadline
                time.sleep(0.02)

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def wait(self) -> tuple[int, str]:
        _, errors = self._process.communicate(timeout=15)
        return self._process.returncode, errors

    def stream(self, max_tokens: int, into: list[str]) -> threading.Thread:
        def read() -> None:
            body = {**LONG, "max_tokens": max_tokens, "stream": True}
            with httpx.stream("POST", f"{self.url}/v1/chat/completions", json=body, timeout=20) as response:
                into.extend(response.iter_lines())

        thread = threading.Thread(target=read)
        thread.start()
        time.sleep(0.3)
        return thread


def waiting(seconds: float) -> str:
    """What it says to whoever sent the signal."""
    return f"waiting up to {seconds} s for what still runs; another signal ends it now\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_streams_finish(number: int) -> None:
    process, lines = Process(drain_seconds=10), list[str]()
    thread = process.stream(60, lines)
    process.signal(number)
    time.sleep(0.3)
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{process.url}/health")
    code, errors = process.wait()
    thread.join(10)
    assert (code, errors) == (0, waiting(10))
    assert lines[-2] == "data: [DONE]" and '"finish_reason":"length"' in lines[-4]


def test_what_comes_after_the_signal_is_refused() -> None:
    """Its connection was there before: the head of the request too, the body was not."""
    process, lines = Process(drain_seconds=10), list[str]()
    thread = process.stream(300, lines)
    body = json.dumps({"model": MODEL, "messages": HELLO, "max_tokens": 1}).encode()
    host, port = process.url.removeprefix("http://").split(":")
    head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with socket.create_connection((host, int(port)), timeout=5) as sock:
        sock.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode())
        time.sleep(0.1)
        process.signal(signal.SIGTERM)
        time.sleep(0.3)
        sock.sendall(body)
        answer = b"".join(iter(lambda: sock.recv(65536), b""))  # head and body may come one after the other
    assert answer.startswith(b"HTTP/1.1 503 ") and b'"code":"shutting_down"' in answer
    assert process.wait() == (0, waiting(10))
    thread.join(10)
    assert lines[-2] == "data: [DONE]"


def test_streams_longer_than_the_drain_end_with_an_error() -> None:
    process, lines = Process(drain_seconds=0.3), list[str]()
    thread = process.stream(4000, lines)
    whole: list[httpx.Response] = []
    body = {**LONG, "max_tokens": 4000}
    asking = threading.Thread(
        target=lambda: whole.append(httpx.post(f"{process.url}/v1/chat/completions", json=body, timeout=20))
    )
    asking.start()
    time.sleep(0.2)
    process.signal(signal.SIGTERM)
    code, errors = process.wait()
    thread.join(10)
    asking.join(10)
    assert (code, errors) == (0, waiting(0.3))
    assert lines[-2] == "data: [DONE]"
    assert json.loads(lines[-4].removeprefix("data: "))["error"]["code"] == "shutting_down"
    assert whole[0].status_code == 503 and whole[0].json()["error"]["code"] == "shutting_down"


def test_a_second_signal_exits_now() -> None:
    process, lines = Process(drain_seconds=60), list[str]()

    def read() -> None:
        url, body = f"{process.url}/v1/chat/completions", {**LONG, "stream": True}
        with pytest.raises(httpx.RemoteProtocolError), httpx.stream("POST", url, json=body) as response:
            lines.extend(response.iter_lines())

    thread = threading.Thread(target=read)
    thread.start()
    time.sleep(0.3)
    process.signal(signal.SIGTERM)
    time.sleep(0.3)
    started = time.monotonic()
    process.signal(signal.SIGTERM)
    assert process.wait()[0] == 128 + signal.SIGTERM
    assert time.monotonic() - started < 2
    thread.join(10)


def test_drained_servers_are_not_ready() -> None:
    with running(config=Config(drain_seconds=0.2)) as live, live.http() as http:
        assert http.get("/ready").json() == {"status": "ready"}
        live.server._drain.begin()
        assert http.get("/ready").status_code == 503
        assert http.get("/health").status_code == 200
        response = http.post("/v1/chat/completions", json={"model": MODEL, "messages": HELLO})
        assert response.status_code == 503 and response.json()["error"]["code"] == "shutting_down"
