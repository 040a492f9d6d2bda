"""`pie models`, `show`, `fit`, `pull` and `rm`, with a hub of ours and a cache of its own."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy_inference_engine.cli import main
from proxy_inference_engine.config import Config
from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.engine.worker import Worker
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.served.model import ServedModel
from tests import hub as hubs
from tests.api.running import listening
from tests.hub import Hub
from tests.model.gguf_files import write_llama

NAME = "owner/tiny"


class Shelf:
    def __init__(self, hub: Hub, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.hub, self.folder, self._capsys = hub, folder, capsys

    def __call__(self, *words: str, code: int = 0) -> str:
        assert main(words) == code
        printed = self._capsys.readouterr()
        return printed.out + printed.err

    def names(self) -> list[str]:
        return [each["name"] for each in json.loads(self("models", "--json"))]

    @property
    def blobs(self) -> list[Path]:
        return sorted(path for path in (self.folder / "hub").rglob("blobs/*") if path.is_file())


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    path = write_llama(tmp_path_factory.mktemp("gguf") / "tiny.gguf")
    # Longer than the first range that is read of a file.
    return {"tiny-F32.gguf": path.read_bytes() + bytes(1 << 20), "tiny-Q8_0.gguf": path.read_bytes() + bytes(32)}


@pytest.fixture
def shelf(
    files: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Shelf]:
    for name in [name for name in os.environ if name.startswith(("PIE_", "HF_"))]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    with hubs.serving() as hub:
        hub.repositories[NAME] = dict(files)
        settings = {"HOME": tmp_path, "HF_HOME": tmp_path, "HF_ENDPOINT": hub.endpoint, "PIE_SERVER": "none"}
        for name, value in settings.items():
            monkeypatch.setenv(name, str(value))
        yield Shelf(hub, tmp_path, capsys)


def test_a_model_fits_before_it_is_downloaded(shelf: Shelf, files: dict[str, bytes]) -> None:
    found = json.loads(shelf("fit", f"{NAME}:F32", "--json"))
    assert found["fits"] and found["download"] == len(files["tiny-F32.gguf"]) and found["slots"] == 16
    ranges = [each.range for each in shelf.hub.asked if "/stored/" in each.path]
    assert ranges and all(ranges), "only ranges of the file were asked for"
    assert shelf.blobs == []
    text = shelf("fit", f"{NAME}:F32", "--slots", "2")
    assert "owner/tiny:F32 fits" in text and "2 answers at a time" in text and "serve --model owner/tiny:F32" in text


def test_what_does_not_fit_is_code_1(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    from proxy_inference_engine.models import fit

    monkeypatch.setattr(fit, "available_memory", lambda: 1 << 20)
    assert "does not fit" in shelf("fit", f"{NAME}:F32", code=1)
    assert json.loads(shelf("fit", f"{NAME}:F32", "--json", code=1))["fits"] is False
    assert "pie: " in shelf("fit", "owner/nothing", code=1)
    assert "which model" in shelf("fit", code=1)


def test_pulled_listed_shown_and_deleted(shelf: Shelf) -> None:
    before = shelf.names()
    for word in ("F32", "Q8_0"):
        shelf("pull", f"{NAME}:{word}")
    both = [f"{NAME}:tiny-F32", f"{NAME}:tiny-Q8_0"]
    assert shelf.names() == [*before, *both] and len(shelf.blobs) == 2
    assert "owner/tiny:tiny-Q8_0" in shelf("ls") and "hub" in shelf("ls")
    shown = json.loads(shelf("show", both[0], "--json"))
    assert (shown["architecture"], shown["kind"], shown["fit"]["fits"]) == ("llama", "gguf", True)
    assert "architecture" in shelf("show", both[0])
    assert "say --yes" in shelf("rm", both[0], code=1) and len(shelf.blobs) == 2
    assert "Deleted owner/tiny:tiny-F32" in shelf("rm", both[0], "--yes")
    assert shelf.names() == [*before, NAME] and len(shelf.blobs) == 1, "what is left is the only one, and needs no word"
    assert "Deleted owner/tiny" in shelf("rm", NAME, "--yes")
    assert shelf.names() == before and not (shelf.folder / "hub" / "models--owner--tiny").exists()
    assert "not in the Hugging Face cache" in shelf("rm", NAME, "--yes", code=1)


def test_a_person_is_asked_first(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf("pull", f"{NAME}:F32")
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    for answer, code in (("n", 1), ("y", 0)):
        monkeypatch.setattr("builtins.input", lambda _question, answer=answer: answer)
        shelf("rm", NAME, code=code)
        assert bool(shelf.blobs) is bool(code)


def test_what_a_server_has_loaded_stays(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a server knows the model by the name of its file."""
    for word in ("F32", "Q8_0"):
        shelf("pull", f"{NAME}:{word}")
    config = Config(drain_seconds=0.2)
    worker = Worker(StepEngine(FakeRunner(), max_cache_bytes=0))
    worker.start()
    with listening([ServedModel.of(worker, config, name="tiny-F32")], config) as live:
        monkeypatch.setenv("PIE_SERVER", live.url)
        for name in (NAME, f"{NAME}:F32"):
            assert f"the server at {live.url} has tiny-F32 loaded" in shelf("rm", name, "--yes", code=1)
        assert "Deleted" in shelf("rm", f"{NAME}:Q8_0", "--yes")
        assert "Deleted" not in shelf("rm", NAME, "--yes", code=1) and len(shelf.blobs) == 1
    worker.stop()


def test_what_is_not_ours_to_delete(shelf: Shelf) -> None:
    (shelf.folder / "mine.gguf").write_bytes(b"GGUF")
    assert "delete the file yourself" in shelf("rm", "./mine.gguf", "--yes", code=1)
    assert (shelf.folder / "mine.gguf").exists()
    assert "no model 'mine'" in shelf("rm", "mine", "--yes", code=1)
    if "bundled" in shelf("models"):
        assert "part of the installation" in shelf("rm", "bundled", "--yes", code=1)


def test_a_download_that_broke_off_is_named(shelf: Shelf) -> None:
    blobs = shelf.folder / "hub" / "models--owner--half" / "blobs"
    blobs.mkdir(parents=True)
    (blobs / "0.incomplete").write_bytes(b"x")
    assert "owner/half is not whole" in shelf("models")
    assert "owner/half is not whole" in shelf("doctor")
