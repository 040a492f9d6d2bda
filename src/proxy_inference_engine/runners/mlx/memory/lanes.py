"""Which kind of KV memory a model needs: decided by the caches that mlx-lm makes for it, and proved by a trial."""

import logging
from collections.abc import Iterator

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx_lm.models.cache import KVCache, make_prompt_cache
from numpy.typing import NDArray

from proxy_inference_engine.runners.mlx.cuda.decoder import make_decoder
from proxy_inference_engine.runners.mlx.cuda.kernels import PoolShape
from proxy_inference_engine.runners.mlx.cuda.pool import KvPool, takes
from proxy_inference_engine.runners.mlx.head import OutputHead
from proxy_inference_engine.runners.mlx.memory.base import Memory
from proxy_inference_engine.runners.mlx.memory.slots import SlotMemory
from proxy_inference_engine.runners.mlx.memory.snapshots import Snapshots
from proxy_inference_engine.runners.mlx.rows import Batch, SlotRow, ordinary_ids

_log = logging.getLogger(__name__)

_TRIAL_TOKENS = 13
_MAX_DIFFERENCE = 0.15  # of what logits spread; rounding to sixteen bits makes a third of this in random weights


def make_memory(
    model: nn.Module, head: OutputHead, num_slots: int, slot_tokens: int, *, has_adapters: bool = False
) -> Memory:
    caches = make_prompt_cache(model)
    if not all(type(cache) is KVCache for cache in caches):
        return Snapshots(model, num_slots, slot_tokens)
    if mx.cuda.is_available() and not has_adapters:  # which change from pass to pass, and a pool's passes are compiled
        pool = _make_pool(model, head, num_slots, slot_tokens)
        if pool is not None:
            return pool
    return SlotMemory(model, head, len(caches))


def _make_pool(model: nn.Module, head: OutputHead, num_slots: int, slot_tokens: int) -> KvPool | None:
    """None where the model's attention is not what our kernels compute."""
    caches = make_prompt_cache(model)
    logits = head.logits(mx.array([[1, 2]]), caches, lambda hidden: hidden[:, -1:])
    keys = [cache.keys for cache in caches]
    if not takes([*(key.shape for key in keys), *(cache.values.shape for cache in caches)]):
        return None
    shape = PoolShape(len(caches), num_slots, keys[0].shape[1], slot_tokens, keys[0].shape[3])
    _log.info("compiling kernels for this device")
    pool = KvPool(head, shape, keys[0].dtype)
    decoder = make_decoder(model, pool.kernels)
    trial_ids = ordinary_ids(logits.shape[-1], _TRIAL_TOKENS)
    expected = _expected(model, head, trial_ids)
    for way in (None,) if decoder is None else (decoder, None):
        pool.use(way)
        difference = _trial(pool, trial_ids, expected)
        if difference <= _MAX_DIFFERENCE:
            pool.restore(0, [pool.export(0, 0, 1)], 1)  # these too are compiled now, and not when a client waits
            return pool
        _log.warning("what our kernels compute differs by %.2f from the model, so they are not used", difference)
    pool.close()
    return None


def _trial(pool: KvPool, trial_ids: list[int], expected: NDArray[np.float32]) -> float:
    """How much what the pool computes differs from the model, as a part of what logits spread."""
    try:
        found = np.concatenate(list(_found(pool, trial_ids)))
    except Exception:
        _log.exception("our kernels could not compute this model")
        return float("inf")
    difference = float(np.sqrt(np.square(found - expected).mean()) / expected.std())
    return difference if np.isfinite(difference) else float("inf")


def _found(pool: KvPool, trial_ids: list[int]) -> Iterator[NDArray[np.float32]]:
    """Logits after each piece: two of a prompt that is computed alone, then two batches."""
    start = 0
    for ids in _pieces(trial_ids):
        if start < 2 * len(trial_ids):
            (logits,) = pool.forward([SlotRow(0, start, mx.array(ids), 1)])
            mx.eval(pool.started())
        else:
            numbers = (np.array([n], np.int32) for n in (0, start, start, len(ids)))
            logits = pool.forward_batch(Batch(mx.array([ids]), *numbers))
        yield np.array(logits.astype(mx.float32))
        start += len(ids)


def _expected(model: nn.Module, head: OutputHead, trial_ids: list[int]) -> NDArray[np.float32]:
    """What the model's own layers and caches give. MLX has their kernels ready: compiling takes seconds each."""
    caches = make_prompt_cache(model)
    found = (head.logits(mx.array([ids]), caches, lambda hidden: hidden[:, -1:]) for ids in _pieces(trial_ids))
    return np.concatenate([np.array(logits.reshape(1, -1).astype(mx.float32)) for logits in found])


def _pieces(trial_ids: list[int]) -> list[list[int]]:
    return [trial_ids, trial_ids, trial_ids[:1], trial_ids[:8]]
