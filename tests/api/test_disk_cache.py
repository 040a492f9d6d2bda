"""The prefix cache's disk tier over HTTP: a server that is stopped and started again knows what it knew."""

import threading
from pathlib import Path

import pytest

from proxy_inference_engine.config import Config
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.runners.base import Lane
from proxy_inference_engine.runners.fake import FakeRunner
from tests.api.running import MODEL, Running, running

PROMPT = "All the rivers run into the sea, yet the sea is not full. " * 20
LANES = (Lane(4, 4096),)


def config(folder: Path, **settings: object) -> Config:
    return Config.model_validate({"drain_seconds": 0.2, "cache_dir": folder, "disk_cache": "64MiB"} | settings)


def ask(server: Running) -> tuple[str | None, int]:
    """The answer, and how much of the prompt was cached."""
    with server.openai() as client:
        answer = client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": PROMPT}], max_tokens=20, seed=1
        )
    assert answer.usage is not None and answer.usage.prompt_tokens_details is not None
    return answer.choices[0].message.content, answer.usage.prompt_tokens_details.cached_tokens or 0


def metrics(server: Running) -> dict[str, float]:
    with server.http() as client:
        lines = client.get("/metrics").text.splitlines()
    pairs = (line.split() for line in lines if line.startswith("pie_disk"))
    return {name.partition("{")[0]: float(value) for name, value in pairs}


@pytest.mark.parametrize("can_splice", [True, False])
def test_a_prompt_is_known_after_a_restart(tmp_path: Path, can_splice: bool) -> None:
    with running(FakeRunner(lanes=LANES, can_splice=can_splice), config(tmp_path)) as server:
        answer, num_cached = ask(server)
        assert num_cached == 0
    with running(FakeRunner(lanes=LANES, can_splice=can_splice), config(tmp_path)) as server:
        again, num_cached = ask(server)
        assert again == answer and num_cached > len(PROMPT)
        found = metrics(server)
    assert found["pie_disk_hits_total"] == 1 and found["pie_disk_tokens_total"] >= num_cached
    assert found["pie_disk_failures_total"] == 0
    files = list((tmp_path / "prefixes").glob("*.kv"))
    assert found["pie_disk_cached_bytes"] <= sum(file.stat().st_size for file in files)
    assert found["pie_disk_cached_bytes_limit"] == 64 << 20


def test_without_the_setting_nothing_is_written(tmp_path: Path) -> None:
    with running(FakeRunner(lanes=LANES), config(tmp_path, disk_cache=0)) as server:
        ask(server)
        assert metrics(server)["pie_disk_cached_bytes_limit"] == 0
    assert list(tmp_path.iterdir()) == []
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("disk-")]


def test_a_second_server_on_the_same_folder_does_without(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with (
        running(FakeRunner(lanes=LANES), config(tmp_path)),
        running(FakeRunner(lanes=LANES), config(tmp_path)) as server,
    ):
        assert "another model or server uses" in caplog.text
        assert ask(server)[1] == 0 and metrics(server)["pie_disk_cached_bytes_limit"] == 0


def test_a_model_whose_memory_has_no_form_on_disk_does_without(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    runner = FakeRunner(lanes=LANES)
    runner.packer = None
    with running(runner, config(tmp_path)) as server:
        assert "cannot be written to disk" in caplog.text and ask(server)[0]


def test_without_memory_there_is_no_disk(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with running(FakeRunner(lanes=LANES), config(tmp_path), max_cache_bytes=0) as server:
        assert "raise cache_memory" in caplog.text and ask(server)[0]


def test_a_folder_that_cannot_be_made_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "prefixes").write_text("a file")
    with pytest.raises(StartupError, match="disk_cache: cannot use"), running(config=config(tmp_path)):
        pass
