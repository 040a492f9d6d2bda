"""The bundled weights, loaded once per test run in each mode."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy_inference_engine.models.resolve import resolve
from proxy_inference_engine.runners.base import Lane
from proxy_inference_engine.runners.llama_cpp.model import Model
from proxy_inference_engine.runners.llama_cpp.runner import LlamaRunner, Settings
from proxy_inference_engine.runners.llama_cpp.weights import fastest_weights

LANES = (Lane(4, 256), Lane(1, 1024))


@pytest.fixture(scope="session")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("weights")
    return fastest_weights(resolve(None).path, cache_dir=folder, threads=2, report=print)


def make_runner(weights: Path, *, is_exact: bool = False, lanes: tuple[Lane, ...] = LANES) -> LlamaRunner:
    settings = Settings(name="bundled", lanes=lanes, threads=2, is_exact=is_exact, cache_bytes=256 << 20)
    return LlamaRunner(Model(weights), settings)


@pytest.fixture(scope="session")
def exact_runner(weights: Path) -> Iterator[LlamaRunner]:
    runner = make_runner(weights, is_exact=True)
    yield runner
    runner.close()


@pytest.fixture(scope="session")
def runner(weights: Path) -> Iterator[LlamaRunner]:
    runner = make_runner(weights)
    yield runner
    runner.close()
