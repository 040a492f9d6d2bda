"""An engine that hangs, dies or panics, seen by clients: everyone gets an honest end, and the server goes on."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from proxy_inference_engine.config import Config
from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.engine.worker import Worker
from proxy_inference_engine.served.model import ServedModel
from proxy_inference_engine.state_machine.matcher import RootMatcher
from tests.api.running import HELLO, MODEL, listening, running
from tests.clock import Clock
from tests.polling import HANG_S, wait_until
from tests.unit.engine.test_failures import Panic
from tests.unit.engine.test_supervisor import LATE, LOST, pass_by
from tests.unit.engine.threads import BreakableClock, Gate

CHAT = {"model": MODEL, "messages": HELLO, "max_tokens": 5, "temperature": 0}
JSON = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "array", "items": {"type": "boolean"}}}}


@dataclass
class Hanging:
    worker: Worker
    gate: Gate
    clock: Clock
    http: httpx.Client
    pool: ThreadPoolExecutor

    def ask(self, path: str = "/v1/chat/completions", **fields: Any) -> "Future[httpx.Response]":
        body = {**CHAT, **fields} if path == "/v1/chat/completions" else fields
        return self.pool.submit(self.http.post, path, json=body)

    def pass_by(self, seconds: int, num_requests: int) -> None:
        """Time in which the engine does nothing, once so many requests have reached it."""
        wait_until(lambda: self.worker._life.ledger.num_streams == num_requests and self.gate.is_entered.is_set())
        pass_by(self.worker, self.clock, seconds)


@contextmanager
def hanging() -> Iterator[Hanging]:
    gate, clock = Gate(), Clock()
    worker = Worker(StepEngine(gate.runner(), max_cache_bytes=1 << 20), clock=clock)
    worker.start()
    config = Config(drain_seconds=0.2)
    try:
        with (
            listening([ServedModel.of(worker, config)], config) as live,
            live.http() as http,
            ThreadPoolExecutor() as pool,
        ):
            try:
                yield Hanging(worker, gate, clock, http, pool)
            finally:
                gate.open()  # before the pool waits for its threads: a stream's pings would keep one for ever
    finally:
        worker.stop()


def code_of(response: httpx.Response) -> tuple[int, str, str | None]:
    return response.status_code, response.json()["error"]["code"], response.headers.get("retry-after")


def test_while_a_pass_hangs_nobody_new_is_let_in() -> None:
    with hanging() as server:
        answer = server.ask()
        server.pass_by(LATE, 1)
        assert code_of(server.http.get("/ready")) == (503, "engine_unavailable", "5")
        assert server.http.get("/health").status_code == 200
        assert code_of(server.http.post("/v1/chat/completions", json=CHAT)) == (503, "engine_stuck", "5")
        embedding = server.http.post("/v1/embeddings", json={"model": MODEL, "input": "x"})
        assert code_of(embedding) == (503, "engine_stuck", "5")
        server.gate.open()
        assert answer.result().status_code == 200, "it was only slow"
        wait_until(lambda: server.http.get("/ready").status_code == 200)


def test_when_a_pass_hangs_everyone_gets_an_error_and_later_ones_an_answer() -> None:
    with running() as live, live.http() as http:
        expected = http.post("/v1/chat/completions", json={**CHAT, "ignore_eos": True}).json()["choices"]
    with hanging() as server:
        whole, streamed = server.ask(), server.ask(stream=True)
        message = {"model": MODEL, "messages": HELLO, "max_tokens": 5}
        anthropic = server.ask("/v1/messages", **message)
        stored = server.ask("/v1/responses", model=MODEL, input="Hello", background=True)
        server.pass_by(LOST, 4)
        assert code_of(whole.result()) == (503, "engine_stuck", "5")
        frames = [line for line in streamed.result().text.splitlines() if line]
        assert frames[-1] == "data: [DONE]"
        assert json.loads(frames[-2].removeprefix("data: "))["error"]["code"] == "engine_stuck"
        assert 'finish_reason":"' not in streamed.result().text
        assert anthropic.result().status_code in (503, 529) and anthropic.result().headers["retry-after"] == "5"
        path = f"/v1/responses/{stored.result().json()['id']}"
        wait_until(lambda: server.http.get(path).json()["status"] == "failed")
        assert code_of(server.http.get("/ready"))[0] == 503
        server.gate.open()
        wait_until(lambda: server.http.get("/ready").status_code == 200)
        answer = server.http.post("/v1/chat/completions", json={**CHAT, "ignore_eos": True})
        assert answer.json()["choices"] == expected


def test_after_a_death_the_server_answers_again() -> None:
    clock = BreakableClock()
    worker = Worker(StepEngine(Gate(is_open=True).runner(), max_cache_bytes=0, clock=clock))
    worker.start()
    config = Config(drain_seconds=0.2)
    try:
        with listening([ServedModel.of(worker, config)], config) as live, live.http() as http:
            before = http.post("/v1/chat/completions", json=CHAT).json()["choices"]
            clock.break_once(1)
            response = http.post("/v1/chat/completions", json=CHAT)
            assert (response.status_code, response.json()["error"]["code"]) == (500, "engine_failure")
            wait_until(lambda: http.get("/ready").status_code == 200)
            assert http.post("/v1/chat/completions", json=CHAT).json()["choices"] == before
    finally:
        worker.stop()


def test_a_panic_in_one_grammar_is_that_request_s_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def panic(self: RootMatcher, token_id: int) -> None:
        raise Panic("injected panic")

    with running() as live, live.http() as http:
        with monkeypatch.context() as patch:
            patch.setattr(RootMatcher, "accept", panic)
            response = http.post("/v1/chat/completions", json={**CHAT, "response_format": JSON})
            assert (response.status_code, response.json()["error"]["code"]) == (500, "engine_failure")
            assert http.post("/v1/chat/completions", json=CHAT).status_code == 200
        assert http.get("/ready").status_code == 200
        assert http.post("/v1/chat/completions", json={**CHAT, "response_format": JSON}).status_code == 200


PROGRAM = """
import socket, threading
from proxy_inference_engine.config import Config
from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.engine.worker import Worker
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.served.model import ServedModel
from proxy_inference_engine.server.process import serve

def hang(seconds):
    print("hangs", flush=True)
    threading.Event().wait()

worker = Worker(StepEngine(FakeRunner(step_seconds=lambda _: 1.0, sleep=hang), max_cache_bytes=0))
worker.start()
sock = socket.socket()
sock.bind(("127.0.0.1", 0))
print(sock.getsockname()[1], flush=True)
config = Config(drain_seconds=0.2)
code = serve([ServedModel.of(worker, config)], config, sock)
worker.stop()
raise SystemExit(code)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_server_whose_engine_hangs(number: int) -> None:
    """It once waited half a minute more, which the limit here would notice."""
    responses: list[httpx.Response] = []
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            url = f"http://127.0.0.1:{process.stdout.readline().strip()}"
            wait_until(lambda: _is_up(url))
            asking = threading.Thread(
                target=lambda: responses.append(httpx.post(f"{url}/v1/chat/completions", json=CHAT, timeout=HANG_S))
            )
            asking.start()
            assert process.stdout.readline() == "hangs\n"
            process.send_signal(number)
            _, errors = process.communicate(timeout=HANG_S)
            asking.join()
        finally:
            process.kill()
    assert process.returncode == 0
    assert "left behind" in errors and "Traceback" not in errors
    assert code_of(responses[0])[:2] == (503, "shutting_down")


LOADING = """
import socket, threading
from proxy_inference_engine.config import Config
from proxy_inference_engine.pool.entry import PoolEntry
from proxy_inference_engine.pool.loader import EngineLoader
from proxy_inference_engine.pool.pool import ModelPool
from proxy_inference_engine.served.model import Threads
from proxy_inference_engine.server.app import image_loader
from proxy_inference_engine.server.process import serve

class Hanging(EngineLoader):
    async def need(self, entry):
        return 1

    def _load(self, entry, watcher):
        print("hangs", flush=True)
        threading.Event().wait()

pool = ModelPool([PoolEntry("a", Config())], Hanging(2, Threads(), image_loader), max_bytes=2)
sock = socket.socket()
sock.bind(("127.0.0.1", 0))
print(sock.getsockname()[1], flush=True)
raise SystemExit(serve(pool, Config(drain_seconds=0.2), sock))
"""


def test_a_signal_ends_a_server_whose_model_hangs_while_it_is_loaded() -> None:
    """It waited for the load: five minutes for the event loop's threads, and then for ever for the interpreter's."""
    responses: list[httpx.Response] = []
    with subprocess.Popen(
        [sys.executable, "-c", LOADING], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            url = f"http://127.0.0.1:{process.stdout.readline().strip()}"
            wait_until(lambda: _is_up(url))
            body = {**CHAT, "model": "a"}
            asking = threading.Thread(
                target=lambda: responses.append(httpx.post(f"{url}/v1/chat/completions", json=body, timeout=HANG_S))
            )
            asking.start()
            assert process.stdout.readline() == "hangs\n"
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=HANG_S)
            asking.join()
        finally:
            process.kill()
    assert process.returncode == 0 and "Traceback" not in errors
    assert code_of(responses[0])[:2] == (503, "shutting_down")


def _is_up(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=HANG_S).status_code == 200
    except httpx.ConnectError:
        return False
