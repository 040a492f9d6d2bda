"""mlx-lm, imported so that it leaves the process alone. Whatever else needs it imports it after this."""

import os
import resource
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

# On CUDA, how much MLX gathers before it launches: with its own numbers a step of a large model is so many launches
# that it waits for them. Much more would keep the scratch memory of too many matrix products at once.
os.environ.setdefault("MLX_MAX_MB_PER_BUFFER", "4000")
os.environ.setdefault("MLX_MAX_OPS_PER_BUFFER", "300")

import mlx.core as mx
from mlx import nn

# mlx-lm lowers the limit of open files for good when it is imported, and cannot be imported where the limit is
# lower than what it sets: https://github.com/ml-explore/mlx-lm/blob/main/mlx_lm/utils.py
_setrlimit = resource.setrlimit
resource.setrlimit = lambda *_: None
try:
    from mlx_lm import utils
    from mlx_lm.models import cache
finally:
    resource.setrlimit = _setrlimit


def version() -> str:
    return f"mlx {installed('mlx')}, mlx-lm {installed('mlx-lm')}"


def has_architecture(config: dict[str, Any]) -> bool:
    try:
        utils._get_classes(config)
    except (ValueError, AttributeError):
        return False
    return True


def load(path: Path) -> tuple[nn.Module, dict[str, Any]]:
    """The module with its weights in memory, and the config as it was used. Raises whatever mlx-lm raises."""
    model, config = utils.load_model(path, lazy=False, strict=True, trust_remote_code=False)
    return model, config


def num_attention_layers(model: nn.Module) -> int:
    """How many layers keep the K and V of tokens; the others remember in a state of fixed size."""
    caches: list[object] = cache.make_prompt_cache(model)
    return sum(isinstance(each, cache.KVCache | cache.RotatingKVCache) for each in caches)


def state_bytes(model: nn.Module) -> int:
    """What a sequence needs besides the K and V of its tokens: known from shapes, nothing is computed."""
    caches: list[Any] = cache.make_prompt_cache(model)
    model(mx.zeros((1, 1), mx.int32), cache=caches)
    parts = [part for each in caches for part in getattr(each, "caches", [each])]
    states: list[Any] = [array for part in parts if isinstance(part, cache.ArraysCache) for array in part.cache]
    return sum(array.nbytes for array in states if array is not None)
