"""LoRA adapters in files, as PEFT and as mlx-lm write them: a folder with adapter_config.json and safetensors."""

import hashlib
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import mlx.core as mx

from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.runners.checkpoint import Json, check_safetensors, read_object

_CONFIG = "adapter_config.json"
_PEFT, _MLX = "adapter_model.safetensors", "adapters.safetensors"
_PEFT_NAME = re.compile(r"base_model\.model\.(?P<path>.+)\.lora_(?P<half>[AB])\.weight")
_PLAIN = re.compile(r"[\w.]+")
_MLX_NAME = re.compile(r"(?P<path>.+)\.lora_(?P<half>[ab])")


class AdapterPart(NamedTuple):
    """What an adapter adds to one layer: `input @ down @ up`."""

    down: mx.array  # (in, rank)
    up: mx.array  # (rank, out)


def read_adapter(name: str, folder: Path) -> dict[str, AdapterPart]:
    """The parts by the paths of their layers. Raises StartupError."""
    try:
        config = read_object(folder / _CONFIG)
        if (folder / _PEFT).is_file():
            return _read_peft(config, _load(folder / _PEFT))
        if (folder / _MLX).is_file():
            return _read_mlx(config, _load(folder / _MLX))
    except StartupError as error:
        raise StartupError(f"adapter {name!r}: {error.message}") from None
    raise StartupError(f"adapter {name!r}: there is no {_PEFT} and no {_MLX} in {str(folder)!r}")


def fingerprint_with(fingerprint: str, folders: Mapping[str, Path]) -> str:
    """A model's fingerprint with its adapters: a prefix on disk is an adapter's by its name alone."""
    if not folders:
        return fingerprint
    digest = hashlib.sha256(fingerprint.encode())
    for name, folder in folders.items():
        digest.update(name.encode())
        for file in (folder / _CONFIG, folder / _PEFT, folder / _MLX):
            digest.update(file.read_bytes() if file.is_file() else b"")
    return "fp_" + digest.hexdigest()[:12]


def _load(path: Path) -> dict[str, mx.array]:
    check_safetensors(path)
    try:
        weights = mx.load(str(path))
    except (RuntimeError, ValueError) as error:
        raise StartupError(f"{path.name} cannot be read: {error}") from None
    assert isinstance(weights, dict)
    return weights


def _read_peft(config: Json, weights: Mapping[str, mx.array]) -> dict[str, AdapterPart]:
    if str(config.get("peft_type", "LORA")).upper() != "LORA" or config.get("use_dora"):
        raise StartupError("only plain LoRA is supported, no other kind of adapter")
    if config.get("modules_to_save") or config.get("bias", "none") != "none":
        raise StartupError("it replaces whole layers or biases beside LoRA ('modules_to_save', 'bias')")
    parts = {}
    for path, (down, up) in _halves(weights, _PEFT_NAME).items():
        parts[path] = AdapterPart(down.T, up.T * _peft_scale(config, path, down.shape[0]))
    return parts


def _peft_scale(config: Json, path: str, rank: int) -> float:
    alpha = _pattern(config.get("alpha_pattern"), path, config.get("lora_alpha", rank))
    return alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)


def _pattern(patterns: object, path: str, default: object) -> float:
    """PEFT names the layers that differ by the end of their paths, or by expressions, which are not understood here."""
    table = patterns if isinstance(patterns, dict) else {}
    if not all(_PLAIN.fullmatch(key) for key in table):
        raise StartupError("'alpha_pattern' has an expression in it, where only names of layers are supported")
    found = next((each for key, each in table.items() if f".{path}".endswith(f".{key}")), default)
    if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
        raise StartupError(f"'lora_alpha' should be a number, not {found!r}")
    return found


def _read_mlx(config: Json, weights: Mapping[str, mx.array]) -> dict[str, AdapterPart]:
    if config.get("fine_tune_type", "lora") != "lora":
        raise StartupError("only plain LoRA is supported, no other kind of adapter")
    parameters = config.get("lora_parameters")
    scale = parameters.get("scale") if isinstance(parameters, dict) else None
    if isinstance(scale, bool) or not isinstance(scale, int | float) or not math.isfinite(scale):
        raise StartupError(f"'lora_parameters.scale' in {_CONFIG} should be a number")
    return {path: AdapterPart(down, up * scale) for path, (down, up) in _halves(weights, _MLX_NAME).items()}


def _halves(weights: Mapping[str, mx.array], pattern: re.Pattern[str]) -> dict[str, tuple[mx.array, mx.array]]:
    """Both matrices of each layer. Raises StartupError for what is none of them, or alone, or no matrix of numbers."""
    found: dict[str, dict[str, mx.array]] = {}
    for key, values in weights.items():
        match = pattern.fullmatch(key)
        if match is None or values.ndim != 2 or not mx.issubdtype(values.dtype, mx.floating):
            raise StartupError(f"{key!r} is no part of a LoRA adapter of linear layers")
        found.setdefault(match["path"], {})[match["half"].lower()] = values
    if not found:
        raise StartupError("there is nothing in it")
    for path, halves in found.items():
        if len(halves) != 2 or not _fit(halves, pattern):
            raise StartupError(f"the two matrices of {path!r} do not belong together")
    return {path: (halves["a"], halves["b"]) for path, halves in found.items()}


def _fit(halves: Mapping[str, mx.array], pattern: re.Pattern[str]) -> bool:
    first, second = halves["a"].shape, halves["b"].shape
    return bool(first[0] == second[1] if pattern is _PEFT_NAME else first[1] == second[0])
