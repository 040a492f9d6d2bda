"""From a configuration to a running engine: find the file, load it with the engine it is for, start the thread."""

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
from proxy_inference_engine.models.engines import choose_engine
from proxy_inference_engine.models.profile import Profile, profile
from proxy_inference_engine.models.resolve import resolve
from proxy_inference_engine.runners.base import Runner, Tokenizer
from proxy_inference_engine.runners.llama_cpp.model import Model
from proxy_inference_engine.runners.llama_cpp.tokenizer import Vocabulary


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
    return Words(Vocabulary(model), model.chat_template, profile(file.name))


def _load_and_run(config: Config, report: Callable[[str], None], outcome: "Future[Worker]") -> None:
    try:
        file = resolve(config.model)
        mlx = _mlx() if choose_engine(config.engine, file) == "mlx" else None
        runner = mlx.load_runner(config, file, report) if mlx else load_llama.load_runner(config, file, report)
        worker = _make_worker(config, runner, runner.cache_bytes)
    except MemoryError as error:
        reason = str(error) or "there is not enough memory for this model"
        outcome.set_exception(StartupError(f"{reason}: try a lower --context or --kv-memory, and without --exact"))
        return
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
