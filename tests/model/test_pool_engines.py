"""`pie serve` with models of two engines, llama.cpp and MLX, in one pool under one budget of memory."""

import resource
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

pytest.importorskip("mlx_lm")

from proxy_inference_engine.config import Config
from proxy_inference_engine.models.allotment import allot
from proxy_inference_engine.models.resolve import resolve, weight_bytes
from proxy_inference_engine.runners.checkpoint import weight_files
from tests import tiny
from tests.model.test_pool import serving
from tests.polling import wait_until

CONTEXT, SLOTS, CACHE = 256, 2, 4 << 20
LLAMA, MLX, OTHER = "bundled", "small", "other"


class Pool(NamedTuple):
    http: httpx.Client
    pid: int
    needs: dict[str, int]  # bytes
    budget: int

    def said(self, model: str, max_tokens: int = 12) -> str:
        body = {"model": model, "prompt": "Once upon a time", "max_tokens": max_tokens, "temperature": 0}
        answer = self.http.post("/v1/completions", json={**body, "ignore_eos": True})
        assert answer.status_code == 200, answer.text
        return str(answer.json()["choices"][0]["text"])

    def models(self) -> dict[str, dict[str, object]]:
        return {model["id"]: model for model in self.http.get("/admin/models").json()["data"]}

    def loaded(self) -> set[str]:
        return {name for name, model in self.models().items() if model["state"] == "ready"}

    def answering(self) -> set[str]:
        running = self.http.get("/admin/requests").json()["data"]
        return {each["model"] for each in running if each["state"] == "answering"}

    def used(self) -> int:
        return int(self.http.get("/admin/models").json()["memory_bytes"])

    def rss(self) -> int:
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("mlx")
    small = {name: tiny.write_llama(folder / name, seed=seed) for seed, name in enumerate((MLX, OTHER))}
    return {LLAMA: resolve(None).path, **small}


@pytest.fixture(scope="module")
def pool(paths: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """Room for the bundled model on llama.cpp and one small one on MLX, not for a third."""
    config = Config(context=CONTEXT, slots=SLOTS, cache_memory=CACHE, convert_weights="never")
    configs = {name: config.model_copy(update={"model": str(path)}) for name, path in paths.items()}
    needs = {name: allot(each, 4 << 30).num_bytes for name, each in configs.items()}
    budget = needs[LLAMA] + needs[MLX]
    tables = "".join(f'[models.{name}]\nmodel = "{path}"\n' for name, path in paths.items())
    toml = f'memory = {budget}\ncache_memory = {CACHE}\nconvert_weights = "never"\n{tables}'
    home = tmp_path_factory.mktemp("home")
    with serving(home, toml) as (http, _):
        yield Pool(http, int((home / "pid").read_text()), needs, budget)


@pytest.fixture(scope="module")
def alone(pool: Pool) -> dict[str, str]:
    """What each says when nobody else is asked."""
    return {name: pool.said(name) for name in (MLX, LLAMA)}


def test_each_counts_as_what_it_needs(pool: Pool, paths: dict[str, Path], alone: dict[str, str]) -> None:
    models = pool.models()
    assert pool.loaded() == {LLAMA, MLX} and models[OTHER]["state"] == "unloaded"
    assert {name: models[name]["memory_bytes"] for name in (LLAMA, MLX)} == {
        name: pool.needs[name] for name in (LLAMA, MLX)
    }
    assert pool.used() == pool.budget
    sizes = {LLAMA: weight_bytes(paths[LLAMA]), MLX: sum(file.stat().st_size for file in weight_files(paths[MLX]))}
    for name, size in sizes.items():
        assert size < pool.needs[name]
    assert alone[LLAMA] != alone[MLX]


@contextmanager
def talking(pool: Pool, names: Sequence[str]) -> Iterator[None]:
    """Meanwhile each of these writes one long answer after another."""
    is_over = threading.Event()

    def talk(name: str) -> None:
        while not is_over.is_set():
            pool.said(name, max_tokens=200)

    with ThreadPoolExecutor(len(names)) as threads:
        talks = [threads.submit(talk, name) for name in names]
        try:
            yield
        finally:
            is_over.set()
    for each in talks:
        each.result()


def test_both_answer_at_once(pool: Pool, alone: dict[str, str]) -> None:
    """Beside each other they say what they say alone, and neither waits for the other's end."""
    with talking(pool, [LLAMA, MLX]):
        wait_until(lambda: pool.answering() >= {LLAMA, MLX})
        assert {name: pool.said(name) for name in (LLAMA, MLX)} == alone
        wait_until(lambda: pool.answering() >= {LLAMA, MLX})
    assert pool.loaded() == {LLAMA, MLX}


def test_one_engines_model_goes_for_the_others(pool: Pool, alone: dict[str, str]) -> None:
    pool.said(LLAMA)
    pool.said(MLX)
    before = pool.rss()
    other = pool.said(OTHER)
    assert pool.loaded() == {MLX, OTHER}, "the one of llama.cpp was used before the one of MLX"
    assert pool.used() == pool.needs[MLX] + pool.needs[OTHER]
    assert pool.said(LLAMA) == alone[LLAMA]
    assert pool.loaded() == {LLAMA, OTHER}, "and now the one of MLX made room"
    assert pool.said(MLX) == alone[MLX] and pool.said(OTHER) == other
    assert pool.used() <= pool.budget
    assert pool.rss() - before < pool.needs[MLX], "what went gave its memory back"
