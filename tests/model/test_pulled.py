"""A real server started for one model: another one is judged, pulled from a hub, loaded beside it, and answers."""

from pathlib import Path

import pytest

from proxy_inference_engine.config import Config
from proxy_inference_engine.pool.entry import PoolEntry
from proxy_inference_engine.pool.loader import EngineLoader
from proxy_inference_engine.pool.pool import ModelPool
from proxy_inference_engine.served.model import Threads
from proxy_inference_engine.server.app import image_loader
from tests import hub as hubs
from tests.api.running import listening
from tests.model.gguf_files import write_llama
from tests.polling import wait_until

pytestmark = pytest.mark.model
NAME = "owner/tiny"
ROOM = 1 << 30


def test_a_second_model_is_pulled_and_loaded_beside_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, other = (write_llama(tmp_path / f"{name}.gguf", seed=seed) for seed, name in enumerate(("first", "other")))
    small = {"threads": 1, "context": 256, "slots": 2, "cache_memory": 1 << 20, "drain_seconds": 0.2}
    config = Config(model=str(first), **small)  # type: ignore[arg-type]
    loader = EngineLoader(None, Threads(), image_loader)
    pool = ModelPool([PoolEntry("first", config)], loader, widen=lambda: loader.share(ROOM))
    with hubs.serving() as hub:
        monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        monkeypatch.setenv("no_proxy", "*")
        hub.repositories[NAME] = {"tiny-F32.gguf": other.read_bytes()}
        try:
            with listening(pool, config) as live, live.http() as http:
                ask = {"prompt": "the cat", "max_tokens": 2}
                assert http.post("/v1/completions", json={"model": "first", **ask}).status_code == 200
                alone = http.get("/admin/models").json()
                assert alone["max_memory_bytes"] is None and alone["memory_bytes"] == 0
                [told] = alone["data"]
                assert told["parts"].keys() == {"weights", "kv", "cache"} and all(told["parts"].values())
                assert told["needs_bytes"] == sum(told["parts"].values()), "it is alone: what it has is what it needs"
                assert http.get("/admin/fit", params={"model": NAME}).json()["fits"]
                http.post("/admin/pulls", json={"model": NAME})
                wait_until(lambda: http.get("/admin/pulls").json()["data"][0]["state"] == "done")
                assert http.post("/v1/completions", json={"model": NAME, **ask}).json()["model"] == NAME
                assert http.post("/v1/completions", json={"model": "first", **ask}).status_code == 200
                status = http.get("/admin/models").json()
                assert status["max_memory_bytes"] == ROOM and status["data"][1]["memory_bytes"] > 0
                assert http.get("/admin/cache", params={"model": NAME}).json()["tokens"] > 0
        finally:
            for model in pool.loaded():
                loader.stop(model)
