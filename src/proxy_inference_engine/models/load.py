"""From a configuration to a running engine: find the file, size the memory, load, start the thread."""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

from proxy_inference_engine.config import Config, available_cores, available_memory
from proxy_inference_engine.engine.admission import Admission
from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.engine.worker import Worker
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models.engines import choose_engine
from proxy_inference_engine.models.mmproj import find_mmproj
from proxy_inference_engine.models.profile import Profile, profile
from proxy_inference_engine.models.resolve import ModelFile, resolve
from proxy_inference_engine.runners.base import Runner, Tokenizer
from proxy_inference_engine.runners.llama_cpp.model import Model
from proxy_inference_engine.runners.llama_cpp.runner import LlamaRunner, Settings
from proxy_inference_engine.runners.llama_cpp.tokenizer import Vocabulary
from proxy_inference_engine.runners.llama_cpp.weights import fastest_weights
from proxy_inference_engine.runners.plan import plan_lanes

if TYPE_CHECKING:
    from proxy_inference_engine.runners.llama_cpp.vision import Vision

_log = logging.getLogger(__name__)

_KV_SHARE = 0.4  # of what is free once the weights are loaded
_CACHE_SHARE = 0.05
_MAX_CACHE_BYTES = 4 << 30


def load_engine(config: Config, report: Callable[[str], None]) -> Worker:
    """A started worker; `report` is told of steps a person would wait for. Raises StartupError.

    The model is loaded in the thread that will run it. OpenMP keeps a team of threads for each thread that ever
    computed; with a second team it takes the cores for overbooked and stops spinning at barriers: half the speed.
    """
    outcome: Future[Worker] = Future()
    threading.Thread(target=_load_and_run, args=(config, report, outcome), name="engine", daemon=True).start()
    return outcome.result()


class Words(NamedTuple):
    """What of a model can be known without its weights."""

    tokenizer: Tokenizer
    chat_template: str | None
    profile: Profile


def load_words(config: Config) -> Words:
    file = resolve(config.model)
    if choose_engine(config.engine, file) == "mlx":
        tokenizer, template = _mlx().load_tokenizer(file)
        return Words(tokenizer, template, profile(file.name))
    model = Model(file.path, vocab_only=True)
    return Words(Vocabulary(model), model.metadata("tokenizer.chat_template"), profile(file.name))


def _load_and_run(config: Config, report: Callable[[str], None], outcome: "Future[Worker]") -> None:
    try:
        file = resolve(config.model)
        mlx = _mlx() if choose_engine(config.engine, file) == "mlx" else None
        runner = mlx.load_runner(config, file, report) if mlx else _load_llama(config, file, report)
        worker = _make_worker(config, runner, runner.cache_bytes)
    except BaseException as error:
        outcome.set_exception(error)
        return
    worker.run(on_started=lambda: outcome.set_result(worker))
    if mlx:
        mlx.leave_thread()


def _make_worker(config: Config, runner: Runner, cache_bytes: int) -> Worker:
    engine = StepEngine(runner, max_cache_bytes=cache_bytes, step_target_s=config.step_target_ms / 1000)
    admission = Admission(
        max_waiting=config.max_waiting,
        max_waiting_per_tenant=config.max_waiting_per_key,
        max_waiting_tokens=config.max_waiting_tokens,
    )
    return Worker(engine, admission)


def _mlx() -> ModuleType:
    """MLX's part, imported where it is wanted: most machines have no MLX."""
    try:
        from proxy_inference_engine.models import load_mlx
    except ImportError as error:
        raise StartupError(
            f"MLX cannot be loaded ({error}): pip install 'proxy-inference-engine[mlx]', "
            "or [mlx-cuda] for an NVIDIA GPU"
        ) from None
    return load_mlx


def _load_llama(config: Config, file: ModelFile, report: Callable[[str], None]) -> LlamaRunner:
    threads = config.threads or available_cores()
    path = file.path
    if config.convert_weights == "auto":
        path = fastest_weights(path, cache_dir=config.cache_dir, threads=threads, report=report)
    model = Model(path, gpu_layers=config.gpu_layers)
    vision = _load_vision(config, file, model, threads)
    free = available_memory()
    context_tokens = min(config.context or model.context_tokens, model.context_tokens)
    # K and V, two bytes a number; exact mode keeps K in 34 bytes per 32 numbers.
    token_bytes = model.num_kv_values * (2 + 34 / 32 if config.exact else 4)
    lanes = plan_lanes(
        context_tokens=context_tokens,
        num_slots=config.slots,
        token_bytes=int(token_bytes),
        max_bytes=config.kv_memory or int(free * _KV_SHARE),
    )
    cache_bytes = config.cache_memory
    if cache_bytes is None:
        cache_bytes = min(_MAX_CACHE_BYTES, int(free * _CACHE_SHARE))
    settings = Settings(name=file.name, lanes=lanes, threads=threads, is_exact=config.exact, cache_bytes=cache_bytes)
    return LlamaRunner(model, settings, vision)


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
