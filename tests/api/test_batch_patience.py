"""What a batch waits for: its key, the key's limits, whoever waits for a model, a queue that is full, a disk."""

import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import OpenAI

from proxy_inference_engine.config import ApiKey, Config, load_config
from proxy_inference_engine.engine.queue import Admission
from proxy_inference_engine.pool.entry import PoolEntry
from proxy_inference_engine.runners.base import Lane
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.server import process
from proxy_inference_engine.server.apis.batches import run
from proxy_inference_engine.store import Store
from tests.api.batch_files import begin, ended, jsonl, line
from tests.api.pools import pool_server
from tests.api.running import HELLO, running
from tests.api.test_batch_life import Brake, braked, many
from tests.polling import wait_until

ROOT = {"x-api-key": "key-of-root"}
NUM_LINES = 60


def num_asked(http: httpx.Client) -> int:
    """Lines that have been answered, whatever was said."""
    lines = http.get("/metrics").text.splitlines()
    return sum(int(float(each.split()[-1])) for each in lines if 'requests_total{route="batch"' in each)


def status(client: OpenAI, id_: str) -> str:
    return client.batches.retrieve(id_).status


def test_a_key_that_is_taken_away_stops_its_batch_until_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_LONGEST_WAIT_S", 1.0)
    keys, others, anna = tmp_path / "keys", "ben:key-of-ben\nroot:key-of-root admin\n", "anna:key-of-anna\n"
    keys.write_text(anna + others)
    keys.chmod(0o600)
    config = load_config({"api_key_file": str(keys)}, {"PIE_DRAIN_SECONDS": "0.2"}, tmp_path)
    with braked(10, config) as (live, brake), live.http(headers=ROOT) as root:
        client, ben = live.openai(key="key-of-anna"), live.openai(key="key-of-ben")
        batch = begin(client, many(NUM_LINES))
        wait_until(lambda: brake.num_passes > 10)
        keys.write_text(others)
        assert root.post("/admin/keys/reload").json()["num_keys"] == 2
        other = begin(ben, many(NUM_LINES))
        brake.let_go()
        assert ended(ben, other).status == "completed"
        # Theirs began later and takes turns with ours, of which only those are answered that had begun.
        assert num_asked(root) < NUM_LINES + NUM_LINES // 2
        keys.write_text(anna + others)
        assert root.post("/admin/keys/reload").json()["num_keys"] == 3
        batch = ended(client, batch)
        assert batch.status == "completed" and num_asked(root) == 2 * NUM_LINES
        client.close()
        ben.close()


def test_lines_count_against_the_limits_of_their_key() -> None:
    limits: Any = {"anna": {"requests_per_day": 12}}
    keys = (ApiKey("anna", "key-of-anna"), ApiKey("root", "key-of-root", is_admin=True))
    config = Config(api_keys=keys, limits=limits, drain_seconds=0.2)
    with running(config=config) as live, live.openai(key="key-of-anna") as client, live.http(headers=ROOT) as root:
        batch = begin(client, many(NUM_LINES))  # two requests: a file, and a batch
        wait_until(lambda: num_asked(root) >= 10)
        live.wait_idle()
        assert status(client, batch.id) == "in_progress" and num_asked(root) == 10
        client.batches.cancel(batch.id)
        counts = ended(client, batch).request_counts
        assert counts is not None and counts.completed == 10


def test_no_line_begins_while_somebody_waits_for_a_model() -> None:
    a, b = PoolEntry("a", Config()), PoolEntry("b", Config())
    with pool_server(a, b) as server, server.live.openai() as client, server.live.http() as http:
        body = {"messages": HELLO, "max_tokens": 2}
        assert http.post("/v1/chat/completions", json={"model": "a", **body}).status_code == 200
        gate = server.loader.gates["b"] = threading.Event()
        asking = threading.Thread(target=httpx.post, args=(f"{server.live.url}/v1/chat/completions",),
                                  kwargs={"json": {"model": "b", **body}, "timeout": None})  # fmt: skip
        try:
            asking.start()
            wait_until(lambda: server.pool.find("b").num_waiting)
            batch = begin(client, jsonl(*(line(str(number), model="a") for number in range(5))))
            wait_until(lambda: status(client, batch.id) == "in_progress")
            for _ in range(20):  # as much time as five lines would take
                assert status(client, batch.id) == "in_progress" and num_asked(http) == 0
        finally:
            gate.set()
            asking.join()
        assert ended(client, batch).status == "completed" and num_asked(http) == 5


def test_a_line_for_which_there_is_no_room_is_asked_again() -> None:
    brake = Brake()
    runner = FakeRunner(lanes=(Lane(1, 512),), on_forward=brake)
    with running(runner, admission=Admission(max_waiting=0)) as live, live.openai() as client, live.http() as http:
        try:
            batch = begin(client, many(4))
            wait_until(lambda: 'requests_total{route="batch",status="429"}' in http.get("/metrics").text)
        finally:
            brake.let_go()
        counts = ended(client, batch).request_counts
        assert counts is not None and counts.completed == 4


def test_a_batch_goes_on_when_its_disk_works_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(process, "ADOPT_SECONDS", 0.2)
    store = Store.open(tmp_path / "store.db", files=tmp_path / "files")
    folder, away = tmp_path / "files" / "local", tmp_path / "away"
    with braked(store=store) as (live, brake), live.openai() as client:
        batches = [begin(client, many(2)) for _ in range(2)]
        folder.rename(away)
        folder.write_text("no folder")
        brake.let_go()
        wait_until(lambda: caplog.text.count("cannot go on now") >= 2)
        assert not {status(client, batch.id) for batch in batches} & {"completed", "failed"}
        folder.unlink()
        away.rename(folder)
        assert [ended(client, batch).status for batch in batches] == ["completed", "completed"]
    store.close()
