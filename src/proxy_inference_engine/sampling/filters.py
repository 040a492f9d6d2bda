"""Which tokens stay in the draw: pure functions over non-negative weights, to be read as unnormalised probabilities.

They return indices in ascending order and never change their input. Equal weights rank by index, the lowest first.
Nothing here knows requests or randomness. After a forward pass no code is in the caches, and every function of NumPy's
that is written in Python costs as much as a pass over the vocabulary: so methods and ufuncs are called instead.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from proxy_inference_engine.types import Sampling

Weights = NDArray[np.float32]
Indices = NDArray[np.intp]

_NUM_COLUMNS = 1024
_FLOORS = (1e-4, 3e-5, 1e-5, 3e-6, 1e-6, 0.0)  # probabilities; at most steps the nucleus lies above the first
_MAX_SORTED = 1024
_MAX_ROUNDS = 16
_SMALLEST = float(np.finfo(np.float32).tiny)
_sum = np.add.reduce


class Remaining(NamedTuple):
    """Tokens still in the draw, in the order of ids."""

    weights: Weights
    ids: Indices | None = None  # None: the whole vocabulary

    def keep(self, indices: Indices) -> "Remaining":
        return Remaining(self.weights.take(indices), indices if self.ids is None else self.ids.take(indices))


def narrowed(remaining: Remaining, sampling: Sampling, total: float | None) -> Remaining:
    """What `top_k`, `typical_p`, `top_p` and `min_p` leave, in this order; `total` is the sum where it is known."""
    if sampling.top_k > 0:
        remaining, total = remaining.keep(top_k(remaining.weights, sampling.top_k)), None
    if sampling.typical_p < 1:
        remaining, total = remaining.keep(typical_p(remaining.weights, sampling.typical_p)), None
    if sampling.top_p < 1:
        remaining = remaining.keep(top_p(remaining.weights, sampling.top_p, total))
    if sampling.min_p > 0:
        remaining = remaining.keep(min_p(remaining.weights, sampling.min_p))
    return remaining


def top_k(values: NDArray[np.float32], num: int) -> Indices:
    """The `num` largest (or all, when there are fewer); any values, not only weights."""
    if num >= values.size:
        return np.arange(values.size)
    if num > _NUM_COLUMNS or values.size < 2 * _NUM_COLUMNS:
        return _largest(values, _kth_largest(values, num), num)
    # The k-th largest of any k or more disjoint groups' maxima is a lower bound of the k-th largest of all.
    rows = values[: values.size // _NUM_COLUMNS * _NUM_COLUMNS].reshape(-1, _NUM_COLUMNS)
    candidates = np.flatnonzero(values >= _kth_largest(rows.max(axis=0), num))
    found = values[candidates]
    return candidates[_largest(found, _kth_largest(found, num), num)]


def top_p(weights: Weights, share: float, total: float | None = None) -> Indices:
    """The fewest most likely tokens that together have at least `share` of the total; at least one."""
    total = float(_sum(weights)) if total is None else total
    target = max(share * total, _SMALLEST)
    for floor in _FLOORS:
        candidates = (weights >= floor * total).nonzero()[0]
        found = weights.take(candidates)
        if _sum(found) >= target:
            break
    smallest, num = _nucleus(found, target)
    return candidates.take(_largest(found, smallest, num))


def typical_p(weights: Weights, share: float) -> Indices:
    """The fewest tokens that together have `share` of the total, those first that surprise about as much as the whole
    distribution does on average; at least one."""
    total = float(_sum(weights))
    there = weights.nonzero()[0]
    surprises = -np.log(weights.take(there) / total, dtype=np.float64)
    mean = float(_sum(weights.take(there) * surprises)) / total
    order = there.take(np.abs(surprises - mean).argsort(kind="stable"))
    num = int(weights.take(order).cumsum(dtype=np.float64).searchsorted(share * total)) + 1
    kept: Indices = order[:num]
    kept.sort()
    return kept


def top_n_sigma(logits: NDArray[np.float32], num: float) -> NDArray[np.bool_]:
    """False where a logit is more than so many standard deviations below the highest; impossible ones do not count."""
    spread = float(logits[np.isfinite(logits)].std())
    return np.asarray(logits >= float(logits.max()) - num * spread)


def min_p(weights: Weights, share: float) -> Indices:
    """The tokens with at least `share` of the largest weight."""
    return np.flatnonzero(weights >= share * float(weights.max()))


def xtc(weights: Weights, threshold: float) -> Indices:
    """The tokens to take out: all that have at least `threshold` of the total, except the least likely one."""
    floor = max(threshold * float(weights.sum()), _SMALLEST)
    above = np.flatnonzero(weights >= floor)
    if above.size < 2:
        return above[:0]
    least = above.size - 1 - int(weights[above][::-1].argmin())
    return np.delete(above, least)


class _Band(NamedTuple):
    """The weights among which the border of the nucleus lies, and what is above all of them.

    largest … | band … | … smallest       mass_above < target <= mass_above + sum(band)
    """

    weights: Weights
    num_above: int
    mass_above: float


class _Nucleus(NamedTuple):
    smallest: float
    num: int


def _nucleus(weights: Weights, target: float) -> _Nucleus:
    """The smallest weight and the number of the fewest largest weights whose sum reaches `target`.

    Sorting a whole vocabulary takes a millisecond, so only a narrow band is sorted.
    """
    band = _narrow(_Band(weights, 0, 0.0), target)
    ordered = band.weights.copy()
    ordered.sort()
    ordered = ordered[::-1]
    sums = ordered.cumsum(dtype=np.float64)
    last = min(int(sums.searchsorted(target - band.mass_above)), ordered.size - 1)
    return _Nucleus(float(ordered[last]), band.num_above + last + 1)


def _narrow(band: _Band, target: float) -> _Band:
    """Halve the band until it is quickly sorted: a quickselect by mass."""
    for _ in range(_MAX_ROUNDS):
        rest, num_above, mass_above = band
        if rest.size <= _MAX_SORTED:
            break
        is_high = rest >= float(rest.mean())
        high = rest.take(is_high.nonzero()[0])
        mass = mass_above + float(_sum(high))
        if high.size in (0, rest.size):  # all are equal
            break
        if mass >= target:
            band = _Band(high, num_above, mass_above)
        else:
            band = _Band(rest.take((~is_high).nonzero()[0]), num_above + high.size, mass)
    return band


def _kth_largest(values: NDArray[np.float32], k: int) -> float:
    return float(np.partition(values, values.size - k)[values.size - k])


def _largest(values: NDArray[np.float32], smallest: float, num: int) -> Indices:
    """The `num` largest, of which `smallest` is the last."""
    kept = (values >= smallest).nonzero()[0]
    surplus = kept.size - num
    if surplus == 0:
        return kept
    equal = (values[kept] == smallest).nonzero()[0]
    return np.delete(kept, equal[equal.size - surplus :])
