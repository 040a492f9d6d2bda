"""Which engine runs a model: the kind of its file says it, and what the operator says has to fit."""

import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mlx_lm")

from proxy_inference_engine.config import Config
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models.engines import choose_engine
from proxy_inference_engine.models.resolve import ModelFile, resolve
from tests.model.gguf_files import write_llama
from tests.tiny.runners import folder_of


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ModelFile]:
    files = {
        "folder": folder_of("llama", tmp_path_factory.getbasetemp()),
        "file": write_llama(tmp_path_factory.mktemp("models") / "file.gguf"),
    }
    return {name: resolve(str(path)) for name, path in files.items()}


@pytest.mark.parametrize(
    ("model", "settings", "expected"),
    [
        ("file", {}, "llama.cpp"),
        ("file", {"engine": "llama.cpp"}, "llama.cpp"),
        ("folder", {}, "mlx"),
        ("folder", {"engine": "mlx"}, "mlx"),
    ],
)
def test_engines(models: dict[str, ModelFile], model: str, settings: dict[str, Any], expected: str) -> None:
    assert choose_engine(Config(**settings), models[model]) == expected


@pytest.mark.parametrize(
    ("model", "settings", "reason"),
    [
        ("folder", {"engine": "llama.cpp"}, "engine llama.cpp cannot run 'llama': .* use --engine mlx"),
        ("file", {"engine": "mlx"}, "engine mlx cannot run 'file': .* use --engine llama.cpp, or give another model"),
    ],
)
def test_what_cannot_be(models: dict[str, ModelFile], model: str, settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(StartupError, match=reason) as caught:
        choose_engine(Config(**settings), models[model])
    assert "\n" not in caught.value.message


def test_the_bundled_model_is_not_for_mlx() -> None:
    """The message names the same model in files that MLX reads."""
    with pytest.raises(StartupError, match=r"the bundled model: .* --model HuggingFaceTB/SmolLM2-135M-Instruct$"):
        choose_engine(Config(engine="mlx"), resolve(None))


def test_mlx_that_is_not_installed(
    models: dict[str, ModelFile], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "mlx_lm", raising=False)
    assert choose_engine(Config(), models["file"]) == "llama.cpp"
    with pytest.raises(StartupError, match=r"pip install 'proxy-inference-engine\[mlx\]'"):
        choose_engine(Config(), models["folder"])


def test_a_repository_with_both_kinds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its safetensors by its name alone; a GGUF file that is named is the one that runs."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    snapshot = tmp_path / "models--owner--both" / "snapshots" / "main"
    folder_of.__wrapped__("llama", snapshot.parent).rename(snapshot)
    write_llama(snapshot / "both-Q4_1.gguf")
    assert choose_engine(Config(), resolve("owner/both")) == "mlx"
    assert choose_engine(Config(), resolve("owner/both:Q4_1")) == "llama.cpp"
