"""Which kind of KV memory a model needs: decided by the caches that mlx-lm makes for it, and proved by a trial."""

import logging

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx_lm.models.cache import KVCache, make_prompt_cache

from proxy_inference_engine.runners.mlx.head import Head
from proxy_inference_engine.runners.mlx.kernels import Shape
from proxy_inference_engine.runners.mlx.memory import Memory
from proxy_inference_engine.runners.mlx.pool import Pool, takes
from proxy_inference_engine.runners.mlx.rows import Batch, SlotRow
from proxy_inference_engine.runners.mlx.slots import Slots
from proxy_inference_engine.runners.mlx.snapshots import Snapshots

_log = logging.getLogger(__name__)

_TRIAL_IDS = tuple(range(3, 16))
_MAX_DIFFERENCE = 0.15  # of what logits spread; rounding to sixteen bits makes a third of this in random weights


def make_memory(model: nn.Module, head: Head, num_slots: int, slot_tokens: int) -> Memory:
    caches = make_prompt_cache(model)
    if not all(type(cache) is KVCache for cache in caches):
        return Snapshots(model, num_slots, slot_tokens)
    if mx.cuda.is_available():
        pool = _make_pool(model, head, num_slots, slot_tokens)
        if pool is not None:
            return pool
    return Slots(model, head, len(caches))


def _make_pool(model: nn.Module, head: Head, num_slots: int, slot_tokens: int) -> Pool | None:
    """None where the model's attention is not what our kernels compute."""
    caches = make_prompt_cache(model)
    head.logits(mx.array([list(_TRIAL_IDS[:2])]), caches, lambda hidden: hidden[:, -1:])
    keys = [cache.keys for cache in caches]
    if not takes([*(key.shape for key in keys), *(cache.values.shape for cache in caches)]):
        return None
    shape = Shape(len(caches), num_slots, keys[0].shape[1], slot_tokens, keys[0].shape[3])
    pool = Pool(head, shape, keys[0].dtype)
    difference = _trial(pool, head, len(caches))
    if difference > _MAX_DIFFERENCE:
        _log.warning("the model's attention differs by %.2f in our kernels, which are not used for it", difference)
        pool.close()
        return None
    return pool


def _trial(pool: Pool, head: Head, num_layers: int) -> float:
    """How much two ways to compute the same few tokens differ, as a part of what their logits spread."""
    *prompt, last = _TRIAL_IDS
    slots = Slots(head.model, head, num_layers)
    found = []
    try:
        for memory in (pool, slots):
            memory.forward([SlotRow(0, 0, mx.array(prompt), 1)])
            mx.eval(memory.started())
            numbers = (np.array([n], np.int32) for n in (0, len(prompt), len(prompt), 1))
            found.append(np.array(memory.forward_batch(Batch(mx.array([[last]]), *numbers)).astype(mx.float32)))
    except Exception:
        _log.exception("our kernels could not compute this model")
        return float("inf")
    difference = float(np.sqrt(np.square(found[0] - found[1]).mean()) / found[1].std())
    return difference if np.isfinite(difference) else float("inf")
