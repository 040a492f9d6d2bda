"""Embeddings of the real vLLM, started with `--runner pooling`: ours over it are its own."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from proxy_inference_engine.config import Config
from proxy_inference_engine.served.model import ServedModel
from tests import vllm
from tests.api.running import Listening, listening
from tests.polling import HANG_S

pytestmark = [pytest.mark.model, pytest.mark.vllm]

CONFIG = Config(drain_seconds=0.2)
TEXTS = ["The river", "the SEA, the sea!", "naïve 🙂 x9"]


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not vllm.PYTHON.exists():
        pytest.skip(vllm.MISSING)
    reader = pytest.importorskip("tests.tiny.reader", reason="its weights are written with MLX")
    folder: Path = reader.write_bert(tmp_path_factory.mktemp("vllm") / "reader")
    return folder


@pytest.fixture(scope="module")
def process(weights: Path) -> Iterator[vllm.VllmProcess]:
    options = ("--runner", "pooling", "--max-model-len", "128")
    with vllm.running(weights, weights.parent / "pooling.log", *options) as process:
        yield process


@pytest.fixture(scope="module")
def live(process: vllm.VllmProcess, weights: Path) -> Iterator[Listening]:
    with (
        vllm.over(process.url, weights, weights.parent) as model,
        listening([ServedModel.of(model, CONFIG)], CONFIG) as live,
    ):
        yield live


def post(url: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = httpx.post(f"{url}/v1/embeddings", json=body, timeout=HANG_S)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def vectors(answer: dict[str, Any]) -> np.ndarray[Any, Any]:
    return np.array([each["embedding"] for each in answer["data"]])


def test_vectors_are_its_own(live: Listening, process: vllm.VllmProcess) -> None:
    ours, its = post(live.url, {"input": TEXTS}), post(process.url, {"model": vllm.NAME, "input": TEXTS})
    assert vectors(ours) == pytest.approx(vectors(its), abs=1e-5)
    assert ours["usage"]["prompt_tokens"] == its["usage"]["prompt_tokens"]
    assert not np.allclose(vectors(ours)[0], vectors(ours)[1], atol=1e-3), "different texts have different vectors"


def test_what_a_text_spells_is_no_control_token(live: Listening, process: vllm.VllmProcess) -> None:
    spelled = {"input": ["a [SEP] b"]}
    assert not np.allclose(
        vectors(post(live.url, spelled)), vectors(post(process.url, {**spelled, "model": vllm.NAME})), atol=1e-3
    )


def test_a_text_that_is_too_long_is_refused_by_name(live: Listening) -> None:
    refused = httpx.post(f"{live.url}/v1/embeddings", json={"input": "sea " * 200}, timeout=HANG_S)
    assert refused.status_code == 400 and refused.json()["error"]["param"] == "input", refused.text


def test_it_writes_no_text(live: Listening) -> None:
    body = {"messages": [{"role": "user", "content": "Hello"}]}
    refused = httpx.post(f"{live.url}/v1/chat/completions", json=body, timeout=HANG_S)
    assert refused.status_code == 400 and refused.json()["error"]["param"] == "model", refused.text
