"""The first screen of a server with one model or several: the facts, and the advice that fits them."""

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from proxy_inference_engine.cli.banner import Banner, ready
from proxy_inference_engine.cli.choices import fitting, gpu_bytes, program, unused_gpu
from proxy_inference_engine.cli.library import describe, faster
from proxy_inference_engine.config import Config
from proxy_inference_engine.config.sizes import format_size
from proxy_inference_engine.engine.worker import Worker
from proxy_inference_engine.models.resolve import ModelFile, resolve
from proxy_inference_engine.runners.llama_cpp.library import start

if TYPE_CHECKING:
    from proxy_inference_engine.pool.pool import ModelPool
    from proxy_inference_engine.served.model import ServedModel

_MAX_LISTED = 20


def greeting(pool: "ModelPool", config: Config, address: str, memory_bytes: int) -> str:
    """`memory_bytes`: what was free before the first model was loaded."""
    first = pool.members[0].model
    others = _others(pool, address)
    if first is None:
        lines = ("", *ready(address, has_keys=bool(config.api_keys)), "", *others, "", "Ctrl-C stops the server.")
        return "\n".join(lines)
    banner = replace(_banner(first, config, address), others=tuple(others))
    if config.engine == "vllm":
        return _render(replace(banner, description="", library=_far(first, config)))
    file = resolve(config.model, config.cache_dir)
    if file.kind == "gguf":
        banner = _with_advice(banner, file, config, memory_bytes)
    return _render(banner)


def _render(banner: Banner) -> str:
    return banner.render(is_terminal=sys.stdout is not None and sys.stdout.isatty())


def _far(model: "ServedModel", config: Config) -> str:
    description, is_up = model.answerer.info.description, model.answerer.is_ready
    return f"{description} at {', '.join(config.url)}" + ("" if is_up else ", which does not answer yet")


def _others(pool: "ModelPool", address: str) -> list[str]:
    """Models that are not loaded yet: now, or when somebody asks for them. Of each kind a title, then a line each."""
    absent = [member for member in pool.members if member.model is None]
    room = "" if pool.max_bytes is None else f" within {format_size(pool.max_bytes)}"
    first = [member.id for member in absent if member.entry.is_preloaded]
    later = [member.id for member in absent if not member.entry.is_preloaded]
    return [
        *_listed(f"Being loaded now{room}", first, address),
        *_listed(f"Loaded when asked for{'' if first else room}", later, address),
    ]


def _listed(title: str, names: list[str], address: str) -> list[str]:
    if not names:
        return []
    more = f"  … {len(names) - _MAX_LISTED} more: {address}/v1/models lists them"
    return [title, *(f"  {name}" for name in names[:_MAX_LISTED]), *([more] if len(names) > _MAX_LISTED else [])]


def _banner(model: "ServedModel", config: Config, address: str) -> Banner:
    worker = model.answerer
    return Banner(
        model=model.id,
        description=worker.info.description,
        context_tokens=worker.context_tokens,
        lanes=worker.lanes if isinstance(worker, Worker) else (),
        kv_bytes_per_token=worker.info.kv_bytes_per_token,
        cache_bytes=worker.stats().max_cached_bytes,
        url=address,
        has_keys=bool(config.api_keys),
    )


def _with_advice(banner: Banner, file: ModelFile, config: Config, memory_bytes: int) -> Banner:
    """Which llama.cpp runs and what would be faster; for those who run the bundled model, which others would fit."""
    library, num_gpu_bytes = start(config.llama_library), gpu_bytes(config)
    has_unused_gpu = not num_gpu_bytes and unused_gpu()
    lines = faster(library, program=program(), has_unused_gpu=has_unused_gpu)
    banner = replace(banner, library=describe(library), faster=tuple(lines))
    if not file.is_bundled:
        return banner
    larger = tuple(fitting(memory_bytes, num_gpu_bytes, has_unused_gpu=has_unused_gpu))
    # llama.cpp guesses a size from the number of layers, and takes the bundled model for twice as large.
    return replace(banner, description=banner.description.rpartition(" ")[2], is_small=True, larger=larger)
