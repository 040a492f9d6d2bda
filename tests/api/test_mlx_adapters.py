"""LoRA adapters of a model on MLX behind the real server, loaded by the pool as `pie serve` does."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("mlx_lm")

from proxy_inference_engine.config import Config
from proxy_inference_engine.models.allotment import allot
from proxy_inference_engine.pool.entry import PoolEntry
from proxy_inference_engine.pool.loader import EngineLoader
from proxy_inference_engine.pool.pool import ModelPool
from proxy_inference_engine.served.model import Threads
from proxy_inference_engine.server.app import image_loader
from tests import tiny
from tests.api.running import Listening, listening
from tests.tiny.adapters import write_mlx, write_peft

BUDGET = 1 << 30
NAMES = ("base", "base:poet", "base:lawyer")
PROMPT = "Once upon a time there was a little model that said the same thing again and again. " * 2


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    folder = tmp_path_factory.mktemp("mlx")
    model = tiny.write_llama(folder / "base")
    adapters = {
        "poet": write_peft(folder / "poet", model, seed=1),
        "lawyer": write_mlx(folder / "lawyer", model, seed=2, rank=2),
    }
    return Config(
        model=str(model), adapters=adapters, context=512, slots=4, cache_memory=32 << 20, cache_dir=folder / "cache"
    )


@pytest.fixture(scope="module")
def live(config: Config) -> Iterator[Listening]:
    loader = EngineLoader(BUDGET, Threads(), image_loader)
    pool = ModelPool([PoolEntry("base", config)], loader, max_bytes=BUDGET)
    try:
        with listening(pool, Config(drain_seconds=0.2)) as live:
            yield live
    finally:
        for model in pool.loaded():
            model.close()


def said(http: httpx.Client, model: str, prompt: str = PROMPT) -> dict[str, Any]:
    body = {"model": model, "prompt": prompt, "max_tokens": 24, "temperature": 0, "ignore_eos": True}
    answer = http.post("/v1/completions", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_each_is_a_model_of_its_own_and_keeps_its_prefixes(live: Listening) -> None:
    with live.http() as http, live.openai() as client:
        assert [model.id for model in client.models.list()] == list(NAMES)
        first = [said(http, name) for name in NAMES]
        assert [answer["model"] for answer in first] == list(NAMES)
        texts = [answer["choices"][0]["text"] for answer in first]
        assert len(set(texts)) == 3
        assert [answer["usage"]["prompt_tokens_details"]["cached_tokens"] for answer in first] == [0, 0, 0]
        again = [said(http, name) for name in NAMES]
        assert [answer["choices"][0]["text"] for answer in again] == texts
        for usage in (answer["usage"] for answer in again):
            assert usage["prompt_tokens_details"]["cached_tokens"] == usage["prompt_tokens"] - 1


def test_beside_each_other_they_say_what_they_say_alone(live: Listening) -> None:
    prompts = [PROMPT[number:] for number in range(4)]
    with live.http() as http, ThreadPoolExecutor(12) as threads:
        asks = [(name, prompt) for prompt in prompts for name in NAMES]
        together = list(threads.map(lambda ask: said(http, *ask)["choices"][0]["text"], asks))
        assert together == [said(http, *ask)["choices"][0]["text"] for ask in asks]


def test_what_an_adapter_cannot_do_is_refused(live: Listening) -> None:
    with live.http() as http:
        for path, body in (("/v1/embeddings", {"input": "x"}), ("/v1/rerank", {"query": "x", "documents": ["y"]})):
            refused = http.post(path, json={"model": "base:poet", **body})
            assert refused.status_code == 400 and refused.json()["error"]["param"] == "model", refused.text
        assert http.post("/v1/embeddings", json={"model": "base", "input": "x"}).status_code == 200
        assert http.post("/v1/completions", json={"model": "base:judge", "prompt": "x"}).status_code == 404


def test_adapters_count_in_what_a_model_needs(config: Config) -> None:
    files = [path for folder in (config.adapters or {}).values() for path in Path(folder).glob("*.safetensors")]
    sizes = sum(path.stat().st_size for path in files)
    assert sizes > 0
    plain = config.model_copy(update={"adapters": None})
    assert allot(config, BUDGET).weights - allot(plain, BUDGET).weights == sizes
