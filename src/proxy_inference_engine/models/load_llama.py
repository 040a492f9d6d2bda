"""From a GGUF file to a runner on llama.cpp: choose the layout and the place of the weights, load, size the memory."""

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from proxy_inference_engine.config import Config, available_cores, available_memory
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models.draft import check_memories, find_draft
from proxy_inference_engine.models.mmproj import find_mmproj
from proxy_inference_engine.models.resolve import ModelFile, weight_bytes
from proxy_inference_engine.models.watcher import Watcher, shares
from proxy_inference_engine.runners.base import Lane
from proxy_inference_engine.runners.llama_cpp import devices
from proxy_inference_engine.runners.llama_cpp.model import Model
from proxy_inference_engine.runners.llama_cpp.runner import LlamaRunner, Settings
from proxy_inference_engine.runners.llama_cpp.weights import fastest_weights
from proxy_inference_engine.runners.plan import choose_context, plan_lanes

if TYPE_CHECKING:
    from proxy_inference_engine.runners.llama_cpp.vision import Vision

_log = logging.getLogger(__name__)

_KV_SHARE = 0.4  # of what is free once the weights are loaded
_CACHE_SHARE = 0.05
_MAX_CACHE_BYTES = 4 << 30


class Runners(NamedTuple):
    runner: LlamaRunner
    draft: LlamaRunner | None  # with the same lanes


def load_runners(config: Config, file: ModelFile, watcher: Watcher) -> Runners:
    """The model, and the one that drafts for it. Raises StartupError."""
    threads = config.threads or available_cores()
    gpu_layers = _gpu_layers(config, file.path, watcher.say)
    model = _load_model(config, file.path, gpu_layers, watcher)
    vision = _load_vision(config, file, model, threads)
    draft_file = find_draft(config.draft_model, model)
    drafts = []
    if draft_file is not None:
        draft_layers = _gpu_layers(config, draft_file.path, watcher.say)
        drafts = [_load_model(config, draft_file.path, draft_layers, watcher)]
    free = available_memory()
    gpu_share = min(1.0, gpu_layers / max(1, model.num_layers))
    lanes = _plan(config, [model, *drafts], devices.free_for_kv(free, devices.free_gpu_bytes(), gpu_share), watcher.say)
    cache_bytes = config.cache_memory
    if cache_bytes is None:
        cache_bytes = min(_MAX_CACHE_BYTES, int(free * _CACHE_SHARE))
    settings = Settings(name=file.name, lanes=lanes, threads=threads, is_exact=config.exact, cache_bytes=cache_bytes)
    runner = LlamaRunner(model, settings, vision)
    if draft_file is None:
        return Runners(runner, None)
    draft = LlamaRunner(drafts[0], replace(settings, name=draft_file.name, cache_bytes=0))
    check_memories(runner, draft)
    watcher.say(f"{draft_file.name} drafts for {file.name}")
    return Runners(runner, draft)


def _load_model(config: Config, path: Path, gpu_layers: int, watcher: Watcher) -> Model:
    if config.convert_weights == "auto" and gpu_layers == 0:
        threads = config.threads or available_cores()
        path = fastest_weights(path, cache_dir=config.cache_dir, threads=threads, report=watcher.say)
    return Model(path, gpu_layers=gpu_layers, on_progress=shares(watcher, weight_bytes(path)))


def _gpu_layers(config: Config, path: Path, report: Callable[[str], None]) -> int:
    """All, or as many as fit; none where llama.cpp was built without a GPU, or there is none."""
    free = devices.free_gpu_bytes()
    if config.gpu_layers == 0 or not free:
        return 0
    if config.gpu_layers > 0:
        return config.gpu_layers
    words = Model(path, vocab_only=True)
    try:
        num_layers = int(words.metadata(f"{words.architecture}.block_count") or 0)
    finally:
        words.close()
    chosen = devices.fitting_layers(num_layers, weight_bytes(path), free)
    if chosen < num_layers:
        report(f"{chosen} of the model's {num_layers} layers fit on the GPU (--gpu-layers sets it)")
    return chosen


def _plan(config: Config, models: list[Model], free: int, report: Callable[[str], None]) -> tuple[Lane, ...]:
    """Lanes for the first model, of which the others have the same."""
    # K and V, two bytes a number; exact mode keeps K in 34 bytes per 32 numbers.
    num_values = sum(model.num_kv_values for model in models)
    token_bytes = int(num_values * (2 + 34 / 32 if config.exact else 4))
    max_bytes = config.kv_memory or int(free * _KV_SHARE)
    context_tokens = choose_context(config.context, models[0].context_tokens, token_bytes, max_bytes, report)
    return plan_lanes(
        context_tokens=context_tokens, num_slots=config.slots, token_bytes=token_bytes, max_bytes=max_bytes
    )


def _load_vision(config: Config, file: ModelFile, model: Model, threads: int) -> "Vision | None":
    """The eyes of a GGUF model. A file that only lies beside it may be another model's: then there are none."""
    mmproj = find_mmproj(config.mmproj, file)
    if mmproj is None:
        return None
    try:
        # The library behind it is loaded for a model with eyes only.
        from proxy_inference_engine.runners.llama_cpp.vision import load_vision

        return load_vision(mmproj.path, model, threads=threads, has_gpu=config.gpu_layers != 0)
    except (StartupError, ImportError, OSError, RuntimeError) as error:
        if mmproj.is_set:
            raise StartupError(f"mmproj {str(mmproj.path)!r}: {error}") from None
        _log.warning("no images: %s", error)
        return None
