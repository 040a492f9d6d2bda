"""Runners over tiny models that see."""

from collections.abc import Callable, Sequence
from pathlib import Path

from proxy_inference_engine.runners.base import Lane
from proxy_inference_engine.runners.mlx.model import load_model
from proxy_inference_engine.runners.mlx.runner import MlxRunner, Settings
from proxy_inference_engine.runners.mlx.vision.image_rows import load_vision
from tests.tiny.image_models import write_gemma3, write_qwen3_vl, write_qwen3_vl_moe

IMAGE_FAMILIES: dict[str, Callable[[Path], Path]] = {
    "gemma3": write_gemma3,
    "qwen3_vl": write_qwen3_vl,
    "qwen3_vl_moe": write_qwen3_vl_moe,
}


def make_image_runner(
    family: str, folder: Path, *, lanes: Sequence[Lane] = (Lane(4, 512), Lane(1, 2048)), defers: bool = False
) -> MlxRunner:
    """Named after its family; `folder` gets its files."""
    loaded = load_model(IMAGE_FAMILIES[family](folder), family)
    vision = load_vision(loaded.path, loaded.config, loaded.model, loaded.vocabulary)
    return MlxRunner(loaded, Settings(tuple(lanes), defers=defers), vision)
