"""The bundled weights, loaded once per test run in each mode; and as a folder of safetensors. Every llama.cpp."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy_inference_engine.models.resolve import BUNDLED_NAME, resolve
from proxy_inference_engine.runners.base import Lane
from proxy_inference_engine.runners.llama_cpp.library import Library, candidates, load
from proxy_inference_engine.runners.llama_cpp.model import Model
from proxy_inference_engine.runners.llama_cpp.runner import LlamaRunner, Settings
from proxy_inference_engine.runners.llama_cpp.weights import fastest_weights

CONVERTER = Path(__file__).parents[2] / "scripts" / "convert_gguf.py"
LANES = (Lane(4, 256), Lane(1, 1024))


@pytest.fixture(scope="session", params=list(candidates()), ids=lambda candidate: candidate.origin)
def library(request: pytest.FixtureRequest) -> Library:
    """Every llama.cpp that is installed, one after another, for tests of what the runner asks of one."""
    return load(request.param)


@pytest.fixture(scope="session")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("weights")
    return fastest_weights(resolve(None).path, cache_dir=folder, threads=2, report=print)


@pytest.fixture(scope="session")
def bundled_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundled model for MLX, in 32 bits: on a CPU MLX computes with half precision thirty times slower."""
    folder = tmp_path_factory.mktemp("safetensors") / BUNDLED_NAME
    subprocess.run([sys.executable, CONVERTER, "--dtype", "f32", "--out", folder], check=True)
    return folder


def make_runner(weights: Path, *, is_exact: bool = False, lanes: tuple[Lane, ...] = LANES) -> LlamaRunner:
    settings = Settings(name="bundled", lanes=lanes, threads=2, is_exact=is_exact, cache_bytes=256 << 20)
    return LlamaRunner(Model(weights, is_exact=is_exact), settings)


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
