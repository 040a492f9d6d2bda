"""From a configuration to a runner on MLX, and what cannot be started."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from proxy_inference_engine.config import Config
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models.load import load_engine, load_words
from proxy_inference_engine.models.load import mlx as load_mlx
from proxy_inference_engine.models.resolve import resolve
from proxy_inference_engine.served.model import ServedModel
from tests.tiny.image_runners import IMAGE_FAMILIES
from tests.tiny.runners import folder_of


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder_of("llama", tmp_path_factory.getbasetemp())


def quiet(_: str) -> None:
    """Nobody waits for this."""


@pytest.mark.parametrize("engine", ["auto", "mlx"])
def test_a_folder_runs_on_mlx(folder: Path, engine: str) -> None:
    worker = load_engine(Config(model=str(folder), engine=engine, context=300, slots=2))  # type: ignore[arg-type]
    try:
        assert worker.is_ready
        assert (worker.info.name, worker.info.architecture) == ("llama", "llama")
        assert worker.context_tokens == 512 and worker.image_encoder is None
    finally:
        worker.stop()


def test_the_tokenizer_alone(folder: Path) -> None:
    tokenizer, template, architecture, name, _ = load_words(Config(model=str(folder)))
    assert (architecture, name) == ("llama", "llama")
    assert tokenizer.encode("The river") and template is not None and "<|im_start|>" in template


def test_limits(folder: Path) -> None:
    """What the configuration says; the context is never more than the model's."""
    for context, expected in ((100, 256), (1000, 1024), (100_000, 4096), (None, 4096)):  # in steps of 256
        config = Config(model=str(folder), context=context, cache_memory=12345)
        runner = load_mlx.load_runner(config, resolve(config.model), quiet)
        assert max(lane.slot_tokens for lane in runner.lanes) == expected
        assert runner.cache_bytes == 12345 and runner.image_encoder is None
        runner.close()


def test_engines_that_cannot_run_a_model(folder: Path) -> None:
    with pytest.raises(StartupError, match=r"engine llama\.cpp cannot run 'llama'.*use --engine mlx"):
        load_engine(Config(model=str(folder), engine="llama.cpp"))
    with pytest.raises(StartupError, match=r"engine mlx cannot run the bundled model.*--model HuggingFaceTB/"):
        load_engine(Config(engine="mlx"))  # the bundled model is a GGUF
    with pytest.raises(StartupError, match="--exact is not possible with MLX"):
        load_engine(Config(model=str(folder), exact=True))


@pytest.mark.parametrize("family", IMAGE_FAMILIES)
def test_models_with_a_tower_take_images(family: str, tmp_path: Path) -> None:
    config = Config(model=str(IMAGE_FAMILIES[family](tmp_path / family)), context=256)
    runner = load_mlx.load_runner(config, resolve(config.model), quiet)
    assert runner.image_encoder is not None and runner.image_encoder.tokens(32, 32).num_tokens == 16
    runner.close()


def test_images_need_mlx_vlm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = IMAGE_FAMILIES["gemma3"](tmp_path / "gemma3")
    monkeypatch.setitem(sys.modules, "mlx_vlm", None)
    with pytest.raises(StartupError, match=r"'gemma3' sees images, which needs mlx-vlm: pip install"):
        load_engine(Config(model=str(folder)))


def test_folders_need_mlx(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlx_lm", None)
    with pytest.raises(StartupError, match=r"'llama' needs MLX, which is not installed: pip install"):
        load_engine(Config(model=str(folder)))


PROGRAM = """
import sys
sys.modules["mlx_vlm"] = None
from proxy_inference_engine.config import Config
from proxy_inference_engine.models.load import load_engine
worker = load_engine(Config(model=sys.argv[1], context=64))
assert worker.is_ready
worker.stop()
assert not any(name.startswith("mlx_vlm.") for name in sys.modules)
"""


def test_text_needs_no_mlx_vlm(folder: Path) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(folder)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_the_model_s_own_generation_config_is_read(folder: Path, tmp_path: Path) -> None:
    """What it says of sampling, for requests that say nothing."""
    own = shutil.copytree(folder, tmp_path / "own")
    values = (
        json.loads((own / "generation_config.json").read_text()) if (own / "generation_config.json").exists() else {}
    )
    (own / "generation_config.json").write_text(json.dumps({**values, "temperature": 0.6, "top_k": 20, "top_p": 0.95}))
    worker = load_engine(Config(model=str(own), context=300, slots=2))
    try:
        defaults = ServedModel.of(worker, Config()).defaults
        assert (defaults.temperature, defaults.top_k, defaults.top_p, defaults.min_p) == (0.6, 20, 0.95, 0.0)
    finally:
        worker.stop()
