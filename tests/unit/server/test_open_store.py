"""Where stored objects are kept is settled before the model is loaded, or the start ends with one line."""

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from proxy_inference_engine.config import Config
from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.engine.worker import Worker
from proxy_inference_engine.errors import QuotaExceeded, StartupError
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.server.app import create_app
from proxy_inference_engine.server.run import open_store
from proxy_inference_engine.store import Record


def test_the_data_folder_follows_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    assert Config().data_dir == tmp_path / ".local" / "share" / "proxy-inference-engine"
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert Config().data_dir == Path("/data/proxy-inference-engine")
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert Config().data_dir == tmp_path / ".local" / "share" / "proxy-inference-engine"


async def test_the_settings_reach_the_store(tmp_path: Path) -> None:
    config = Config(data_dir=tmp_path / "new", store_max_rows=1, store_ttl_days=1e-9)
    with closing(open_store(config)) as store:
        assert store.folder == tmp_path / "new" and (tmp_path / "new" / "store.db").exists()
        await store.save(Record("response", "a", "", 1, {}, {}))
        with pytest.raises(QuotaExceeded):
            await store.save(Record("response", "b", "", 1, {}, {}))
        assert await store.load("response", "", "a") is None, "its time is over"


async def test_the_settings_reach_an_app_without_a_store() -> None:
    worker = Worker(StepEngine(FakeRunner(), max_cache_bytes=0))
    with closing(create_app(worker, Config(store_max_rows=1)).state.services.store) as store:
        await store.save(Record("response", "a", "", 1, {}, {}))
        with pytest.raises(QuotaExceeded):
            await store.save(Record("response", "b", "", 1, {}, {}))


def test_without_a_folder_nothing_starts() -> None:
    with pytest.raises(StartupError, match="PIE_DATA_DIR"):
        open_store(Config().model_copy(update={"data_dir": None}))


def test_a_folder_that_cannot_be_used_ends_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    environ = {**os.environ, "PIE_DATA_DIR": str(tmp_path / "file" / "folder"), "PIE_PORT": "0"}
    command = [sys.executable, "-m", "proxy_inference_engine", "serve"]
    done = subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stdout == "" and done.stderr.count("\n") == 1 and "PIE_DATA_DIR" in done.stderr
