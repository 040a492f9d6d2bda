"""A real server on a free port, over the real engine and, unless told otherwise, the fake model."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
import pytest
from openai import OpenAI

from proxy_inference_engine.config import Config
from proxy_inference_engine.engine.admission import Admission
from proxy_inference_engine.engine.base import Stats
from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.engine.worker import Worker
from proxy_inference_engine.models.disk_cache import use_disk
from proxy_inference_engine.runners.base import Runner
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.server.app import create_app
from proxy_inference_engine.server.run import DrainingServer
from proxy_inference_engine.server.sse import Patience
from proxy_inference_engine.store import Store

MODEL = "fake"
HELLO = [{"role": "user", "content": "Hello"}]
RUNNERS = ("fake", "mlx")
# For tests whose outcome no text of a model changes. The server of `conftest.py` is then each of these.
on_every_runner = pytest.mark.parametrize("server", RUNNERS, indirect=True)


@dataclass(frozen=True)
class Running:
    url: str
    worker: Worker
    server: DrainingServer
    runner: Runner

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.url.removeprefix("http://").split(":")
        return host, int(port)

    @property
    def stats(self) -> Stats:
        return self.worker.stats()

    def http(self, **options: object) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=20, **options)  # type: ignore[arg-type]

    def openai(self, *, is_strict: bool = True, key: str = "none") -> OpenAI:
        return OpenAI(
            base_url=f"{self.url}/v1", api_key=key, max_retries=0, timeout=120, _strict_response_validation=is_strict
        )

    def ids(self, text: str) -> list[int]:
        return self.worker.tokenizer.encode(text)

    def bias(self, weights: dict[str, int]) -> dict[str, int]:
        """A logit_bias by characters. These models write strings for ever: they have to be talked into closing them."""
        return {str(self.ids(text)[0]): weight for text, weight in weights.items()}

    def wait_idle(self, seconds: float = 5.0) -> None:
        """Nothing runs and nothing waits."""
        deadline = time.monotonic() + seconds
        while (stats := self.stats).num_running or stats.num_waiting:
            assert time.monotonic() < deadline, f"still busy: {stats}"
            time.sleep(0.01)


@contextmanager
def running(
    runner: Runner | None = None,
    config: Config | None = None,
    *,
    admission: Admission | None = None,
    patience: Patience | None = None,
    max_cache_bytes: int = 1 << 20,
    store: Store | None = None,
) -> Iterator[Running]:
    runner = runner or FakeRunner()
    config = config or Config(drain_seconds=0.2)
    engine = StepEngine(runner, max_cache_bytes=max_cache_bytes)
    use_disk(engine, config)
    worker = Worker(engine, admission)
    worker.start()
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        server = DrainingServer(create_app(worker, config, patience=patience, store=store), config.drain_seconds)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
        thread.start()
        try:
            deadline = time.monotonic() + 10
            while not server.started:
                assert thread.is_alive() and time.monotonic() < deadline, "the server did not start"
                time.sleep(0.005)
            host, port = sock.getsockname()
            yield Running(f"http://{host}:{port}", worker, server, runner)
        finally:
            server.should_exit = True
            thread.join(20)
            worker.stop()
    assert not thread.is_alive()
