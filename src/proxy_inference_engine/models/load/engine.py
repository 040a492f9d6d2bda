"""From a configuration to a running engine: find the file, load it with the engine it is for, start the thread."""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from types import ModuleType
from typing import NamedTuple

from proxy_inference_engine.cache.disk.drive import ThreadedDrive
from proxy_inference_engine.cache.disk.folder import Folder
from proxy_inference_engine.cache.disk.tier import DiskRoom, DiskTier
from proxy_inference_engine.config import Config
from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.engine.queue import Admission
from proxy_inference_engine.engine.worker import Worker
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models.engines import choose_engine
from proxy_inference_engine.models.load import llama
from proxy_inference_engine.models.profile import Profile, profile
from proxy_inference_engine.models.resolve import ModelFile, resolve
from proxy_inference_engine.models.watcher import Nobody, Watcher
from proxy_inference_engine.runners.base import Runner, Tokenizer
from proxy_inference_engine.runners.checkpoint import CONFIG, read_optional, read_tool_template
from proxy_inference_engine.runners.llama_cpp.library import start
from proxy_inference_engine.runners.llama_cpp.model import Model
from proxy_inference_engine.runners.llama_cpp.team import share_passes
from proxy_inference_engine.runners.llama_cpp.tokenizer import Vocabulary

_log = logging.getLogger(__name__)
_PREFIXES = "prefixes"  # the disk tier's folder in the cache folder


def load_engine(config: Config, watcher: Watcher | None = None, *, is_alone: bool = True) -> Worker:
    """A started worker; `is_alone` False: there may be others in this process. Raises StartupError.

    The model is loaded in the thread that will run it. OpenMP keeps a team of threads for each thread that ever
    computed; with a second team it takes the cores for overbooked and stops spinning at barriers: half the speed.
    """
    outcome: Future[Worker] = Future()
    arguments = (config, watcher or Nobody(), outcome, is_alone)
    threading.Thread(target=_load_and_run, args=arguments, name="engine", daemon=True).start()
    return outcome.result()


def share_processor(config: Config) -> None:
    """Have models on the processor take turns, pass by pass. Call before a model is loaded that may get neighbours.

    Raises StartupError.
    """
    if choose_engine(config, resolve(config.model, config.cache_dir)) == "llama.cpp":
        share_passes(config.llama_library)


class Words(NamedTuple):
    """What of a model can be known without its weights."""

    tokenizer: Tokenizer
    chat_template: str | None
    architecture: str
    name: str
    tool_template: str | None = None

    @property
    def profile(self) -> Profile:
        return profile(self.name, self.architecture)


def load_words(config: Config) -> Words:
    """Read a model's words, for commands that compute nothing. Raises StartupError."""
    file = resolve(config.model, config.cache_dir)
    if choose_engine(config, file) == "mlx":
        architecture = str(read_optional(file.path / CONFIG).get("model_type", ""))
        tokenizer, template = _mlx().load_tokenizer(file)
        return Words(tokenizer, template, architecture, file.name, read_tool_template(file.path))
    model = Model(file.path, vocab_only=True, library=start(config.llama_library))
    return Words(Vocabulary(model), model.chat_template, model.architecture, file.name, model.tool_template)


class _Loaded(NamedTuple):
    runner: Runner
    cache_bytes: int
    draft: Runner | None = None
    leave_thread: Callable[[], None] | None = None


def _load_and_run(config: Config, watcher: Watcher, outcome: "Future[Worker]", is_alone: bool) -> None:
    load = partial(_load_for, config, is_alone=is_alone)

    def run(engine: StepEngine) -> None:
        worker = Worker(engine, _admission(config), reload=partial(load, Nobody(), has_disk=False))
        worker.run(on_started=lambda: outcome.set_result(worker))

    try:
        load(watcher, run)
    except BaseException as error:
        if outcome.done():
            raise
        outcome.set_exception(error)


def _load_for(
    config: Config,
    watcher: Watcher,
    run: Callable[[StepEngine], None],
    *,
    is_alone: bool,
    has_disk: bool = True,
) -> None:
    """Load an engine and run it, all in the calling thread. Raises StartupError.

    `has_disk` False: the folder of prefixes is still held by an engine that was given up.
    """
    try:
        loaded = _load(config, watcher, is_alone=is_alone)
    except MemoryError as error:
        reason = str(error) or "there is not enough memory for this model"
        raise StartupError(f"{reason}: try a lower --context or --kv-memory, and without --exact") from None
    try:
        run(_make_engine(config, loaded, has_disk=has_disk))
    finally:
        if loaded.leave_thread is not None:
            loaded.leave_thread()


def _load(config: Config, watcher: Watcher, *, is_alone: bool) -> _Loaded:
    file = resolve(config.model, config.cache_dir)
    if choose_engine(config, file) == "mlx":
        return _load_mlx(config, file, watcher)
    runner, draft = llama.load_runners(config, file, watcher, is_alone=is_alone)
    return _Loaded(runner, runner.cache_bytes, draft)


def _load_mlx(config: Config, file: ModelFile, watcher: Watcher) -> _Loaded:
    if config.draft_model is not None:
        raise StartupError("draft_model needs llama.cpp: MLX chooses tokens before a guess of them could be checked")
    mlx = _mlx()
    try:
        runner = mlx.load_runner(config, file, watcher.say)
    except BaseException:
        mlx.leave_thread()
        raise
    return _Loaded(runner, runner.cache_bytes, leave_thread=mlx.leave_thread)


def _make_engine(config: Config, loaded: _Loaded, *, has_disk: bool) -> StepEngine:
    """Raises StartupError, and then nothing is left of what was loaded."""
    try:
        engine = StepEngine(
            loaded.runner,
            max_cache_bytes=loaded.cache_bytes,
            step_target_s=config.step_target_ms / 1000,
            queue_timeout_s=config.queue_timeout_seconds,
        )
        if loaded.draft is not None:
            engine.draft_with(loaded.draft, config.draft_tokens)
        if has_disk:
            use_disk(engine, config)
    except BaseException:
        loaded.runner.close()
        if loaded.draft is not None:
            loaded.draft.close()
        raise
    return engine


def _admission(config: Config) -> Admission:
    return Admission(
        max_waiting=config.max_waiting,
        max_waiting_per_tenant=config.max_waiting_per_key,
        max_waiting_tokens=config.max_waiting_tokens,
    )


def use_disk(engine: StepEngine, config: Config) -> None:
    """Give the engine's prefix cache a disk, where one is asked for and can be had.

    Raises StartupError where the folder cannot be written to.
    """
    if config.disk_cache == 0:
        return
    if engine.runner.packer is None:
        _log.warning("disk_cache has no effect: this model keeps a state that cannot be written to disk")
        return
    if engine.cache.max_bytes == 0:
        _log.warning("disk_cache has no effect without a cache in memory: raise cache_memory")
        return
    path = config.cache_dir / _PREFIXES
    try:
        drive = ThreadedDrive(Folder(path))
    except BlockingIOError:
        _log.warning(
            "disk_cache has no effect for %s: another model or server uses %s; give each server its own cache_dir",
            engine.runner.info.name,
            path,
        )
        return
    except OSError as error:
        raise StartupError(f"disk_cache: cannot use {str(path)!r}: {error.strerror}") from None
    engine.scheduler.disk = DiskTier(engine.cache, engine.runner, drive, DiskRoom(config.disk_cache))


def _mlx() -> ModuleType:
    """MLX's part, imported where it is wanted: most machines have no MLX."""
    try:
        from proxy_inference_engine.models.load import mlx
    except ImportError as error:
        raise StartupError(
            f"MLX cannot be loaded ({error}): pip install 'proxy-inference-engine[mlx]', "
            "or [mlx-cuda] for an NVIDIA GPU"
        ) from None
    return mlx
