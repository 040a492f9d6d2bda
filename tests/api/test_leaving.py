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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import httpx
import openai
import pytest

from proxy_inference_engine.config import Config
from proxy_inference_engine.engine.queue import Admission
from proxy_inference_engine.runners.base import Lane, Logits, Row, Runner
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.server.http.sse import Patience
from tests.api.running import HELLO, MODEL, RUNNERS, Listening, Running, on_every_runner, running
from tests.clock import Clock
from tests.polling import HANG_S, wait_until
from tests.unit.engine.threads import Gate

STEP_S = 0.02
LONG: dict[str, Any] = {"model": MODEL, "messages": HELLO, "max_tokens": 4000, "ignore_eos": True}
ROUTES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": LONG,
    "/v1/completions": {"model": MODEL, "prompt": ["Once", "upon"], "max_tokens": 4000, "ignore_eos": True},
}


@pytest.fixture(scope="module", params=RUNNERS)
def slow(request: pytest.FixtureRequest) -> Iterator[Running]:
    """Twenty milliseconds a step at least: an answer takes longer than anybody here waits, and is left."""
    if request.param == "mlx":
        live: Running = request.getfixturevalue("servers")["mlx"]
        with unhurried(live.runner):
            yield live
        return
    with running(FakeRunner(step_seconds=lambda _: STEP_S)) as live:
        yield live


@pytest.fixture(params=RUNNERS)
def one_slot(request: pytest.FixtureRequest) -> Iterator[Runner]:
    """It runs one request at a time, and takes long for a long one."""
    if request.param == "mlx":
        make_tiny: Callable[..., Runner] = request.getfixturevalue("make_tiny")
        runner = make_tiny(Lane(1, 8192))
        with unhurried(runner):
            yield runner
        return
    yield FakeRunner(lanes=(Lane(1, 8192),), step_seconds=lambda _: STEP_S)


@contextmanager
def unhurried(runner: Runner) -> Iterator[None]:
    """As fast as the others here: MLX's own steps of so small a model may be over before a busy machine looks."""
    forward = runner.forward

    def later(rows: Sequence[Row]) -> list[Logits]:
        time.sleep(STEP_S)
        return forward(rows)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "forward", later)
        yield


def send_request(server: Listening, path: str, body: dict[str, Any]) -> socket.socket:
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    sock = socket.create_connection(server.address, timeout=HANG_S)
    sock.sendall(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
    return sock


def wait_for(moment: str, server: Running, num_before: int) -> None:
    """Until a request has come so far. `num_before`: the tokens that there were before it."""
    if moment == "running":
        wait_until(lambda: server.stats.num_running > 0)
    elif moment == "answering":
        wait_until(lambda: server.stats.total_generated_tokens > num_before + 2)


def leave(sock: socket.socket, *, resets: bool) -> None:
    if resets:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    sock.close()


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("is_stream", [True, False])
@pytest.mark.parametrize("moment", ["sent", "running", "answering"])
@pytest.mark.parametrize("resets", [True, False])
def test_a_client_that_leaves_frees_everything(
    slow: Running, path: str, is_stream: bool, moment: str, resets: bool
) -> None:
    num_before = slow.stats.total_generated_tokens
    sock = send_request(slow, path, {**ROUTES[path], "stream": is_stream, "n": 2})
    wait_for(moment, slow, num_before)
    leave(sock, resets=resets)
    with slow.http() as later:
        assert later.get("/health").status_code == 200  # connections are accepted in turn: by now that one was
    slow.wait_alone()
    slow.wait_idle()


def test_leaving_is_noticed_while_waiting_in_the_queue(one_slot: Runner) -> None:
    with running(one_slot) as one:
        first = send_request(one, "/v1/chat/completions", {**LONG, "stream": True})
        wait_until(lambda: one.stats.total_generated_tokens > 0)
        num_prompt_tokens = one.stats.total_prompt_tokens
        with send_request(one, "/v1/chat/completions", LONG):
            wait_until(lambda: one.stats.num_waiting == 1)
        wait_until(lambda: one.stats.num_waiting == 0)
        assert one.stats.num_running == 1
        first.close()
        one.wait_idle()
        one.wait_alone()
        assert one.stats.total_prompt_tokens == num_prompt_tokens  # the second never ran


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("is_stream", [True, False])
def test_a_full_queue_is_429_before_any_header(one_slot: Runner, path: str, is_stream: bool) -> None:
    with running(one_slot, admission=Admission(max_waiting=1)) as tiny, tiny.http() as http:
        held = [send_request(tiny, "/v1/chat/completions", LONG)]
        wait_until(lambda: tiny.stats.total_generated_tokens > 0)  # it no longer waits
        # Of two places in the queue, chat needs to find both taken and two prompts one.
        num_waiting = 2 if "chat" in path else 1
        for _ in range(num_waiting):
            held.append(send_request(tiny, "/v1/chat/completions", LONG))
        wait_until(lambda: tiny.stats.num_waiting == num_waiting)
        response = http.post(path, json={**ROUTES[path], "stream": is_stream})
        assert response.status_code == 429
        assert 1 <= int(response.headers["retry-after"]) <= 60
        assert response.json()["error"]["type"] == "rate_limit_error"
        assert response.json()["error"]["code"] == "queue_full"
        for sock in held:
            sock.close()
        tiny.wait_idle()


def test_silence_is_filled_with_comments() -> None:
    gate, patience = Gate(), Patience(first_ping_s=0.05, next_ping_s=0.1)
    body = {**LONG, "max_tokens": 3}
    with running(gate.runner(), patience=patience, clock=Clock()) as live, live.http() as http:
        text = ""
        with http.stream("POST", "/v1/chat/completions", json={**body, "stream": True}) as response:
            for chunk in response.iter_text():
                text += chunk
                if text.count(": ping\n\n") >= 2:
                    gate.open()
        whole = http.post("/v1/chat/completions", json=body).text
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
            wait_until(lambda: live.stats.num_running > 0)
            live.wait_alone()
            live.wait_idle()
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
        thread.join(HANG_S)
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
            num_before = slow.stats.total_generated_tokens
            with send_request(slow, "/v1/chat/completions", {**LONG, "stream": number % 2 == 0}):
                wait_for(("sent", "running", "answering")[number % 3], slow, num_before)
        slow.wait_alone()
        slow.wait_idle()

    storm()
    before = counts()
    storm()
    wait_until(lambda: all(now <= then + 2 for now, then in zip(counts(), before, strict=True)))


# Takes its time for a pass until a line comes in.
PROGRAM = """
import socket, sys, threading
from proxy_inference_engine.config import Config
from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.engine.worker import Worker
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.served.model import ServedModel
from proxy_inference_engine.server.process import serve

hurry = threading.Event()

def listen():
    if sys.stdin.readline():  # not where it is closed, which is what waiting for the end does
        hurry.set()

threading.Thread(target=listen, daemon=True).start()
worker = Worker(StepEngine(FakeRunner(step_seconds=lambda _: 0.02, sleep=hurry.wait), max_cache_bytes=0))
worker.start()
sock = socket.socket()
sock.bind(("127.0.0.1", 0))
print(sock.getsockname()[1], flush=True)
config = Config(drain_seconds=float(sys.argv[1]))
code = serve([ServedModel.of(worker, config)], config, sock)
worker.stop()
sys.exit(code)
"""


class Process:
    def __init__(self, drain_seconds: float) -> None:
        command = [sys.executable, "-c", PROGRAM, str(drain_seconds)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.address = ("127.0.0.1", int(self._process.stdout.readline()))
        self.url = "http://{}:{}".format(*self.address)
        wait_until(lambda: self.accepts)
        assert httpx.get(f"{self.url}/ready", timeout=HANG_S).status_code == 200

    @property
    def accepts(self) -> bool:
        try:
            with socket.create_connection(self.address, timeout=HANG_S):
                return True
        except ConnectionError:
            return False

    @property
    def num_running(self) -> int:
        lines = httpx.get(f"{self.url}/metrics", timeout=HANG_S).text.splitlines()
        (value,) = (line.split()[-1] for line in lines if line.startswith("pie_running_sequences"))
        return int(float(value))

    def signal(self, number: int) -> None:
        """It has heard it when this returns."""
        self._process.send_signal(number)
        wait_until(lambda: not self.accepts)

    def signal_again(self, number: int) -> None:
        self._process.send_signal(number)

    def hurry(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def wait(self) -> tuple[int, str]:
        _, errors = self._process.communicate(timeout=HANG_S)
        return self._process.returncode, errors

    def stream(self, into: list[str]) -> threading.Thread:
        """A long answer, of which something was read."""

        def read() -> None:
            body, url = {**LONG, "stream": True}, f"{self.url}/v1/chat/completions"
            with suppress(httpx.TransportError), httpx.stream("POST", url, json=body, timeout=HANG_S) as response:
                for line in response.iter_lines():
                    into.append(line)

        thread = threading.Thread(target=read)
        thread.start()
        wait_until(lambda: into)
        return thread


def waiting(seconds: float) -> str:
    """What it says to whoever sent the signal."""
    return f"waiting up to {seconds} s for what still runs; another signal ends it now\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_streams_finish(number: int) -> None:
    process, lines = Process(drain_seconds=600), list[str]()
    thread = process.stream(lines)
    process.signal(number)
    process.hurry()
    code, errors = process.wait()
    thread.join(HANG_S)
    assert (code, errors) == (0, waiting(600))
    assert lines[-2] == "data: [DONE]" and '"finish_reason":"length"' in lines[-4]


def test_what_comes_after_the_signal_is_refused() -> None:
    """Its connection was there before: the head of the request too, the body was not."""
    process, lines = Process(drain_seconds=600), list[str]()
    thread = process.stream(lines)
    body = json.dumps({"model": MODEL, "messages": HELLO, "max_tokens": 1}).encode()
    head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with socket.create_connection(process.address, timeout=HANG_S) as sock:
        sock.sendall(f"{head}Content-Length: {len(body)}\r\nExpect: 100-continue\r\n\r\n".encode())
        assert sock.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        process.signal(signal.SIGTERM)
        sock.sendall(body)
        answer = b"".join(iter(lambda: sock.recv(65536), b""))  # head and body may come one after the other
    assert answer.startswith(b"HTTP/1.1 503 ") and b'"code":"shutting_down"' in answer
    process.hurry()
    assert process.wait() == (0, waiting(600))
    thread.join(HANG_S)
    assert lines[-2] == "data: [DONE]"


def test_streams_longer_than_the_drain_end_with_an_error() -> None:
    process, lines = Process(drain_seconds=0.3), list[str]()
    thread = process.stream(lines)
    whole: list[httpx.Response] = []
    asking = threading.Thread(
        target=lambda: whole.append(httpx.post(f"{process.url}/v1/chat/completions", json=LONG, timeout=HANG_S))
    )
    asking.start()
    wait_until(lambda: process.num_running == 2)
    process.signal(signal.SIGTERM)
    code, errors = process.wait()
    thread.join(HANG_S)
    asking.join(HANG_S)
    assert (code, errors) == (0, waiting(0.3))
    assert lines[-2] == "data: [DONE]"
    assert json.loads(lines[-4].removeprefix("data: "))["error"]["code"] == "shutting_down"
    assert whole[0].status_code == 503 and whole[0].json()["error"]["code"] == "shutting_down"


def test_a_second_signal_exits_now() -> None:
    process, lines = Process(drain_seconds=600), list[str]()
    thread = process.stream(lines)
    process.signal(signal.SIGTERM)
    process.signal_again(signal.SIGTERM)
    assert process.wait()[0] == 128 + signal.SIGTERM
    thread.join(HANG_S)
    assert "data: [DONE]" not in lines


def test_drained_servers_are_not_ready() -> None:
    with running(config=Config(drain_seconds=0.2)) as live, live.http() as http:
        assert http.get("/ready").json() == {"status": "ready"}
        live.server._drain.begin()
        assert http.get("/ready").status_code == 503
        assert http.get("/health").status_code == 200
        response = http.post("/v1/chat/completions", json={"model": MODEL, "messages": HELLO})
        assert response.status_code == 503 and response.json()["error"]["code"] == "shutting_down"
