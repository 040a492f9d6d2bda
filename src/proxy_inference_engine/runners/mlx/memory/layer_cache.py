"""The cache classes of mlx-lm that a slot may hold: how to copy one, and when one can go back. Knows no slots.

What is sound, class by class (https://github.com/ml-explore/mlx-lm/blob/main/mlx_lm/models/cache.py):

- KVCache: holds every token, so it can go back to any.
- RotatingKVCache: holds the last tokens; it can go back until the window has filled, not after.
- ChunkedKVCache: likewise, until it has dropped its first token.
- ArraysCache: one state that every token changes; it never goes back.
- CacheList: as the least able of its parts.
- Others are refused: their `trim` leaves tokens behind, or they cannot be made from their state.
"""

from collections.abc import Callable
from copy import copy
from typing import Any, cast

import mlx.core as mx
from mlx.utils import tree_flatten
from mlx_lm.models.cache import (
    ArraysCache,
    BatchRotatingKVCache,
    CacheList,
    ChunkedKVCache,
    KVCache,
    RotatingKVCache,
)

LayerCache = Any  # mlx-lm's classes are untyped and share no useful base

_KNOWN = (KVCache, RotatingKVCache, ChunkedKVCache, ArraysCache)


def unknown_class(cache: LayerCache) -> str | None:
    """The name of the first class in it that is not known here."""
    if type(cache) is CacheList:
        return next((name for name in map(unknown_class, cache.caches) if name is not None), None)
    return None if type(cache) in _KNOWN else type(cache).__name__


def num_bytes(caches: list[LayerCache]) -> int:
    return sum(array.nbytes for array in arrays(caches))


def arrays(caches: list[LayerCache]) -> list[mx.array]:
    leaves = cast(list[tuple[str, Any]], tree_flatten([cache.state for cache in caches]))
    return [leaf for _, leaf in leaves if isinstance(leaf, mx.array)]


def can_go_back(cache: LayerCache) -> bool:
    if isinstance(cache, CacheList):
        return all(can_go_back(part) for part in cache.caches)
    if isinstance(cache, RotatingKVCache):
        return bool(cache.offset < cache.max_size)
    if isinstance(cache, ChunkedKVCache):
        return bool(cache.start_position == 0)
    return isinstance(cache, KVCache)


def alias(cache: LayerCache) -> LayerCache:
    """Another cache of the same content; writing into one leaves the other as it is.

    The buffers are shared until then. Arrays are written to by name, so each cache needs arrays of its own.
    """
    return _changed(cache, mx.array)


def compact_copy(cache: LayerCache) -> LayerCache:
    """A copy of a cache in buffers that hold nothing else. Only ordered, not computed yet."""
    if isinstance(cache, CacheList):
        return CacheList(*(compact_copy(part) for part in cache.caches))
    copied = alias(cache)
    if not isinstance(cache, ArraysCache):
        _shrink(copied)
    # Unlike a slice, the result of a computation does not keep what it was made of.
    return _changed(copied, lambda array: mx.where(mx.array(True), array, array))


def merge(caches: list[LayerCache]) -> LayerCache:
    """One cache of several sequences, of one layer."""
    return type(caches[0]).merge(caches)


def extract(merged: LayerCache, index: int) -> LayerCache:
    """One sequence's cache out of a merged one. Waits for the device."""
    if isinstance(merged, CacheList):
        return CacheList(*(extract(part, index) for part in merged.caches))
    if merged.empty():  # a layer that never uses its cache
        return RotatingKVCache(merged.max_size) if isinstance(merged, BatchRotatingKVCache) else KVCache()
    return merged.extract(index)


def can_merge(cache: LayerCache) -> bool:
    if isinstance(cache, CacheList):
        return all(can_merge(part) for part in cache.caches)
    # mlx-lm merges windows as if they kept nothing of the beginning.
    return hasattr(cache, "merge") and getattr(cache, "keep", 0) == 0


def _shrink(cache: LayerCache) -> None:
    """Cut off the room for further tokens, and of a full window what the next token would push out."""
    if cache.keys is None:
        return
    start, stop = 0, cache.keys.shape[2]
    if isinstance(cache, RotatingKVCache):
        if cache.offset < stop:
            stop = cache.offset
        elif cache.keep == 0 and cache._idx == stop > cache.max_size:
            start, cache._idx = stop - cache.max_size, cache.max_size
    else:
        stop = cache.offset - (cache.start_position if isinstance(cache, ChunkedKVCache) else 0)
    cache.keys, cache.values = cache.keys[..., start:stop, :], cache.values[..., start:stop, :]


def _changed(cache: LayerCache, change: Callable[[mx.array], mx.array]) -> LayerCache:
    """A cache like this one, each of its arrays changed."""
    twin = copy(cache)
    for name, value in vars(cache).items():
        setattr(twin, name, _changed_value(value, change))
    return twin


def _changed_value(value: Any, change: Callable[[mx.array], mx.array]) -> Any:
    if isinstance(value, mx.array):
        return change(value)
    if isinstance(value, list | tuple):
        return type(value)(_changed_value(item, change) for item in value)
    return _changed(value, change) if hasattr(value, "state") else value
