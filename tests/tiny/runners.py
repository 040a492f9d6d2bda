"""Runners over tiny models: every architecture of them by its name, and what the bare model says to a text."""

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import mlx.core as mx
import numpy as np
from mlx_lm.models.cache import make_prompt_cache
from numpy.typing import NDArray

from proxy_inference_engine.runners.base import Lane
from proxy_inference_engine.runners.mlx.model import MlxModel, load_model
from proxy_inference_engine.runners.mlx.runner import MlxRunner, Settings
from tests import tiny

WRITERS: dict[str, Callable[[Path], Path]] = {
    "llama": tiny.write_llama,
    "qwen3": tiny.write_qwen3,
    "qwen3_moe": tiny.write_qwen3_moe,
    "quantised": tiny.write_quantised,
    "gemma3_text": tiny.write_gemma3_text,
    "lfm2": tiny.write_lfm2,
    "qwen3_next": tiny.write_qwen3_next,
}
SNAPSHOTS = ("gemma3_text", "lfm2", "qwen3_next")  # what they remember can be copied, not cut
LANES = (Lane(3, 160), Lane(1, 320))


@cache
def folder_of(name: str, base: Path) -> Path:
    return WRITERS[name](base / name)


def load_tiny(name: str, base: Path) -> MlxModel:
    return load_model(folder_of(name, base), name)


def make_runner(
    name: str, base: Path, *, lanes: Sequence[Lane] = LANES, defers: bool = False, cache_bytes: int = 0
) -> MlxRunner:
    """A model of its own for each: what a runner does to one is not seen by others."""
    return MlxRunner(load_tiny(name, base), Settings(tuple(lanes), cache_bytes, defers))


def logits_of(loaded: MlxModel, ids: Sequence[int]) -> NDArray[np.float32]:
    """Of the bare model after each token, in one pass: (tokens, vocabulary)."""
    found: NDArray[np.float32] = np.array(loaded.model(mx.array([list(ids)])).astype(mx.float32))[0]
    return found


def greedy(loaded: MlxModel, ids: Sequence[int], num_tokens: int) -> list[int]:
    """What a plain loop over mlx-lm's own caches says, without ever ending."""
    caches = make_prompt_cache(loaded.model)
    ends = mx.array(sorted(loaded.end_ids))
    said: list[int] = []
    new = list(ids)
    for _ in range(num_tokens):
        logits = loaded.model(mx.array([new]), cache=caches)[0, -1]
        logits[ends] = -mx.inf
        new = [int(np.array(logits).argmax())]
        said += new
    return said
