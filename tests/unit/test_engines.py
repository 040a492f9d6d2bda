"""Which engine runs a model: by the kind of its file, the machine, and what the operator says."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mlx_lm")

from proxy_inference_engine.config import Config
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models.convert_gguf import converted
from proxy_inference_engine.models.engines import Choice, Machine, choose_engine
from proxy_inference_engine.models.resolve import ModelFile, resolve
from proxy_inference_engine.models.watcher import Nobody
from proxy_inference_engine.runners.mlx.model import load_model
from tests.tiny.gguf import write_gguf
from tests.tiny.runners import folder_of, logits_of
from tests.unit.models.pulling import Watcher

MAC, OLD_MAC = Machine("darwin", "arm64"), Machine("darwin", "x86_64")
LINUX, LINUX_ARM = Machine("linux", "x86_64"), Machine("linux", "arm64")
LLAMA, MLX, TRIED = Choice("llama.cpp"), Choice("mlx"), Choice("mlx", is_tried=True)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ModelFile]:
    folder = tmp_path_factory.mktemp("models")
    alone = folder / "alone"
    alone.mkdir()
    files = {
        "folder": folder_of("llama", tmp_path_factory.getbasetemp()),
        "known": write_gguf(alone / "known.gguf"),
        "strange": write_gguf(alone / "strange.gguf", architecture="olmo"),
        "seeing": write_gguf(folder / "seeing.gguf"),
    }
    (folder / "mmproj.gguf").write_bytes(b"GGUF")
    return {name: resolve(str(path)) for name, path in files.items()}


@pytest.mark.parametrize(
    ("machine", "model", "settings", "expected"),
    [
        (MAC, "known", {}, TRIED),
        (MAC, "known", {"engine": "mlx"}, MLX),
        (MAC, "known", {"engine": "llama.cpp"}, LLAMA),
        (MAC, "strange", {}, LLAMA),
        (MAC, "folder", {}, MLX),
        (MAC, "folder", {"engine": "mlx"}, MLX),
        # What only llama.cpp does.
        (MAC, "known", {"exact": True}, LLAMA),
        (MAC, "known", {"gpu_layers": 0}, LLAMA),
        (MAC, "known", {"draft_model": "small.gguf"}, LLAMA),
        (MAC, "known", {"convert_weights": "never"}, LLAMA),
        (MAC, "seeing", {}, LLAMA),
        (MAC, "seeing", {"mmproj": "none"}, TRIED),
        (MAC, "seeing", {"engine": "mlx"}, MLX),
        # Elsewhere the kind of the file says it.
        (OLD_MAC, "known", {}, LLAMA),
        (LINUX, "known", {}, LLAMA),
        (LINUX_ARM, "known", {}, LLAMA),
        (LINUX, "known", {"engine": "mlx"}, MLX),
        (LINUX, "folder", {}, MLX),
    ],
)
def test_engines(
    models: dict[str, ModelFile], machine: Machine, model: str, settings: dict[str, Any], expected: Choice
) -> None:
    assert choose_engine(Config(**settings), models[model], machine) == expected


@pytest.mark.parametrize("machine", [MAC, LINUX])
@pytest.mark.parametrize(
    ("model", "settings", "reason"),
    [
        ("folder", {"engine": "llama.cpp"}, "engine llama.cpp cannot run 'llama': .* use --engine mlx"),
        ("strange", {"engine": "mlx"}, "general.architecture is 'olmo'; the converter knows llama; use --engine llama"),
        ("known", {"engine": "mlx", "convert_weights": "never"}, "convert_weights is never"),
        ("known", {"engine": "mlx", "mmproj": __file__}, "mmproj is set, which only llama.cpp reads"),
    ],
)
def test_what_cannot_be(
    models: dict[str, ModelFile], machine: Machine, model: str, settings: dict[str, Any], reason: str
) -> None:
    with pytest.raises(StartupError, match=reason):
        choose_engine(Config(**settings), models[model], machine)


def test_mlx_that_is_not_installed(
    models: dict[str, ModelFile], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Mac without it serves GGUF files like any other machine."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "mlx_lm", raising=False)
    assert choose_engine(Config(), models["known"], MAC) == LLAMA
    for model, config in (("folder", Config()), ("known", Config(engine="mlx"))):
        with pytest.raises(StartupError, match=r"pip install 'proxy-inference-engine\[mlx\]'"):
            choose_engine(config, models[model], MAC)


@pytest.mark.parametrize(("machine", "expected"), [(MAC, TRIED), (LINUX, LLAMA)])
def test_a_repository_with_both_kinds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: Machine, expected: Choice
) -> None:
    """Its safetensors by its name alone; a GGUF file that is named is the one that runs."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    snapshot = tmp_path / "models--owner--both" / "snapshots" / "main"
    folder_of.__wrapped__("llama", snapshot.parent).rename(snapshot)
    write_gguf(snapshot / "both-Q4_1.gguf")
    assert choose_engine(Config(), resolve("owner/both"), machine) == MLX
    assert choose_engine(Config(), resolve("owner/both:Q4_1"), machine) == expected


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"facts": {"tokenizer.ggml.model": "llama"}}, "tokenizer.ggml.model is 'llama'; the converter knows gpt2"),
        (
            {"facts": {"tokenizer.ggml.pre": "qwen2"}},
            "tokenizer.ggml.pre is 'qwen2'; the converter knows gpt-2, smollm",
        ),
        ({"facts": {"llama.rope.scaling.type": "yarn"}}, "scaled rotary positions"),
        ({"facts": {"llama.expert_count": 4}}, "nor experts"),
        ({"facts": {"split.count": 2}}, "files in several parts"),
        ({"more": "blk.0.attn_q_norm.weight"}, "does not know the tensor 'blk.0.attn_q_norm.weight'"),
        ({"kind": "Q5_0"}, "'token_embd.weight' is Q5_0; the converter knows F32, F16, BF16, Q4_0, Q4_1, Q8_0"),
    ],
)
def test_what_cannot_be_converted(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    file = resolve(str(write_gguf(tmp_path / "model.gguf", **changes)))
    with pytest.raises(StartupError, match=reason):
        converted(file, "kept", tmp_path / "cache", Nobody())
    assert not (tmp_path / "cache").exists()
    assert choose_engine(Config(), file, MAC) == LLAMA


def test_converted_once(models: dict[str, ModelFile], tmp_path: Path) -> None:
    """Under the same name, again when the file is another, and again when a file of the folder is lost."""
    watcher = Watcher()
    path = tmp_path / "model.gguf"
    path.write_bytes(models["known"].path.read_bytes())
    first = converted(resolve(str(path)), "kept", tmp_path, watcher)
    assert (first.name, first.kind, len(watcher.lines)) == ("model", "safetensors", 1)
    assert first.path.parent == tmp_path / "weights"
    names = {each.name for each in first.path.iterdir()}
    assert names == {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json",
                     "tokenizer_config.json"}  # fmt: skip
    assert converted(resolve(str(path)), "kept", tmp_path, watcher) == first
    assert len(watcher.lines) == 1
    assert converted(resolve(str(path)), "f32", tmp_path, Nobody()).path != first.path
    weights = (first.path / "model.safetensors").read_bytes()
    (first.path / "model.safetensors").write_bytes(weights[:-1])
    assert converted(resolve(str(path)), "kept", tmp_path, watcher) == first
    assert (first.path / "model.safetensors").read_bytes() == weights
    write_gguf(path, "Q8_0")
    assert converted(resolve(str(path)), "kept", tmp_path, watcher).path != first.path
    assert len(watcher.lines) == 3


@pytest.mark.parametrize(
    ("kind", "dtype", "bits"),
    [
        ("Q4_0", "float16", 4),
        ("Q4_1", "float16", 4),
        ("Q8_0", "float16", 8),
        ("F16", "float16", None),
        ("BF16", "bfloat16", None),
        ("F32", "float32", None),
    ],
)
def test_numbers_are_kept(tmp_path: Path, kind: str, dtype: str, bits: int | None) -> None:
    file = resolve(str(write_gguf(tmp_path / "model.gguf", kind)))
    folder = converted(file, "kept", tmp_path, Nobody()).path
    config = json.loads((folder / "config.json").read_text())
    assert config["torch_dtype"] == dtype
    assert config.get("quantization", {}).get("bits") == bits
    assert (folder / "model.safetensors").stat().st_size < file.path.stat().st_size * 1.2
    kept, plain = load_model(folder, "kept"), load_model(converted(file, "f32", tmp_path, Nobody()).path, "plain")
    ids = plain.vocabulary.encode("The capital of France is")
    expected = logits_of(plain, ids)
    assert np.abs(logits_of(kept, ids) - expected).max() < 0.1 * expected.std()
