"""A real server on a free port, over the real engine and, unless told otherwise, the fake model."""

import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
import pytest
from openai import OpenAI

from proxy_inference_engine.config import Config
from proxy_inference_engine.engine.base import Stats
from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.engine.queue import Admission
from proxy_inference_engine.engine.worker import Worker
from proxy_inference_engine.models.load.engine import use_disk
from proxy_inference_engine.pool.pool import ModelPool
from proxy_inference_engine.runners.base import Runner
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.served.model import ServedModel
from proxy_inference_engine.server.app import create_app, image_loader
from proxy_inference_engine.server.http.sse import Patience
from proxy_inference_engine.server.process import DrainingServer
from proxy_inference_engine.server.tracing import Tracing
from proxy_inference_engine.store import Store
from tests.polling import HANG_S, wait_until

MODEL = "fake"
HELLO = [{"role": "user", "content": "Hello"}]
RUNNERS = ("fake", "mlx")
# For tests whose outcome no text of a model changes. The server of `conftest.py` is then each of these, and one over
# the real vLLM where that is installed.
VLLM = pytest.param("vllm", marks=pytest.mark.vllm)
on_every_runner = pytest.mark.parametrize("server", [*RUNNERS, VLLM], indirect=True)


@dataclass(frozen=True)
class Listening:
    """A server, whatever answers behind it."""

    url: str
    server: DrainingServer

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.url.removeprefix("http://").split(":")
        return host, int(port)

    def http(self, **options: object) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=HANG_S, **options)  # type: ignore[arg-type]

    def openai(self, *, is_strict: bool = True, key: str = "none") -> OpenAI:
        return OpenAI(
            base_url=f"{self.url}/v1", api_key=key, max_retries=0, timeout=120, _strict_response_validation=is_strict
        )


@dataclass(frozen=True)
class Running(Listening):
    """A server over one engine in this process."""

    worker: Worker
    runner: Runner

    @property
    def stats(self) -> Stats:
        return self.worker.stats()

    def ids(self, text: str) -> list[int]:
        return self.worker.tokenizer.encode(text)

    def bias(self, weights: dict[str, int]) -> dict[str, int]:
        """A logit_bias by characters. These models write strings for ever: they have to be talked into closing them."""
        return {str(self.ids(text)[0]): weight for text, weight in weights.items()}

    def wait_idle(self) -> None:
        """Nothing runs and nothing waits."""
        wait_until(lambda: not (self.stats.num_running or self.stats.num_waiting))

    def wait_alone(self) -> None:
        """Nobody is connected."""
        wait_until(lambda: not self.server.server_state.connections)


@contextmanager
def running(
    runner: Runner | None = None,
    config: Config | None = None,
    *,
    admission: Admission | None = None,
    patience: Patience | None = None,
    max_cache_bytes: int = 1 << 20,
    store: Store | None = None,
    tracing: Tracing | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Running]:
    """`clock`: by which the engine is watched."""
    runner = runner or FakeRunner()
    config = config or Config(drain_seconds=0.2)
    engine = StepEngine(runner, max_cache_bytes=max_cache_bytes)
    use_disk(engine, config)
    worker = Worker(engine, admission, clock=clock)
    worker.start()
    model = ServedModel.of(worker, config, images=image_loader(config))
    try:
        with listening([model], config, patience=patience, store=store, tracing=tracing) as live:
            yield Running(live.url, live.server, worker, runner)
    finally:
        worker.stop()


@contextmanager
def listening(
    models: ModelPool | Sequence[ServedModel],
    config: Config,
    *,
    patience: Patience | None = None,
    store: Store | None = None,
    tracing: Tracing | None = None,
) -> Iterator[Listening]:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        app = create_app(models, config, patience=patience, store=store, tracing=tracing)
        server = DrainingServer(app, config.drain_seconds)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
        thread.start()
        try:
            wait_until(lambda: server.started or not thread.is_alive())
            assert server.started, "the server did not start"
            host, port = sock.getsockname()
            yield Listening(f"http://{host}:{port}", server)
        finally:
            server.should_exit = True
            thread.join(HANG_S)
    assert not thread.is_alive()
    if store is None:
        app.state.server.store.close()  # the server's own, in memory: or its thread would stay
