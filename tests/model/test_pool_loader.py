"""The loader with engines: what a model gets of the budget, and what is left where it cannot be served."""

import threading
from pathlib import Path

import pytest

from proxy_inference_engine.config import Config
from proxy_inference_engine.models.allotment import allot, read_facts
from proxy_inference_engine.models.watcher import Nobody
from proxy_inference_engine.pool.entry import PoolEntry
from proxy_inference_engine.pool.loader import EngineLoader
from proxy_inference_engine.pool.loads import LoadFailed
from proxy_inference_engine.pool.pool import ModelPool
from proxy_inference_engine.served.model import ServedModel, Threads
from proxy_inference_engine.server.app import image_loader
from tests.model.gguf_files import write_llama
from tests.polling import wait_until


@pytest.fixture
def config(tmp_path: Path) -> Config:
    path = write_llama(tmp_path / "m.gguf")
    return Config(model=str(path), threads=1, context=512, slots=4, convert_weights="never")


async def test_a_model_takes_what_it_was_allotted(config: Config) -> None:
    max_bytes = read_facts(config).weight_bytes + 100_000
    loader, entry = EngineLoader(max_bytes, Threads(), image_loader), PoolEntry("m", config)
    model = await loader.load(entry, Nobody())
    try:
        allotted, stats = allot(config, max_bytes), model.answerer.stats()
        assert await loader.need(entry) == allotted.num_bytes
        assert stats.max_kv_tokens * model.answerer.info.kv_bytes_per_token <= allotted.kv
        assert stats.max_cached_bytes == allotted.cache
    finally:
        await loader.unload(model)


async def test_a_model_that_cannot_be_served_is_not_left_running(config: Config, tmp_path: Path) -> None:
    template = tmp_path / "broken.jinja"
    template.write_text("{{ raise_exception('No.') }}", encoding="utf-8")
    broken = config.model_copy(update={"chat_template": str(template)})
    loader, before = EngineLoader(1 << 30, Threads(), image_loader), set(threading.enumerate())
    with pytest.raises(LoadFailed):
        await loader.load(PoolEntry("m", broken), Nobody())
    wait_until(lambda: not any(thread.name in ("engine", "load") for thread in set(threading.enumerate()) - before))


async def test_clients_do_not_hear_where_a_model_lies(config: Config, tmp_path: Path) -> None:
    (tmp_path / "m.gguf").unlink()
    with pytest.raises(LoadFailed) as caught:
        await EngineLoader(1 << 30, Threads(), image_loader).need(PoolEntry("m", config))
    assert "'m'" in caught.value.message and str(tmp_path) not in caught.value.message


async def test_the_log_says_where_it_lies(config: Config, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "m.gguf").unlink()
    loader = EngineLoader(1 << 30, Threads(), image_loader)
    pool = ModelPool([PoolEntry("m", config)], loader, max_bytes=1 << 30)
    with pytest.raises(LoadFailed, match=r"^The model 'm' cannot be loaded: no such file"):
        await pool.obtain(pool.find("m"))
    assert str(tmp_path / "m.gguf") in caplog.text


async def test_the_first_has_the_disk_until_it_has_gone(
    config: Config, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = config.model_copy(update={"disk_cache": 1 << 20, "cache_dir": tmp_path})
    loader = EngineLoader(1 << 30, Threads(), image_loader)

    async def load(name: str) -> ServedModel:
        return await loader.load(PoolEntry(name, config), Nobody())

    def num_bytes(model: ServedModel) -> int:
        return model.answerer.stats().max_disk_bytes

    first, second = await load("first"), await load("second")
    assert (num_bytes(first), num_bytes(second)) == (1 << 20, 0)
    assert "another model or server uses" in caplog.text
    await loader.unload(first)
    await loader.unload(second)
    second = await load("second")
    assert num_bytes(second) == 1 << 20
    await loader.unload(second)
