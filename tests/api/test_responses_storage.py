"""Stored responses and the disk: they outlive the server, a crash is told, a full disk stops only what is stored."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import openai
import pytest

from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.store import Store, StoreLimits
from tests.api.running import running
from tests.api.test_responses import ASK, ask, frames


def test_a_conversation_goes_on_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with closing(Store.open(path)) as store, running(store=store) as live, live.openai() as client:
        first = ask(client, max_output_tokens=30)
        whole = ask(client, input="More", previous_response_id=first.id, store=False)
    with closing(Store.open(path)) as store, running(store=store) as live, live.openai() as client:
        assert client.responses.retrieve(first.id) == first
        events = list(client.responses.retrieve(first.id, stream=True))
        assert events[-1].type == "response.incomplete" and events[-1].response == first
        assert ask(client, input="More", previous_response_id=first.id).output_text == whole.output_text


# A server that dies while a response runs in the background.
CRASH = """
import os, sys
from pathlib import Path
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.store import Store
from tests.api.running import running
from tests.api.test_responses import ask
with running(FakeRunner(step_seconds=lambda _: 0.01), store=Store.open(Path(sys.argv[1]))) as live:
    print(ask(live.openai(), background=True, extra={"ignore_eos": True}).id, flush=True)
    os._exit(9)
"""


def test_a_crash_is_told(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    root = Path(__file__).parents[2]
    died = subprocess.run(
        [sys.executable, "-c", CRASH, str(path)], capture_output=True, text=True, timeout=60, cwd=root, check=False
    )
    assert died.returncode == 9, died.stderr
    with closing(Store.open(path)) as store, running(store=store) as live, live.openai() as client:
        response = client.responses.retrieve(died.stdout.strip())
        assert response.status == "failed" and response.error is not None and response.error.code == "server_error"
        with pytest.raises(openai.BadRequestError):
            client.responses.cancel(response.id)
        assert ask(client, max_output_tokens=5, previous_response_id=response.id).status == "incomplete"


def test_a_full_disk_stops_only_what_is_stored(tmp_path: Path) -> None:
    limits = StoreLimits(max_pages=14)
    with (
        closing(Store.open(tmp_path / "store.db", limits=limits)) as store,
        running(store=store) as live,
        live.openai() as client,
        live.http() as http,
    ):
        answered = []
        with pytest.raises(openai.InternalServerError) as caught:
            for _ in range(100):
                answered.append(ask(client, max_output_tokens=30))
        assert caught.value.status_code == 503 and caught.value.code == "storage_full"
        *_, error, failed = frames(http, max_output_tokens=30)
        assert error["error"]["code"] == "storage_full" and failed["response"]["error"]["code"] == "server_error"
        assert ask(client, max_output_tokens=30, store=False).output_text
        assert all(client.responses.retrieve(each.id) == each for each in answered)
        for each in answered:
            client.responses.delete(each.id)
        again = ask(client, max_output_tokens=5)
        assert client.responses.retrieve(again.id) == again


def test_an_end_that_does_not_fit_is_still_polled(tmp_path: Path) -> None:
    """The beginning was stored, the answer is too large for its place: whoever polls learns that."""
    limits = StoreLimits(max_bytes=3000)
    with (
        closing(Store.open(tmp_path / "store.db", limits=limits)) as store,
        running(FakeRunner(), store=store) as live,
        live.openai() as client,
    ):
        begun = client.responses.create(**ASK, background=True, extra_body={"seed": 1, "ignore_eos": True})
        deadline = time.monotonic() + 10
        while (response := client.responses.retrieve(begun.id)).status in ("queued", "in_progress"):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert response.status == "failed" and response.error is not None
        with pytest.raises(openai.APIStatusError) as caught:
            client.responses.create(**ASK, extra_body={"seed": 1, "ignore_eos": True})
        assert caught.value.status_code == 413


# The server as the command starts it: the address on the first line, the end by a signal.
SERVE = """
import socket, sys
from pathlib import Path
from proxy_inference_engine.config import Config
from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.engine.worker import Worker
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.server.run import open_store, serve
config = Config(data_dir=Path(sys.argv[1]), drain_seconds=0.3)
worker = Worker(StepEngine(FakeRunner(step_seconds=lambda _: 0.002), max_cache_bytes=1 << 20))
worker.start()
store = open_store(config)
with socket.socket() as sock:
    sock.bind(("127.0.0.1", 0))
    sock.listen()
    print("http://{}:{}/v1".format(*sock.getsockname()), flush=True)
    code = serve(worker, config, sock, store=store)
store.close()
worker.stop()
sys.exit(code)
"""


@contextmanager
def served(folder: Path) -> Iterator[openai.OpenAI]:
    command = [sys.executable, "-c", SERVE, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as process:
        assert process.stdout is not None
        with openai.OpenAI(base_url=process.stdout.readline().strip(), api_key="none", max_retries=0) as client:
            try:
                yield client
            finally:
                process.terminate()
                assert process.wait(20) == 0


def test_what_was_sealed_and_begun_outlives_the_server(tmp_path: Path) -> None:
    with served(tmp_path) as client:
        compacted = client.responses.compact(model="default", input="Hello")
        begun = client.responses.create(model="default", input="x", background=True, extra_body={"ignore_eos": True})
    with served(tmp_path) as client:
        (item,) = compacted.output
        assert item.type == "compaction"
        items: list[Any] = [item.model_dump(), {"role": "user", "content": "Go on"}]
        assert client.responses.create(model="default", input=items, max_output_tokens=5).status == "incomplete"
        ended = client.responses.retrieve(begun.id)
        assert ended.status == "failed" and ended.error is not None and "shutting down" in ended.error.message
        assert ended.output and client.responses.retrieve(begun.id, stream=True)
