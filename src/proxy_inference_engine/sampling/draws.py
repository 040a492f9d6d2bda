"""Random numbers by key and position, and the token that one falls on."""

import math
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from proxy_inference_engine.sampling.filters import Weights

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_STREAMS_PER_POSITION = 4
_BLOCK = 256
_NUCLEUS_FLOOR = 1e-4  # a probability above which the nucleus lies at most steps
_MAX_CANDIDATES = 4096


class RandomStream(IntEnum):
    """Independent numbers for one position."""

    TOKEN = 0
    XTC = 1


def stream_key(seed: int, choice: int) -> int:
    """What `uniform` is keyed by: fixed for the life of a choice."""
    return _mix(_mix(seed & _MASK) + (choice + 1) * _GOLDEN & _MASK)


def uniform(key: int, position: int, stream: RandomStream = RandomStream.TOKEN) -> float:
    """A number in [0, 1) with 53 random bits."""
    counter = position * _STREAMS_PER_POSITION + stream + 1
    return (_mix(key + counter * _GOLDEN & _MASK) >> 11) * 2.0**-53


def draw(weights: Weights, number: float) -> int:
    """The index at which the running sum of the weights passes `number` of their total; never one of weight 0.

    In the order of ids, so that noise in the logits moves the borders a little but never reorders the tokens.
    """
    if weights.size <= 2 * _BLOCK:
        return _locate(weights, number).item
    return draw_by_blocks(weights, block_sums(weights), number)


def block_sums(weights: Weights) -> Weights:
    """Summing blocks and then looking into one of them costs a tenth of a running sum over the vocabulary."""
    num_even = weights.size // _BLOCK * _BLOCK
    sums: Weights = np.add.reduce(weights[:num_even].reshape(-1, _BLOCK), axis=1)
    if num_even < weights.size:
        sums = np.append(sums, np.add.reduce(weights[num_even:]))
    return sums


def draw_by_blocks(weights: Weights, sums: Weights, number: float) -> int:
    """What `draw` says, where the sums are known."""
    block = _locate(sums, number)
    start = block.item * _BLOCK
    return start + _locate(weights[start : start + _BLOCK], block.rest).item


def draw_nucleus(weights: Weights, total: float, share: float, number: float) -> int | None:
    """The most common draw in one go, after `top_p` and nothing else: the token that `number` falls on among the most
    likely that have `share` of the total together.

    None where the long way is needed, `filters.top_p` and `draw`: many candidates, or equals at the border of which
    only some belong. After a forward pass no code is in the caches: every call costs, those of NumPy's functions in
    Python most of all. So this has few of them, and methods and ufuncs only (`docs/log.md`).
    """
    candidates = (weights >= _NUCLEUS_FLOOR * total).nonzero()[0]
    if candidates.size > _MAX_CANDIDATES:
        return None
    found = weights.take(candidates)
    ordered = found.copy()
    ordered.sort()
    ordered = ordered[::-1]
    last = int(ordered.cumsum(dtype=np.float64).searchsorted(share * total))
    if last >= ordered.size:
        return None
    kept = (found >= ordered[last]).nonzero()[0]
    if kept.size > last + 1:
        return None
    sums = found.take(kept).cumsum(dtype=np.float64)
    index = int(sums.searchsorted(number * float(sums[-1]), side="right"))
    return int(candidates[kept[index]]) if index < kept.size else None


class _Place(NamedTuple):
    item: int
    rest: float  # how far into that item the number fell, in [0, 1]


def _locate(weights: Weights, number: float) -> _Place:
    sums = weights.cumsum(dtype=np.float64)
    total = float(sums[-1])
    target = min(number * total, math.nextafter(total, 0.0))  # rounding must not lead past the end
    index = int(sums.searchsorted(target, side="right"))
    before = float(sums[index - 1]) if index else 0.0
    return _Place(index, (target - before) / (float(sums[index]) - before))


def _mix(x: int) -> int:
    """The output function of splitmix64, https://prng.di.unimi.it/splitmix64.c"""
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & _MASK
    return x ^ (x >> 31)
