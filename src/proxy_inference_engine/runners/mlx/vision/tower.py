"""Loads the image tower of a checkpoint into modules of mlx-vlm. Reads safetensors; no code of a checkpoint runs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx import nn

from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.runners.checkpoint import Json, weight_files

# Where checkpoints keep a tower → what mlx-vlm calls it.
_NAMES = {
    "vision_tower.": "vision_tower.",
    "visual.": "vision_tower.",
    "multi_modal_projector.": "multi_modal_projector.",
}


def join(**parts: nn.Module) -> nn.Module:
    """One module of named parts, so that parameters have the names they have in files."""
    tower = nn.Module()
    for name, part in parts.items():
        setattr(tower, name, part)
    return tower


def has_tower(folder: Path) -> bool:
    """Whether the weights of a tower are there: text-only conversions keep its config alone."""
    return bool(_read(folder))


def load_tower(folder: Path, config: Json, tower: nn.Module) -> None:
    """Fill the modules, quantised where the files are. Raises StartupError for missing or strange weights."""
    weights = tower.vision_tower.sanitize(_read(folder))
    _quantise(tower, config.get("quantization") or config.get("quantization_config") or {}, weights)
    try:
        tower.load_weights(list(weights.items()))
    except ValueError as error:
        raise StartupError(f"The image tower in {folder} has other weights than its config says: {error}") from error
    tower.eval()
    mx.eval(tower.parameters())


def _read(folder: Path) -> dict[str, mx.array]:
    weights: dict[str, mx.array] = {}
    for path in weight_files(folder):
        loaded = mx.load(str(path))  # lazy: what is not kept is not read
        assert isinstance(loaded, dict)
        for name, values in loaded.items():
            inner = name.removeprefix("model.")
            for prefix, ours in _NAMES.items():
                if inner.startswith(prefix):
                    weights[ours + inner.removeprefix(prefix)] = values
    return weights


def _quantise(tower: nn.Module, quantisation: Mapping[str, Any], weights: Mapping[str, mx.array]) -> None:
    """Quantise the modules that have scales in the files: most checkpoints leave the tower as it was."""
    if not any(name.endswith(".scales") for name in weights):
        return

    def settings(path: str, module: nn.Module) -> bool | dict[str, Any]:
        own = quantisation.get(path)
        is_quantised = hasattr(module, "to_quantized") and f"{path}.scales" in weights
        return own if is_quantised and isinstance(own, dict) else is_quantised

    nn.quantize(
        tower,
        group_size=quantisation["group_size"],
        bits=quantisation["bits"],
        mode=quantisation.get("mode", "affine"),
        class_predicate=settings,
    )
