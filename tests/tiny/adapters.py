"""LoRA adapters of tiny models with random numbers, in folders as PEFT and as mlx-lm write them."""

import json
from collections.abc import Sequence
from pathlib import Path

import mlx.core as mx
import numpy as np
from mlx import nn

from proxy_inference_engine.runners.mlx.model import load_model

TARGETS = ("self_attn.q_proj", "self_attn.v_proj", "mlp.down_proj")
_SCALE = 2.0


def write_peft(folder: Path, model: Path, *, seed: int = 0, rank: int = 4, targets: Sequence[str] = TARGETS) -> Path:
    halves = _halves(model, seed, rank, targets)
    weights = {}
    for path, (down, up) in halves.items():
        weights[f"base_model.model.{path}.lora_A.weight"] = mx.contiguous(down.T)
        weights[f"base_model.model.{path}.lora_B.weight"] = mx.contiguous(up.T)
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": _SCALE * rank, "bias": "none", "target_modules": [*targets]}
    return _write(folder, "adapter_model.safetensors", weights, config)


def write_mlx(folder: Path, model: Path, *, seed: int = 0, rank: int = 4, targets: Sequence[str] = TARGETS) -> Path:
    halves = _halves(model, seed, rank, targets)
    weights: dict[str, mx.array] = {}
    for path, (down, up) in halves.items():
        weights |= {f"{path}.lora_a": down, f"{path}.lora_b": up}
    config = {
        "fine_tune_type": "lora",
        "num_layers": -1,
        "lora_parameters": {"rank": rank, "scale": _SCALE, "dropout": 0.0, "keys": [*targets]},
    }
    return _write(folder, "adapters.safetensors", weights, config)


def _write(folder: Path, name: str, weights: dict[str, mx.array], config: dict[str, object]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    mx.save_safetensors(str(folder / name), weights)
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


def _halves(model: Path, seed: int, rank: int, targets: Sequence[str]) -> dict[str, tuple[mx.array, mx.array]]:
    draw = np.random.default_rng(seed)
    found = {}
    for path, module in sorted(load_model(model, "m").model.named_modules()):
        if isinstance(module, nn.Linear | nn.QuantizedLinear) and path.endswith(tuple(targets)):
            height, width = module.weight.shape
            width = width * 32 // module.bits if isinstance(module, nn.QuantizedLinear) else width
            down, up = draw.normal(0, width**-0.5, (width, rank)), draw.normal(0, rank**-0.5, (rank, height))
            found[path] = (mx.array(down.astype(np.float32)), mx.array(up.astype(np.float32)))
    assert found
    return found
