"""`pie doctor`: this machine, the engines, the models, the server and the settings; what is wrong, and what to do."""

import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from proxy_inference_engine import __version__
from proxy_inference_engine.cli.choices import gpu_bytes, program, unused_gpu
from proxy_inference_engine.cli.library import describe, faster
from proxy_inference_engine.cli.remote.running_server import address, find_server
from proxy_inference_engine.cli.shelf.inventory import inventory, unfinished
from proxy_inference_engine.cli.terminal import Style, fitted, paint
from proxy_inference_engine.config import Config, available_cores, available_memory
from proxy_inference_engine.config.sizes import format_size
from proxy_inference_engine.errors import PieError, StartupError
from proxy_inference_engine.models import hub
from proxy_inference_engine.models.suggestions import suggest
from proxy_inference_engine.runners.llama_cpp.library import start

Health = Literal["good", "note", "bad"]
_SIGNS: dict[Health, tuple[str, Style]] = {"good": ("✓", "green"), "note": ("•", "yellow"), "bad": ("✗", "red")}
_LITTLE_DISK = 5 << 30


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One thing that was looked at."""

    subject: str
    finding: str
    verdict: Health = "good"
    advice: str = ""


def doctor(config: Config, *, as_json: bool = False) -> int:
    """1 where something has to be put right before a model can answer."""
    found = []
    for diagnosis in _examine(config):
        found.append(diagnosis)
        if not as_json:
            _print(diagnosis)
    if as_json:
        print(json.dumps([asdict(each) for each in found]))
    return 1 if any(each.verdict == "bad" for each in found) else 0


def _print(diagnosis: Diagnosis) -> None:
    sign, style = _SIGNS[diagnosis.verdict]
    print(f"{paint(sign, style)} {diagnosis.subject:<11}{fitted(diagnosis.finding, 13)}", flush=True)
    if diagnosis.advice:
        print(f"  {'':<11}{paint('→', style)} {fitted(diagnosis.advice, 15)}", flush=True)


def _examine(config: Config) -> Iterator[Diagnosis]:
    yield Diagnosis("pie", f"{__version__}, Python {platform.python_version()}, {platform.platform(terse=True)}")
    yield Diagnosis("processor", f"{available_cores()} cores for us, {platform.machine()}")
    yield _memory()
    yield _disk(config)
    yield from _llama(config)
    yield _mlx()
    yield _gpu(config)
    yield from _models(config)
    yield _server(config)
    yield _settings()


def _memory() -> Diagnosis:
    free = available_memory()
    finding = f"{format_size(free)} free"
    if suggest(free):
        return Diagnosis("memory", finding)
    return Diagnosis("memory", finding, "note", "little: only the smallest models fit")


def _disk(config: Config) -> Diagnosis:
    folder = hub.cache_folder()
    place = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(place).free
    finding = f"{format_size(free)} free for models in {folder}"
    if free > _LITTLE_DISK:
        return Diagnosis("disk", finding)
    return Diagnosis("disk", finding, "note", "HF_HOME names another place")


def _llama(config: Config) -> Iterator[Diagnosis]:
    try:
        library = start(config.llama_library)
    except (StartupError, OSError, ValueError) as error:
        text = error.message if isinstance(error, PieError) else str(error)
        yield Diagnosis("llama.cpp", text, "bad", "pip install xllamacpp, or `pie optimize` compiles it")
        return
    lines = faster(library, program=program(), has_unused_gpu=False)
    advice = "; ".join(" ".join(line.split()) for line in lines)
    told = describe(library).removeprefix("llama.cpp").lstrip(", ")  # which the line begins with
    finding = f"{library.version.partition(' ')[0]}, {told}"
    yield Diagnosis("llama.cpp", finding, "note" if advice else "good", advice)


def _mlx() -> Diagnosis:
    if importlib.util.find_spec("mlx_lm") is None:
        is_wanted = sys.platform == "darwin" and platform.machine() == "arm64"
        advice = "pip install 'proxy-inference-engine[mlx]'" if is_wanted else ""
        return Diagnosis(
            "mlx", "not installed; only folders of safetensors need it", "note" if advice else "good", advice
        )
    return Diagnosis("mlx", f"{importlib.metadata.version('mlx')}, mlx-lm {importlib.metadata.version('mlx-lm')}")


def _gpu(config: Config) -> Diagnosis:
    free = gpu_bytes(config)
    if free:
        return Diagnosis("gpu", f"{format_size(free)} free, used by llama.cpp")
    if unused_gpu():
        return Diagnosis("gpu", "NVIDIA, not used by this llama.cpp", "note", "docs/gpu.md says how to build for it")
    return Diagnosis("gpu", "none; models run on the processor")


def _models(config: Config) -> Iterator[Diagnosis]:
    stocked = inventory(config)
    if stocked:
        names = ", ".join(each.name for each in stocked[:4]) + (" …" if len(stocked) > 4 else "")
        yield Diagnosis("models", f"{len(stocked)}: {names}")
    else:
        yield Diagnosis("models", "none", "bad", f"`{program()} pull bundled` fetches the smallest (89 MiB)")
    for name in unfinished():
        yield Diagnosis("models", f"{name} is not whole", "note", f"`{program()} pull {name}` goes on with it")
    if os.environ.get("HF_HUB_OFFLINE") or config.offline:
        yield Diagnosis("hub", "downloads are forbidden by offline or HF_HUB_OFFLINE", "note")


def _server(config: Config) -> Diagnosis:
    try:
        server = find_server(config)
    except PieError as error:
        return Diagnosis("server", error.message, "note")
    if server is None:
        where = address(config)
        return Diagnosis("server", f"none at {where}" if where else "none is wanted", "good", f"`{program()} serve`")
    states = ", ".join(f"{model.id} ({model.state})" for model in server.models[:4])
    return Diagnosis("server", f"runs at {server.url}: {states}")


def _settings() -> Diagnosis:
    """Where settings come from. That they are right is plain: this command has come so far."""
    files = [name for name in ("pie.toml", ".env") if Path(name).exists()]
    variables = sorted(name for name in os.environ if name.startswith("PIE_"))
    return Diagnosis("settings", ", ".join((*files, *variables)) or "none: every default holds")
