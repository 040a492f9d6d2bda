"""From a configuration to a running engine: find the file, load it with the engine it is for, start the thread."""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from types import ModuleType
from typing import NamedTuple

from proxy_inference_engine.config import Config
from proxy_inference_engine.engine.admission import Admission
from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.engine.worker import Worker
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models import load_llama
from proxy_inference_engine.models.convert_gguf import converted
from proxy_inference_engine.models.disk_cache import use_disk
from proxy_inference_engine.models.engines import Machine, choose_engine, this_machine
from proxy_inference_engine.models.profile import Profile, profile
from proxy_inference_engine.models.resolve import ModelFile, resolve
from proxy_inference_engine.models.watcher import Nobody, Watcher
from proxy_inference_engine.runners.base import Runner, Tokenizer
from proxy_inference_engine.runners.checkpoint import CONFIG, read_optional
from proxy_inference_engine.runners.llama_cpp.model import Model
from proxy_inference_engine.runners.llama_cpp.tokenizer import Vocabulary

_log = logging.getLogger(__name__)


def load_engine(config: Config, watcher: Watcher | None = None, machine: Machine | None = None) -> Worker:
    """A started worker. Raises StartupError.

    The model is loaded in the thread that will run it. OpenMP keeps a team of threads for each thread that ever
    computed; with a second team it takes the cores for overbooked and stops spinning at barriers: half the speed.
    """
    outcome: Future[Worker] = Future()
    arguments = (config, watcher or Nobody(), machine or this_machine(), outcome)
    threading.Thread(target=_load_and_run, args=arguments, name="engine", daemon=True).start()
    return outcome.result()


class Words(NamedTuple):
    """What of a model can be known without its weights."""

    tokenizer: Tokenizer
    chat_template: str | None
    architecture: str
    name: str

    @property
    def profile(self) -> Profile:
        return profile(self.name, self.architecture)


def load_words(config: Config) -> Words:
    file = resolve(config.model)
    choose_engine(config, file, this_machine())
    if file.kind == "safetensors":
        architecture = str(read_optional(file.path / CONFIG).get("model_type", ""))
        tokenizer, template = _mlx().load_tokenizer(file)
        return Words(tokenizer, template, architecture, file.name)
    model = Model(file.path, vocab_only=True)
    return Words(Vocabulary(model), model.chat_template, model.architecture, file.name)


class _Loaded(NamedTuple):
    runner: Runner
    cache_bytes: int
    draft: Runner | None = None
    leave_thread: Callable[[], None] | None = None


def _load_and_run(config: Config, watcher: Watcher, machine: Machine, outcome: "Future[Worker]") -> None:
    try:
        loaded = _load(config, watcher, machine)
        worker = _make_worker(config, loaded)
    except MemoryError as error:
        reason = str(error) or "there is not enough memory for this model"
        outcome.set_exception(StartupError(f"{reason}: try a lower --context or --kv-memory, and without --exact"))
        return
    except BaseException as error:
        outcome.set_exception(error)
        return
    worker.run(on_started=lambda: outcome.set_result(worker))
    if loaded.leave_thread is not None:
        loaded.leave_thread()


def _load(config: Config, watcher: Watcher, machine: Machine) -> _Loaded:
    file = resolve(config.model)
    choice = choose_engine(config, file, machine)
    if choice.engine == "mlx":
        try:
            return _load_mlx(config, file, watcher)
        except (StartupError, MemoryError, RuntimeError) as error:
            if not choice.is_tried:
                raise
            _log.warning("llama.cpp runs %s, because MLX cannot: %s", file.name, error)
    runner, draft = load_llama.load_runners(config, file, watcher)
    return _Loaded(runner, runner.cache_bytes, draft)


def _load_mlx(config: Config, file: ModelFile, watcher: Watcher) -> _Loaded:
    if config.draft_model is not None:
        raise StartupError("draft_model needs llama.cpp: MLX chooses tokens before a guess of them could be checked")
    mlx = _mlx()
    if file.kind == "gguf":
        file = converted(file, mlx.fastest_numbers(), config.cache_dir, watcher)
    try:
        runner = mlx.load_runner(config, file, watcher.say)
    except BaseException:
        mlx.leave_thread()
        raise
    return _Loaded(runner, runner.cache_bytes, leave_thread=mlx.leave_thread)


def _make_worker(config: Config, loaded: _Loaded) -> Worker:
    target_s = config.step_target_ms / 1000
    engine = StepEngine(loaded.runner, max_cache_bytes=loaded.cache_bytes, step_target_s=target_s)
    if loaded.draft is not None:
        engine.draft_with(loaded.draft, config.draft_tokens)
    use_disk(engine, config)
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
