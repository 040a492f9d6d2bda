"""Models to begin with, by what fits: for each purpose the largest that this machine runs at a bearable speed.

The table is the whole of it. Sizes are those of the download, with the file for images where there is one.
"""

from typing import Literal, NamedTuple

Purpose = Literal["quick answers", "all-round, tools", "images too"]

_GB = 10**9
_SHARE = 1.15  # of the weights, with what a pass over them needs
_BESIDE_BYTES = 1 << 30  # KV and the rest


class Suggestion(NamedTuple):
    name: str
    num_bytes: int
    purpose: Purpose
    needs_gpu: bool = False  # more weights pass through a token than a processor has patience for


_MODELS = (
    Suggestion("Qwen/Qwen3-0.6B-GGUF:Q8_0", int(0.64 * _GB), "quick answers"),
    Suggestion("Qwen/Qwen3-1.7B-GGUF:Q8_0", int(1.83 * _GB), "quick answers"),
    Suggestion("Qwen/Qwen3-4B-GGUF:Q4_K_M", int(2.50 * _GB), "quick answers", needs_gpu=True),
    Suggestion("Qwen/Qwen3-4B-GGUF:Q4_K_M", int(2.50 * _GB), "all-round, tools"),
    Suggestion("Qwen/Qwen3-8B-GGUF:Q4_K_M", int(5.03 * _GB), "all-round, tools"),
    Suggestion("Qwen/Qwen3-14B-GGUF:Q4_K_M", int(9.00 * _GB), "all-round, tools", needs_gpu=True),
    Suggestion("Qwen/Qwen3-30B-A3B-GGUF:Q4_K_M", int(18.6 * _GB), "all-round, tools"),  # 3B at a time
    Suggestion("Qwen/Qwen3-32B-GGUF:Q4_K_M", int(19.8 * _GB), "all-round, tools", needs_gpu=True),
    Suggestion("ggml-org/SmolVLM-500M-Instruct-GGUF:Q8_0", int(0.64 * _GB), "images too"),
    Suggestion("ggml-org/gemma-3-4b-it-GGUF:Q4_K_M", int(3.34 * _GB), "images too"),
    Suggestion("ggml-org/gemma-3-12b-it-GGUF:Q4_K_M", int(8.15 * _GB), "images too", needs_gpu=True),
    Suggestion("ggml-org/gemma-3-27b-it-GGUF:Q4_K_M", int(17.4 * _GB), "images too", needs_gpu=True),
)


def suggest(memory_bytes: int, gpu_bytes: int = 0) -> list[Suggestion]:
    """At most one for each purpose, none twice, none that does not fit: into the GPU where there is one, else into
    memory."""
    room = gpu_bytes or memory_bytes
    best: dict[Purpose, Suggestion] = {}
    for each in sorted(_MODELS, key=lambda each: (-each.num_bytes, each.purpose)):
        fits = each.num_bytes * _SHARE + _BESIDE_BYTES <= room and (gpu_bytes or not each.needs_gpu)
        if fits and each.purpose not in best and all(each.name != other.name for other in best.values()):
            best[each.purpose] = each
    return sorted(reversed(best.values()), key=lambda each: each.num_bytes)
