"""Servers for tests that leave them as they found them: one for each runner, started when a test first wants it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import httpx
import pytest
from openai import OpenAI

from proxy_inference_engine.runners.base import Lane, Runner
from proxy_inference_engine.runners.fake import FakeRunner
from tests.api.running import MODEL, Running, running

MLX_LANES = (Lane(8, 1024), Lane(1, 8192))
MLX_CACHE_BYTES = 32 << 20


class Servers:
    """By the names of their runners."""

    def __init__(self, stack: ExitStack, makers: dict[str, Callable[[], Runner]]) -> None:
        self._stack = stack
        self._makers = makers
        self._live: dict[str, Running] = {}

    def __getitem__(self, name: str) -> Running:
        if name not in self._live:
            max_cache_bytes = MLX_CACHE_BYTES if name == "mlx" else 1 << 20
            live = self._stack.enter_context(running(self._makers[name](), max_cache_bytes=max_cache_bytes))
            self._stack.callback(live.wait_idle)
            self._live[name] = live
        return self._live[name]


@pytest.fixture(scope="session")
def make_tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Runner]:
    """A tiny Llama with random weights on MLX, in lanes as wanted, under the name of the fake model.

    Its tokens are chosen by the device, as on a GPU; what needs logits on the host goes there by itself.
    """
    pytest.importorskip("mlx_lm")
    from tests.tiny.runners import make_runner

    def make(*lanes: Lane) -> Runner:
        runner = make_runner("llama", tmp_path_factory.getbasetemp(), lanes=lanes, defers=True)
        runner.info = runner.info._replace(name=MODEL)
        return runner

    return make


@pytest.fixture(scope="session")
def servers(request: pytest.FixtureRequest) -> Iterator[Servers]:
    makers = {"fake": FakeRunner, "mlx": lambda: request.getfixturevalue("make_tiny")(*MLX_LANES)}
    with ExitStack() as stack:
        yield Servers(stack, makers)


@pytest.fixture
def server(request: pytest.FixtureRequest, servers: Servers) -> Running:
    """Over the fake model, unless a test is `on_every_runner`."""
    return servers[getattr(request, "param", "fake")]


@pytest.fixture
def client(server: Running) -> Iterator[OpenAI]:
    """The official client; every answer is validated against its types."""
    with server.openai() as openai:
        yield openai


@pytest.fixture
def http(server: Running) -> Iterator[httpx.Client]:
    with server.http() as plain:
        yield plain
