"""Random numbers that depend on (seed, choice, position) alone, and the draw of a token with one of them.

A counter-based generator in plain integers: no state, so neither batching nor preemption can disturb it.
"""

import math
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_STREAMS_PER_POSITION = 4
_BLOCK = 256


class Stream(IntEnum):
    """Independent numbers for one position."""

    TOKEN = 0
    XTC = 1


def stream_key(seed: int, choice: int) -> int:
    """What `uniform` is keyed by: fixed for the life of a choice."""
    return _mix(_mix(seed & _MASK) + (choice + 1) * _GOLDEN & _MASK)


def uniform(key: int, position: int, stream: Stream = Stream.TOKEN) -> float:
    """A number in [0, 1) with 53 random bits."""
    counter = position * _STREAMS_PER_POSITION + stream + 1
    return (_mix(key + counter * _GOLDEN & _MASK) >> 11) * 2.0**-53


def draw(weights: NDArray[np.float32], number: float) -> int:
    """The index at which the running sum of the weights passes `number` of their total; never one of weight 0.

    In the order of ids, so that noise in the logits moves the borders a little but never reorders the tokens.
    """
    if weights.size <= 2 * _BLOCK:
        return _locate(weights, number).item
    # Summing blocks and then looking into one of them costs a tenth of a running sum over the vocabulary.
    num_even = weights.size // _BLOCK * _BLOCK
    sums = np.append(weights[:num_even].reshape(-1, _BLOCK).sum(axis=1), weights[num_even:].sum())
    block = _locate(sums, number)
    start = block.item * _BLOCK
    return start + _locate(weights[start : start + _BLOCK], block.rest).item


class _Place(NamedTuple):
    item: int
    rest: float  # how far into that item the number fell, in [0, 1]


def _locate(weights: NDArray[np.float32], number: float) -> _Place:
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
