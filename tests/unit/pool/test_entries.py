"""Which models a configuration lists: one of its own, tables, folders, the Hugging Face cache; and their names."""

import json
from pathlib import Path

import pytest

from proxy_inference_engine.config import Config
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.pool.entry import list_entries
from tests.model.gguf_files import write_llama


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_llama(tmp_path / "small.gguf")


def cached(root: Path, owner: str, name: str, *files: str) -> None:
    """A repository in the Hugging Face cache, with these files in it."""
    repository = root / "hub" / f"models--{owner}--{name}"
    snapshot = repository / "snapshots" / ("a" * 40)
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("a" * 40)
    for file in files:
        if file.endswith(".gguf"):
            write_llama(snapshot / file)
        else:
            (snapshot / file).write_text(json.dumps({"model_type": "llama"}) if file == "config.json" else "x")


def test_what_the_server_is_started_for_comes_first_and_stays(model: Path) -> None:
    config = Config.model_validate({"model": str(model), "models": {"other": {"model": str(model), "preload": True}}})
    first, other = list_entries(config)
    assert (first.id, first.is_pinned, first.is_preloaded) == ("small", True, True)
    assert (other.id, other.is_pinned, other.is_preloaded) == ("other", False, True)


def test_a_model_that_is_not_there_is_told_now_and_listed(model: Path, caplog: pytest.LogCaptureFixture) -> None:
    missing = str(model.parent / "missing.gguf")
    config = Config.model_validate({"models": {"here": {"model": str(model)}, "away": {"model": missing}}})
    assert [entry.id for entry in list_entries(config)] == ["here", "away"]
    (warning,) = caplog.messages
    assert warning.startswith("[models.away] cannot be loaded as it is: ") and missing in warning


def test_folders_are_looked_through(model: Path) -> None:
    (model.parent / "family").mkdir()
    write_llama(model.parent / "family" / "large.gguf")
    (model.parent / "mmproj-small.gguf").write_bytes(b"")
    (model.parent / "notes.txt").write_text("no model")
    (model.parent / "tensors").mkdir()
    (model.parent / "tensors" / "config.json").write_text("{}")
    entries = list_entries(Config(model_folders=(model.parent,), idle_minutes=2))
    assert sorted(entry.id for entry in entries) == ["large", "small", "tensors"]
    assert {entry.idle_seconds for entry in entries} == {120.0}


def test_the_hugging_face_cache_is_looked_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        monkeypatch.delenv(variable, raising=False)
    cached(tmp_path, "org", "one-GGUF", "one-Q4_K_M.gguf")
    cached(tmp_path, "org", "many-GGUF", "many-Q4_K_M.gguf", "many-Q8_0.gguf")
    cached(tmp_path, "org", "dataset", "README.md")
    names = [entry.id for entry in list_entries(Config(hub=True))]
    assert "org/one-GGUF" in names and "org/dataset" not in names
    assert {name for name in names if name.startswith("org/many-GGUF:")} == {
        "org/many-GGUF:many-Q4_K_M",
        "org/many-GGUF:many-Q8_0",
    }


def test_names_are_unique_and_there_is_a_model(model: Path, tmp_path: Path) -> None:
    config = Config.model_validate({"model": str(model), "models": {"small": {"model": str(model)}}})
    with pytest.raises(StartupError, match="two models have the name 'small'"):
        list_entries(config)
    (tmp_path / "empty").mkdir()
    with pytest.raises(StartupError, match="there is no model"):
        list_entries(Config(model_folders=(tmp_path / "empty",)))
