"""Servers for tests that leave them as they found them: one for each runner, started when a test first wants it."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import cast

import httpx
import pytest
from openai import OpenAI

from proxy_inference_engine.config import Config
from proxy_inference_engine.engine.worker import Worker
from proxy_inference_engine.far.model import FarModel
from proxy_inference_engine.runners.base import Lane, Runner
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.served.model import ServedModel
from tests.api.running import MODEL, Running, listening, running

MLX_LANES = (Lane(8, 1024), Lane(1, 8192))
MLX_CACHE_BYTES = 32 << 20


# Tests on every runner that ask vLLM for what it lacks, or for more than its answers tell; by name and parameters.
NOT_VLLM = {
    "test_anthropic.py::test_a_prompt_that_comes_again": "it caches whole blocks, and these prompts are shorter",
    "test_anthropic.py::test_the_bytes_of_a_stream": "its random weights write parts of characters",
    "test_chat.py::test_streamed_equals_whole[fields8-vllm]": "it has no DRY",
    "test_ollama.py::test_embeddings": "one that generates makes no embeddings",
    "test_other_words.py::test_samplers_of_other_servers": "it has none of them",
    "test_structured.py::test_bad_formats_do_not_disturb_a_running_stream": "its steps are not counted here",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        reason = next((why for name, why in NOT_VLLM.items() if name in item.nodeid), None)
        if reason is not None and item.get_closest_marker("vllm") is not None:
            item.add_marker(pytest.mark.skip(f"not over vLLM: {reason}"))


class Servers:
    """By the names of their runners."""

    def __init__(
        self,
        stack: ExitStack,
        makers: dict[str, Callable[[], Runner]],
        over_vllm: Callable[[], AbstractContextManager[Running]],
    ) -> None:
        self._stack = stack
        self._makers = makers
        self._over_vllm = over_vllm
        self._live: dict[str, Running] = {}

    def __getitem__(self, name: str) -> Running:
        if name not in self._live and name == "vllm":
            self._live[name] = self._stack.enter_context(self._over_vllm())
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
        yield Servers(stack, makers, lambda: _over_vllm(request.getfixturevalue("vllm_model")))


@contextmanager
def _over_vllm(model: FarModel) -> Iterator[Running]:
    config = Config(drain_seconds=0.2)
    with listening([ServedModel.of(model, config, name=MODEL)], config) as live:
        # What these tests ask of a worker and a runner, an answerer has.
        yield Running(live.url, live.server, cast(Worker, model), cast(Runner, model))


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
