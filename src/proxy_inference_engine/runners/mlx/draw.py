"""Drawing one token per row on the device, by the steps of `sampling/sampler.py`: arrays in, arrays out, no waiting.

No vocabulary is sorted, because that costs a GPU more than all the rest. Knows no requests.
"""

from collections.abc import Callable
from typing import NamedTuple

import mlx.core as mx

MAX_NARROW = 64  # of top_k

_BLOCK = 128  # divides most vocabularies
_WEIGHT_BITS = 30  # a weight is at most 1
_MIN_EXPONENT = -87.0  # what is below has no normal float32, and devices differ in what they make of it
_MAX_NUMBER = 1 - 2.0**-22
_SMALLEST = 1.2e-38


class DrawSettings(NamedTuple):
    """What each row wants of the draw, as arrays (rows, 1)."""

    sharpness: mx.array  # 1 / temperature
    top_k: mx.array  # 0: off
    top_p: mx.array  # 1: off
    min_p: mx.array
    number: mx.array  # from [0, 1)


class Border(NamedTuple):
    """Where a ranking by weight is cut: what is above `smallest` stays, and the first `num_equal` that equal it."""

    smallest: mx.array  # (rows, 1)
    num_equal: mx.array


class Candidates(NamedTuple):
    """A part of a vocabulary, in the order of ids."""

    logits: mx.array  # (rows, candidates)
    block_ids: mx.array  # of every _BLOCK of them

    def ids(self, indices: mx.array) -> mx.array:
        """What indices (rows,) into the candidates mean."""
        block_ids = mx.take_along_axis(self.block_ids, indices[:, None] // _BLOCK, axis=-1).squeeze(1)
        return block_ids * _BLOCK + indices % _BLOCK


def narrow(logits: mx.array) -> Candidates:
    """The blocks with the highest logits: they hold the MAX_NARROW highest and make the rest a fraction of the work."""
    blocks = _blocks(logits, -mx.inf)
    order = mx.argsort(-blocks.max(axis=-1), axis=-1)[:, :MAX_NARROW]
    block_ids = mx.sort(order, axis=-1).astype(mx.int32)
    taken = mx.take_along_axis(blocks, block_ids[:, :, None], axis=1)
    return Candidates(taken.reshape(logits.shape[0], -1), block_ids)


def weigh(logits: mx.array, best: mx.array, sharpness: mx.array) -> mx.array:
    """Probabilities but for a factor; the best has weight 1."""
    exponents = (logits - best) * sharpness
    return mx.where(exponents < _MIN_EXPONENT, 0.0, mx.exp(exponents))


def cut(weights: mx.array, settings: DrawSettings, *, has_top_k: bool, has_top_p: bool) -> Border:
    """The border of top_k and top_p in every row; `has_…` says whether any row wants it."""
    border = Border(mx.full(settings.top_k.shape, -1.0), mx.zeros_like(settings.top_k))
    total = weights.sum(axis=-1, keepdims=True)
    if has_top_k:
        found = _cut_by_count(weights, settings.top_k)
        border = _where(settings.top_k > 0, found, border)
        total = _mass(weights, weights > border.smallest) + mx.maximum(border.smallest, 0.0) * border.num_equal
    if has_top_p:
        # The most likely of all are the most likely of the k most likely: only their total tells that k came first.
        found = _cut_by_mass(weights, mx.maximum(settings.top_p * total, _SMALLEST))
        border = _where(settings.top_p < 1, _narrower(found, border), border)
    return border


def _cut_by_count(weights: mx.array, num: mx.array) -> Border:
    smallest = _reach(weights, lambda is_kept: is_kept.sum(axis=-1, keepdims=True) >= num)
    return Border(smallest, num - (weights > smallest).sum(axis=-1, keepdims=True))


def _cut_by_mass(weights: mx.array, target: mx.array) -> Border:
    smallest = _reach(weights, lambda is_kept: _mass(weights, is_kept) >= target)
    missing = (target - _mass(weights, weights > smallest)) / mx.maximum(smallest, _SMALLEST)
    return Border(smallest, mx.clip(mx.ceil(missing), 1, weights.shape[-1]).astype(mx.int32))


def _reach(weights: mx.array, is_enough: Callable[[mx.array], mx.array]) -> mx.array:
    """The largest weight such that all at least as heavy are enough, (rows, 1): found bit by bit."""
    keys = weights.view(mx.int32)  # in the order of the weights, since none is negative
    found = mx.zeros((weights.shape[0], 1), dtype=mx.int32)
    for bit in reversed(range(_WEIGHT_BITS)):
        tried = found + (1 << bit)
        found = mx.where(is_enough(keys >= tried), tried, found)
    return found.view(mx.float32)


def _mass(weights: mx.array, is_counted: mx.array) -> mx.array:
    return mx.where(is_counted, weights, 0.0).sum(axis=-1, keepdims=True)


def _narrower(one: Border, other: Border) -> Border:
    num_equal = mx.where(one.smallest == other.smallest, mx.minimum(one.num_equal, other.num_equal), one.num_equal)
    return _where(one.smallest >= other.smallest, Border(one.smallest, num_equal), other)


def draw(weights: mx.array, settings: DrawSettings, border: Border | None) -> mx.array:
    """The index at which the running sum of what is kept passes `number` of its total, (rows,)."""
    blocks = _blocks(weights, 0.0)  # (rows, blocks, _BLOCK)
    kept = _kept(blocks, border) if border is not None else mx.array(True)
    blocks = mx.where(kept & (blocks >= settings.min_p[:, :, None]), blocks, 0.0)
    block, rest = _locate(blocks.sum(axis=-1), mx.minimum(settings.number, _MAX_NUMBER))
    inside = mx.take_along_axis(blocks, block[:, :, None], axis=1).squeeze(1)  # (rows, _BLOCK)
    index, _ = _locate(inside, rest)
    return (block * _BLOCK + index).squeeze(1)


def _kept(blocks: mx.array, border: Border) -> mx.array:
    smallest = border.smallest[:, :, None]
    equal = blocks == smallest
    ranks = mx.cumsum(equal.astype(mx.int32), axis=-1)
    num_equal = ranks[:, :, -1]
    num_before = mx.cumsum(num_equal, axis=-1) - num_equal
    return (blocks > smallest) | (equal & (ranks + num_before[:, :, None] <= border.num_equal[:, :, None]))


class _Place(NamedTuple):
    item: mx.array  # (rows, 1)
    rest: mx.array  # how far into that item the number fell, in [0, 1]


def _locate(weights: mx.array, number: mx.array) -> _Place:
    """Where the running sum passes `number` of the total, in every row; never an item of weight 0."""
    sums = mx.cumsum(weights, axis=-1)
    target = number * sums[:, -1:]
    # A parallel running sum may fall by a rounding error where the weight is 0, and end below the target.
    scores = mx.where((sums > target) & (weights > 0), mx.inf, weights)
    item = mx.argmax(scores, axis=-1, keepdims=True).astype(mx.int32)
    weight = mx.take_along_axis(weights, item, axis=-1)
    before = mx.take_along_axis(sums, item, axis=-1) - weight
    rest = (target - before) / mx.maximum(weight, _SMALLEST)
    return _Place(item, mx.clip(rest, 0.0, _MAX_NUMBER))


def _blocks(values: mx.array, padding: float) -> mx.array:
    """Rows cut into blocks, (rows, blocks, _BLOCK)."""
    num_rows, size = values.shape
    missing = -size % _BLOCK
    if missing:
        values = mx.pad(values, [(0, 0), (0, missing)], constant_values=padding)
    return values.reshape(num_rows, -1, _BLOCK)


def _where(condition: mx.array, first: Border, second: Border) -> Border:
    return Border(
        mx.where(condition, first.smallest, second.smallest), mx.where(condition, first.num_equal, second.num_equal)
    )
