"""Where stored objects are kept is settled before the model is loaded, or the start ends with one line."""

import os
import pty
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import httpx
import pytest

import proxy_inference_engine
from proxy_inference_engine.config import Config
from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.engine.worker import Worker
from proxy_inference_engine.errors import QuotaExceeded, StartupError
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.served.model import ServedModel
from proxy_inference_engine.server.app import create_app
from proxy_inference_engine.server.process import open_store
from proxy_inference_engine.store import Record
from tests.polling import HANG_S, wait_until


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
        assert (tmp_path / "new" / "store.db").exists()
        await store.save(Record("response", "a", "", 1, {}, {}))
        with pytest.raises(QuotaExceeded):
            await store.save(Record("response", "b", "", 1, {}, {}))
        assert await store.load("response", "", "a") is None, "its time is over"


async def test_the_settings_reach_an_app_without_a_store() -> None:
    worker = Worker(StepEngine(FakeRunner(), max_cache_bytes=0))
    with closing(create_app([ServedModel.of(worker, Config())], Config(store_max_rows=1)).state.server.store) as store:
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


# A server over the fake model in a process of its own; it says its port.
SERVING = """
import socket, sys
from proxy_inference_engine import log
from proxy_inference_engine.config import load_config
from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.engine.worker import Worker
from proxy_inference_engine.pool.pool import ModelPool
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.served.model import ServedModel, Threads
from proxy_inference_engine.server import process

process.LOOK_SECONDS = 3600.0
log.configure("info")
config = load_config({})
worker = Worker(StepEngine(FakeRunner(), max_cache_bytes=0))
worker.start()
with socket.create_server(("127.0.0.1", 0)) as sock:
    print(sock.getsockname()[1], flush=True)
    pool = ModelPool.of([ServedModel.of(worker, config)], None)
    code = process.serve(pool, config, sock, threads=Threads())
worker.stop()
sys.exit(code)
"""


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "keys"
    path.write_text("anna:key-of-anna\n")
    path.chmod(0o600)
    return path


def serving(key_file: Path, stdin: int) -> subprocess.Popen[str]:
    source = str(Path(proxy_inference_engine.__file__).parents[1])
    environ = {**os.environ, "PYTHONPATH": source, "PIE_API_KEY_FILE": str(key_file), "PIE_DRAIN_SECONDS": "0.2"}
    command = [sys.executable, "-c", SERVING]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environ, cwd=key_file.parent, stdin=stdin, stdout=pipe, stderr=pipe, text=True)


def status(port: int, key: str) -> int:
    try:
        url = f"http://127.0.0.1:{port}/v1/models"
        return httpx.get(url, headers={"x-api-key": key}, timeout=HANG_S).status_code
    except httpx.TransportError:
        return 0  # it does not listen yet


def test_sighup_reads_the_keys_again(key_file: Path) -> None:
    with serving(key_file, subprocess.DEVNULL) as process:
        try:
            assert process.stdout is not None and process.stderr is not None
            port = int(process.stdout.readline())
            wait_until(lambda: status(port, "key-of-anna") == 200)
            key_file.write_text("ben:key-of-ben\n")
            process.send_signal(signal.SIGHUP)
            wait_until(lambda: status(port, "key-of-ben") == 200)
            assert status(port, "key-of-anna") == 401
            process.send_signal(signal.SIGTERM)
            assert process.wait(HANG_S) == 0
            assert "read the keys again keys=1" in process.stderr.read()
        finally:
            process.kill()


def test_a_closed_terminal_ends_the_server(key_file: Path) -> None:
    ours, its = pty.openpty()
    with serving(key_file, its) as process:
        try:
            os.close(its)
            assert process.stdout is not None
            port = int(process.stdout.readline())
            wait_until(lambda: status(port, "key-of-anna") == 200)
            process.send_signal(signal.SIGHUP)
            key_file.write_text("ben:key-of-ben\n")
            process.send_signal(signal.SIGHUP)
            wait_until(lambda: status(port, "key-of-ben") == 200)
            os.close(ours)  # what is behind it is gone
            process.send_signal(signal.SIGHUP)
            assert process.wait(HANG_S) == 0
        finally:
            process.kill()
