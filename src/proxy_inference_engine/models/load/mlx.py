"""From a folder of safetensors to a runner on MLX: load, size the memory of the device, load the image tower."""

import importlib.util
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from proxy_inference_engine.config import Config, available_memory
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models.resolve import ModelFile
from proxy_inference_engine.runners.base import Tokenizer
from proxy_inference_engine.runners.checkpoint import read_chat_template, read_optional
from proxy_inference_engine.runners.mlx.library import state_bytes
from proxy_inference_engine.runners.mlx.memory.base import free_bytes, is_gpu, leave_thread
from proxy_inference_engine.runners.mlx.model import MlxModel, load_model
from proxy_inference_engine.runners.mlx.runner import MlxRunner, Settings
from proxy_inference_engine.runners.mlx.warm_up import warm_up
from proxy_inference_engine.runners.plan import KV_SHARE, choose_context, plan_lanes
from proxy_inference_engine.runners.tokenizer_json import load_vocabulary

if TYPE_CHECKING:
    from proxy_inference_engine.runners.mlx.vision.image_rows import Vision

_CACHE_SHARE = 0.2  # of what is free once the weights are loaded
_HOST_CACHE_SHARE = 0.05
_GPU_SLOTS = 64


__all__ = ["leave_thread", "load_runner", "load_tokenizer"]


def load_tokenizer(file: ModelFile) -> tuple[Tokenizer, str | None]:
    return load_vocabulary(file.path), read_chat_template(file.path)


def load_runner(config: Config, file: ModelFile, report: Callable[[str], None]) -> MlxRunner:
    """A runner over a folder of safetensors, with memory for its lanes. Raises StartupError."""
    if config.exact:
        raise StartupError("--exact is not possible with MLX: its kernels depend on the size of a batch")
    report("loading the weights…")
    loaded = load_model(file.path, file.name)
    generation = read_optional(file.path / "generation_config.json")
    loaded = replace(loaded, info=loaded.info._replace(generation=generation))
    vision = _load_vision(loaded)
    free = free_bytes(available_memory())
    token_bytes, max_bytes = loaded.info.kv_bytes_per_token, config.kv_memory or int(free * KV_SHARE)
    is_free = is_gpu() and "slots" not in config.model_fields_set
    num_slots = _GPU_SLOTS if is_free else config.slots
    states = state_bytes(loaded.model)
    if states:  # each slot has one, however short its text; at most half of the memory is for them
        num_slots = max(1, min(num_slots, max_bytes // 2 // states))
        max_bytes = max(0, max_bytes - num_slots * states)
    lanes = plan_lanes(
        context_tokens=choose_context(config.context, loaded.info.context_tokens, token_bytes, max_bytes, report),
        num_slots=num_slots,
        token_bytes=token_bytes,
        max_bytes=max_bytes,
    )
    share = _CACHE_SHARE if is_gpu() else _HOST_CACHE_SHARE
    cache_bytes = int(free * share) if config.cache_memory is None else config.cache_memory
    runner = MlxRunner(loaded, Settings(lanes=lanes, cache_bytes=cache_bytes, adapters=config.adapters or {}), vision)
    if runner.chooser is not None:
        report("compiling for this device…")
        warm_up(runner)
    return runner


def _load_vision(loaded: MlxModel) -> "Vision | None":
    if not loaded.config.get("vision_config"):
        return None
    if importlib.util.find_spec("mlx_vlm") is None:
        raise StartupError(
            f"{loaded.info.name!r} sees images, which needs mlx-vlm: pip install 'proxy-inference-engine[mlx]'"
        )
    from proxy_inference_engine.runners.mlx.vision.image_rows import load_vision

    return load_vision(loaded.path, loaded.config, loaded.model, loaded.vocabulary)
