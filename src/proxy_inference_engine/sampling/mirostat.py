"""Mirostat: keeps the surprise of a text near a target, by what the tokens so far surprised (arXiv:2007.14966).

In place of `top_k`, `top_p` and their like. Knows weights, no ids.
"""

import math

import numpy as np

from proxy_inference_engine.sampling.filters import Indices, Weights, top_k
from proxy_inference_engine.types import Sampling

_NUM_FITTED = 100  # most likely tokens from which version 1 estimates how the others fall off


class Mirostat:
    """`keep` what may be drawn, then `observe` how surprising the drawn one was."""

    def __init__(self, sampling: Sampling) -> None:
        assert sampling.mirostat in (1, 2)
        self._version = sampling.mirostat
        self._target = sampling.mirostat_tau
        self._rate = sampling.mirostat_eta
        self._most = 2 * sampling.mirostat_tau  # bits of surprise that are let through

    def keep(self, weights: Weights) -> Indices:
        """The tokens that do not surprise too much; at least the most likely."""
        if self._version == 1:
            return top_k(weights, self._num_kept(weights))
        floor = 2.0 ** -min(max(self._most, 0.0), 100.0) * float(weights.sum())
        kept = np.flatnonzero(weights >= floor)
        return kept if kept.size else top_k(weights, 1)

    def observe(self, share: float) -> None:
        """The drawn token had this share of what was kept."""
        surprise = -math.log2(max(share, 1e-30))
        self._most -= self._rate * (surprise - self._target)

    def _num_kept(self, weights: Weights) -> int:
        """How many give the surprise, if shares fall off as those of the most likely do: by a power of the rank."""
        best = weights[top_k(weights, _NUM_FITTED)].astype(np.float64)
        best = np.sort(best[best > 0])[::-1]
        if best.size < 2:
            return 1
        ranks = np.arange(1, best.size + 1, dtype=np.float64)
        steps, falls = np.log(ranks[1:] / ranks[:-1]), np.log(best[:-1] / best[1:])
        power = float((steps * falls).sum() / (steps * steps).sum())
        excess = power - 1
        if power <= 0 or abs(excess) < 1e-6:
            return int(weights.size)
        with np.errstate(all="ignore"):
            mass = excess * np.exp2(min(self._most, 100.0)) / (1 - np.float64(weights.size) ** -excess)
            number = np.float64(mass) ** (1 / power)
        return max(1, int(min(number, weights.size))) if np.isfinite(number) else int(weights.size)
