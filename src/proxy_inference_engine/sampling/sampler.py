"""Chooses the next token of one choice from its logits. Knows neither batches nor text nor when to stop."""

import math
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from proxy_inference_engine.runners.base import Logits
from proxy_inference_engine.sampling import filters
from proxy_inference_engine.sampling.dry import DryPenalty
from proxy_inference_engine.sampling.filters import Indices, Weights
from proxy_inference_engine.sampling.nucleus import draw_nucleus
from proxy_inference_engine.sampling.penalties import CountPenalty, Penalty, RepetitionPenalty
from proxy_inference_engine.sampling.randomness import Stream, draw, stream_key, uniform
from proxy_inference_engine.types import Sampling

Allowed = NDArray[np.bool_]

_MAX_LISTED = 4096
_MIN_TOTAL, _MAX_TOTAL = 1e-20, 1e30  # sums of exponentials that are well within float32
_MAX_SHARPNESS = 1e30  # 1 / temperature must stay a float32, or 0 * inf would make a NaN of the best logit


class InvalidLogits(Exception):
    """The model gave NaN or infinity, or no token is left to choose from. Ends one request only."""


class Sampler:
    """All the state of choosing tokens for one choice; the result depends on it and on the arguments alone.

    The steps, in this order, each on what the one before left:

    1. `logit_bias` is added.
    2. Banned ids become impossible, and what `allowed` leaves out.
    3. `repetition_penalty` (prompt and output), then `frequency_penalty` and `presence_penalty` (output).
    4. DRY (prompt and output).
    5. `temperature` divides; at 0 the highest logit wins, the lowest id among equals, and the rest is skipped.
    6. `top_k` keeps the k most likely.
    7. `top_p` keeps the fewest most likely whose share reaches p.
    8. `min_p` keeps those with at least this share of the most likely one's probability.
    9. XTC: with `xtc_probability`, removes all at or above `xtc_threshold` but the least likely of them.
    10. The draw: inverse cumulative distribution, in the order of ids, of a number keyed by (seed, choice, position).

    Probabilities are renormalised between the steps; equals rank by id, the lowest first.
    """

    def __init__(self, sampling: Sampling, *, choice: int, prompt_ids: Sequence[int], num_tokens: int) -> None:
        assert all(0 <= token_id < num_tokens for token_id in sampling.logit_bias)
        self.sampling = sampling
        self._num_tokens = num_tokens
        self._key = stream_key(sampling.seed, choice)
        self._bias = _bias(sampling)
        self._penalties = _penalties(sampling, prompt_ids)
        self._is_plain = self._bias is None and not self._penalties
        self._sharpness = min(1 / sampling.temperature, _MAX_SHARPNESS) if sampling.temperature > 0 else 0.0
        is_nucleus = 0 < sampling.top_p < 1 and sampling.top_k == 0 == sampling.min_p == sampling.xtc_probability
        self._nucleus = sampling.top_p if is_nucleus else None  # the only thing that filters

    def sample(
        self, logits: Logits, position: int, banned: Collection[int] = (), allowed: Allowed | None = None
    ) -> int:
        """The token for `position` of the whole sequence; `logits` stay as they are. Raises InvalidLogits.

        `allowed` (vocabulary,) is True where a grammar lets a token pass. It never leaves nothing; where only banned
        ids pass, they are let through.
        """
        assert logits.shape == (self._num_tokens,)
        if self._sharpness == 1 and self._is_plain and allowed is None:
            found = self._sample_plainly(logits, position, banned)
            if found is not None:
                return found
        with np.errstate(over="ignore"):  # what is too small for float32 is as impossible as -inf
            return self._sample(logits, position, banned, allowed)

    def _sample_plainly(self, logits: Logits, position: int, banned: Collection[int]) -> int | None:
        """The same where nothing changes the logits and their exponentials stay in range: with two passes over the
        vocabulary less, since the best need not be known before. None where they do not, or some are no numbers; the
        engine silences NumPy's warning for its whole thread, which costs as much as a pass when done here."""
        weights = np.exp(logits)
        if banned:
            weights[list(banned)] = 0
        total = float(np.add.reduce(weights))
        if not _MIN_TOTAL < total < _MAX_TOTAL:
            return None
        return self._draw(weights, None, position, total)

    def _sample(self, logits: Logits, position: int, banned: Collection[int], allowed: Allowed | None) -> int:
        # Banned ids that are not the best can wait until there are weights: then the logits need no copy.
        is_late = self._is_plain and allowed is None
        adjusted, ids = self._narrow(self._adjust(logits, () if is_late else banned), logits, allowed)
        best_index = int(adjusted.argmax())
        if is_late and best_index in banned:
            is_late, adjusted = False, self._adjust(logits, banned)
            best_index = int(adjusted.argmax())
        best = float(adjusted[best_index])
        if not math.isfinite(best):  # argmax finds a NaN before anything else
            raise InvalidLogits(f"the highest logit is {best}")
        if self._sharpness == 0:
            return best_index if ids is None else int(ids[best_index])
        weights = self._weigh(adjusted, best)
        if is_late and banned:
            weights[list(banned)] = 0
        return self._draw(weights, ids, position)

    def number(self, position: int) -> float:
        return uniform(self._key, position)

    @property
    def counts(self) -> bool:
        """Whether tokens that were chosen matter to it."""
        return bool(self._penalties)

    def accept(self, token_id: int) -> None:
        """Take a chosen token into the histories of the penalties."""
        for penalty in self._penalties:
            penalty.accept(token_id)

    def _adjust(self, logits: Logits, banned: Collection[int]) -> Logits:
        """Steps 1 to 4, on a copy where there is anything to do."""
        if self._is_plain and not banned:
            return logits
        adjusted = logits.copy()
        if self._bias is not None:
            adjusted[self._bias.ids] += self._bias.values
        if banned:
            adjusted[list(banned)] = -np.inf
        for penalty in self._penalties:
            penalty.apply(adjusted)
        return adjusted

    def _narrow(self, adjusted: Logits, logits: Logits, allowed: Allowed | None) -> "_Narrowed":
        """The logits of what a grammar allows: few of them as a short list, so that the rest costs next to nothing."""
        if allowed is None:
            return _Narrowed(adjusted, None)
        if np.count_nonzero(allowed) <= _MAX_LISTED:
            ids = np.flatnonzero(allowed)
            listed = adjusted[ids]
            if ids.size and listed.max() == -np.inf:
                listed = logits[ids]
            return _Narrowed(listed, ids)
        return _Narrowed(np.where(allowed, adjusted, np.float32(-np.inf)), None)

    def _weigh(self, logits: Logits, best: float) -> Weights:
        """Step 5: probabilities but for a factor; the best has weight 1."""
        weights = logits - np.float32(best)
        if self._sharpness != 1:
            weights *= np.float32(self._sharpness)
        np.exp(weights, out=weights)
        return weights

    def _draw(self, weights: Weights, ids: Indices | None, position: int, total: float | None = None) -> int:
        """Steps 6 to 10; `total` is the sum of the weights, where it is known."""
        number = self.number(position)
        index: int | None
        if self._nucleus is not None:
            total = float(np.add.reduce(weights)) if total is None else total
            index = draw_nucleus(weights, total, self._nucleus, number)
            if index is not None:
                return index if ids is None else int(ids[index])
        candidates = self._filter(_Candidates(weights, ids), position, total)
        index = draw(candidates.weights, number)
        return index if candidates.ids is None else int(candidates.ids[index])

    def _filter(self, candidates: "_Candidates", position: int, total: float | None) -> "_Candidates":
        """Steps 6 to 9."""
        sampling = self.sampling
        if sampling.top_k > 0:
            candidates, total = candidates.keep(filters.top_k(candidates.weights, sampling.top_k)), None
        if sampling.top_p < 1:
            candidates = candidates.keep(filters.top_p(candidates.weights, sampling.top_p, total))
        if sampling.min_p > 0:
            candidates = candidates.keep(filters.min_p(candidates.weights, sampling.min_p))
        if sampling.xtc_probability > 0 and uniform(self._key, position, Stream.XTC) < sampling.xtc_probability:
            candidates.weights[filters.xtc(candidates.weights, sampling.xtc_threshold)] = 0
        return candidates


class _Narrowed(NamedTuple):
    logits: Logits
    ids: Indices | None  # of the logits; None: the whole vocabulary


class _Candidates(NamedTuple):
    """Tokens still in the draw, in the order of ids."""

    weights: Weights
    ids: Indices | None = None  # None: the whole vocabulary

    def keep(self, indices: Indices) -> "_Candidates":
        return _Candidates(self.weights.take(indices), indices if self.ids is None else self.ids.take(indices))


class _Bias(NamedTuple):
    ids: NDArray[np.intp]
    values: NDArray[np.float32]


def _bias(sampling: Sampling) -> _Bias | None:
    if not sampling.logit_bias:
        return None
    ids = np.array(list(sampling.logit_bias), dtype=np.intp)
    return _Bias(ids, np.array(list(sampling.logit_bias.values()), dtype=np.float32))


def _penalties(sampling: Sampling, prompt_ids: Sequence[int]) -> tuple[Penalty, ...]:
    """Those that do something, in the order in which they apply."""
    penalties: list[Penalty] = []
    if sampling.repetition_penalty != 1:
        penalties.append(RepetitionPenalty(sampling.repetition_penalty, sampling.repetition_window, prompt_ids))
    if sampling.frequency_penalty != 0 or sampling.presence_penalty != 0:
        penalties.append(CountPenalty(sampling.frequency_penalty, sampling.presence_penalty))
    if sampling.dry_multiplier > 0:
        penalties.append(DryPenalty(sampling, prompt_ids))
    return tuple(penalties)
