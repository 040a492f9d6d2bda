"""From a GGUF file to a runner on llama.cpp: choose the layout and the place of the weights, load, size the memory."""

import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from proxy_inference_engine.config import Config, available_cores, available_memory
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models.resolve import ModelFile, find_mmproj, resolve, weight_bytes
from proxy_inference_engine.models.watcher import Watcher, shares
from proxy_inference_engine.runners.base import Lane, Runner, Tokenizer
from proxy_inference_engine.runners.llama_cpp import devices
from proxy_inference_engine.runners.llama_cpp.library import Library, start
from proxy_inference_engine.runners.llama_cpp.model import Model
from proxy_inference_engine.runners.llama_cpp.runner import LlamaRunner, Settings
from proxy_inference_engine.runners.llama_cpp.tokenizer import Vocabulary
from proxy_inference_engine.runners.llama_cpp.vision.runs import Vision, load_vision
from proxy_inference_engine.runners.llama_cpp.weights import fastest_weights
from proxy_inference_engine.runners.plan import KV_SHARE, choose_context, plan_lanes

_log = logging.getLogger(__name__)

_CACHE_SHARE = 0.05
_MAX_CACHE_BYTES = 4 << 30


class Runners(NamedTuple):
    runner: LlamaRunner
    draft: LlamaRunner | None  # with the same lanes


class _Weights(NamedTuple):
    """What was read from files."""

    model: Model
    vision: Vision | None
    draft: Model | None
    draft_name: str
    gpu_layers: int  # of the model

    @property
    def models(self) -> list[Model]:
        return [self.model] if self.draft is None else [self.model, self.draft]


def load_runners(config: Config, file: ModelFile, watcher: Watcher, *, is_alone: bool = True) -> Runners:
    """The model, and the one that drafts for it. Raises StartupError, and then nothing of it is left in memory.

    `is_alone` False: whatever happens to its file is no reason for other models in this process to go.
    """
    library = start(config.llama_library)
    with ExitStack() as undo:
        weights = _load_weights(config, file, library, watcher, undo, is_alone=is_alone)
        settings = _settings(config, file, library, weights, watcher)
        runner = LlamaRunner(weights.model, settings, weights.vision)
        undo.callback(runner.close)
        draft = None
        if weights.draft is not None:
            draft = LlamaRunner(weights.draft, replace(settings, name=weights.draft_name, cache_bytes=0, adapters={}))
            undo.callback(draft.close)
            _check_memories(runner, draft)
            watcher.say(f"{weights.draft_name} drafts for {file.name}")
        undo.pop_all()
    return Runners(runner, draft)


def _load_weights(
    config: Config, file: ModelFile, library: Library, watcher: Watcher, undo: ExitStack, *, is_alone: bool
) -> _Weights:
    gpu_layers = _gpu_layers(config, library, file.path, watcher.say)
    model = _load_model(config, library, file.path, gpu_layers, watcher, is_alone=is_alone)
    undo.callback(model.close)
    vision = _load_vision(config, file, model, config.threads or available_cores())
    if vision is not None:
        undo.callback(vision.close)
    draft_file = _find_draft(config, model)
    if draft_file is None:
        return _Weights(model, vision, None, "", gpu_layers)
    draft_layers = _gpu_layers(config, library, draft_file.path, watcher.say)
    draft = _load_model(config, library, draft_file.path, draft_layers, watcher, is_alone=is_alone)
    undo.callback(draft.close)
    return _Weights(model, vision, draft, draft_file.name, gpu_layers)


def _settings(config: Config, file: ModelFile, library: Library, weights: _Weights, watcher: Watcher) -> Settings:
    free = available_memory()
    gpu_share = min(1.0, weights.gpu_layers / max(1, weights.model.num_layers))
    free_for_kv = devices.free_for_kv(free, devices.free_gpu_bytes(library.binding), gpu_share)
    cache_bytes = config.cache_memory
    if cache_bytes is None:
        cache_bytes = min(_MAX_CACHE_BYTES, int(free * _CACHE_SHARE))
    return Settings(
        name=file.name,
        lanes=_plan(config, weights.models, free_for_kv, watcher.say),
        threads=config.threads or available_cores(),
        are_threads_fixed=weights.gpu_layers > 0,  # the processor waits for the GPU
        is_exact=config.exact,
        cache_bytes=cache_bytes,
        adapters=config.adapters or {},
    )


def _load_model(
    config: Config, library: Library, path: Path, gpu_layers: int, watcher: Watcher, *, is_alone: bool
) -> Model:
    if config.convert_weights == "auto" and gpu_layers == 0:
        threads = config.threads or available_cores()
        path = fastest_weights(
            path,
            cache_dir=config.cache_dir,
            threads=threads,
            report=watcher.say,
            on_progress=shares(watcher, weight_bytes(path)),
        )
    on_progress = shares(watcher, weight_bytes(path))
    return Model(
        path,
        gpu_layers=gpu_layers,
        on_progress=on_progress,
        library=library,
        can_map=is_alone,
        is_exact=config.exact,
    )


def _gpu_layers(config: Config, library: Library, path: Path, report: Callable[[str], None]) -> int:
    """How many layers go to the GPU: all, or as many as fit; none without a GPU that llama.cpp was built for."""
    free = devices.free_gpu_bytes(library.binding)
    if config.gpu_layers == 0 or not free:
        return 0
    if config.gpu_layers > 0:
        return config.gpu_layers
    words = Model(path, vocab_only=True, library=library)
    try:
        num_layers = int(words.metadata(f"{words.architecture}.block_count") or 0)
    finally:
        words.close()
    chosen = devices.fitting_layers(num_layers, weight_bytes(path), free)
    if chosen < num_layers:
        report(f"{chosen} of the model's {num_layers} layers fit on the GPU (--gpu-layers sets it)")
    return chosen


def _plan(config: Config, models: list[Model], free: int, report: Callable[[str], None]) -> tuple[Lane, ...]:
    """The lanes of the first model; the others, which draft for it, get the same."""
    # K and V, two bytes a number; exact mode keeps K in 34 bytes per 32 numbers.
    num_values = sum(model.num_kv_values for model in models)
    token_bytes = int(num_values * (2 + 34 / 32 if config.exact else 4))
    max_bytes = config.kv_memory or int(free * KV_SHARE)
    context_tokens = choose_context(config.context, models[0].context_tokens, token_bytes, max_bytes, report)
    return plan_lanes(
        context_tokens=context_tokens, num_slots=config.slots, token_bytes=token_bytes, max_bytes=max_bytes
    )


def _load_vision(config: Config, file: ModelFile, model: Model, threads: int) -> Vision | None:
    """The image encoder of a GGUF model. A file that only lies beside it may be another model's: then none is used."""
    mmproj = find_mmproj(config.mmproj, file)
    if mmproj is None:
        return None
    try:
        return load_vision(mmproj.path, model, threads=threads, has_gpu=config.gpu_layers != 0)
    except (StartupError, OSError, RuntimeError) as error:
        if mmproj.is_set:
            raise StartupError(f"mmproj {str(mmproj.path)!r}: {error}") from None
        _log.warning("no images: %s", error)
        return None


def _find_draft(config: Config, target: Model) -> ModelFile | None:
    """The file of a draft model, which has to have the vocabulary of the model that answers; None where none is wanted.

    Loads no weights. Raises StartupError.
    """
    if config.draft_model is None:
        return None
    try:
        file = resolve(config.draft_model, config.cache_dir)
    except StartupError as error:
        raise StartupError(f"draft_model: {error.message}") from None
    if file.kind != "gguf":
        raise StartupError(f"draft_model {file.name!r} has to be a GGUF file, as the model it drafts for is one")
    words = Model(file.path, vocab_only=True, library=target.library)
    try:
        difference = _difference(Vocabulary(words), Vocabulary(target))
    finally:
        words.close()
    if difference is not None:
        raise StartupError(f"draft_model {file.name!r} does not have the vocabulary of the model: {difference}")
    return file


def _check_memories(runner: Runner, draft: Runner) -> None:
    """Raises StartupError unless both can forget a guess that was wrong."""
    for each, what in ((runner, "the model"), (draft, "draft_model")):
        if not each.can_splice:
            raise StartupError(
                f"{what} {each.info.name!r} cannot take back a guess, being an encoder or having a sliding window or "
                "recurrent state: start without draft_model"
            )


def _difference(draft: Tokenizer, target: Tokenizer) -> str | None:
    if draft.num_tokens != target.num_tokens:
        return f"it has {draft.num_tokens} tokens, not {target.num_tokens}"
    for token_id in range(target.num_tokens):
        theirs, ours = draft.token_bytes(token_id), target.token_bytes(token_id)
        if theirs != ours:
            return f"its token {token_id} is {_quoted(theirs)}, not {_quoted(ours)}"
    return None


def _quoted(piece: bytes) -> str:
    return repr(piece.decode(errors="replace"))
