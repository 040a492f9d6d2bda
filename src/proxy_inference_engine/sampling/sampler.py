"""Chooses the next token of one choice from its logits. Knows neither batches nor text nor when to stop."""

import math
import threading
from collections.abc import Collection, Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from proxy_inference_engine.runners.base import Logits
from proxy_inference_engine.sampling import filters
from proxy_inference_engine.sampling.dry import DryPenalty
from proxy_inference_engine.sampling.filters import Indices, Remaining, Weights
from proxy_inference_engine.sampling.mirostat import Mirostat
from proxy_inference_engine.sampling.penalties import CountPenalty, Penalty, RepetitionPenalty
from proxy_inference_engine.types import STEP_PARAMETERS, Sampling, Shortcut

Allowed = NDArray[np.bool_]

_OF_LOGITS = ("logit_bias", "repetition_penalty", "frequency_penalty", "presence_penalty", "dry_multiplier")
_OF_DRAW = ("seed", "temperature", *STEP_PARAMETERS)
# Where logits need no copy, because nothing of steps 1, 3 and 4 is wanted.
PLAIN = Shortcut("top_k", "top_p", "min_p", "xtc_probability", *_OF_DRAW)
# Where nothing is wanted but the draw.
BARE = Shortcut(*_OF_DRAW)
# Where of steps 5 to 12 nothing is wanted but a temperature, or that and `top_p`.
UNFILTERED = Shortcut(*_OF_LOGITS, *_OF_DRAW)
NUCLEUS = Shortcut(*_OF_LOGITS, *_OF_DRAW, "top_p")

_MAX_LISTED = 4096
_MIN_TOTAL, _MAX_TOTAL = 1e-20, 1e30  # sums of exponentials that are well within float32
_MAX_SHARPNESS = 1e30  # 1 / temperature must stay a float32, or 0 * inf would make a NaN of the best logit
_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_STREAMS_PER_POSITION = 4
_BLOCK = 256
_NUCLEUS_FLOORS = (1e-4, 3e-5)  # probabilities: at most steps the nucleus lies above the first, at nearly all above one
_MAX_CANDIDATES = 4096


class _Scratch(threading.local):
    """Room for the weights of one draw, which is over before the next begins: a new array would be a vocabulary of
    memory that no cache knows, for every token."""

    def __init__(self) -> None:
        self._weights: Weights = np.empty(0, np.float32)

    def of(self, size: int) -> Weights:
        if self._weights.size < size:
            self._weights = np.empty(size, np.float32)
        return self._weights[:size]


_scratch = _Scratch()


class InvalidLogits(Exception):
    """The model gave NaN or infinity, or no token is left to choose from. Ends one request only."""


class Sampler:
    """All the state of choosing tokens for one choice; the result depends on it and on the arguments alone.

    The steps, in this order, each on what the one before left:

    1. `logit_bias` is added.
    2. Banned ids become impossible, and what `allowed` leaves out.
    3. `repetition_penalty` (prompt and output), then `frequency_penalty` and `presence_penalty` (output).
    4. DRY (prompt and output).
    5. `top_n_sigma` keeps logits within so many standard deviations of the highest.
    6. `temperature` divides; at 0 the highest logit wins, the lowest id among equals, and the rest is skipped.
       With `dynatemp_range`, it is lower where the model is certain and higher where it is not.
    7. Mirostat keeps what does not surprise too much, in place of the next five.
    8. `top_k` keeps the k most likely.
    9. `typical_p` keeps what surprises about as much as can be expected.
    10. `top_p` keeps the fewest most likely whose share reaches p.
    11. `min_p` keeps those with at least this share of the most likely one's probability.
    12. XTC: with `xtc_probability`, removes all at or above `xtc_threshold` but the least likely of them.
    13. The draw: inverse cumulative distribution, in the order of ids, of a number keyed by (seed, choice, position).

    Probabilities are renormalised between the steps; equals rank by id, the lowest first.
    """

    def __init__(self, sampling: Sampling, *, choice: int, prompt_ids: Sequence[int], num_tokens: int) -> None:
        assert all(0 <= token_id < num_tokens for token_id in sampling.logit_bias)
        self.sampling = sampling
        self._num_tokens = num_tokens
        self._key = stream_key(sampling.seed, choice)
        self._bias = _bias(sampling)
        self._penalties = _penalties(sampling, prompt_ids)
        self._is_plain = PLAIN.takes(sampling)
        self._is_bare = BARE.takes(sampling)
        self._sharpness = min(1 / sampling.temperature, _MAX_SHARPNESS) if sampling.temperature > 0 else 0.0
        self._is_unfiltered = UNFILTERED.takes(sampling)
        is_nucleus = 0 < sampling.top_p < 1 and NUCLEUS.takes(sampling)
        self._nucleus = sampling.top_p if is_nucleus else None  # the only thing that filters
        self._mirostat = Mirostat(sampling) if sampling.mirostat and self._sharpness else None
        self._drawn: tuple[int, float] | None = None  # for Mirostat: the token, and its share of what was kept

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
        """What `sample` says where nothing changes the logits and their exponentials stay in range, with two passes
        over the vocabulary less, since the best need not be known before.

        None where they leave that range, or some are no numbers. The engine silences NumPy's warning for its whole
        thread: doing it here costs as much as a pass.
        """
        weights = np.exp(logits, out=_scratch.of(logits.size))
        if banned:
            weights[list(banned)] = 0
        sums = block_sums(weights) if self._is_bare else weights
        total = float(np.add.reduce(sums))
        if not _MIN_TOTAL < total < _MAX_TOTAL:
            return None
        if self._is_bare:
            return draw_by_blocks(weights, sums, self.number(position))
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
        """Whether the tokens chosen so far matter to the next one."""
        return bool(self._penalties) or self._mirostat is not None

    def accept(self, token_id: int) -> None:
        """Take a chosen token into the histories of the penalties."""
        for penalty in self._penalties:
            penalty.accept(token_id)
        if self._mirostat is not None and self._drawn is not None:
            drawn, share = self._drawn
            if drawn == token_id:
                self._mirostat.observe(share)
            self._drawn = None

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
        """Steps 5 and 6: probabilities but for a factor; the best has weight 1."""
        weights = np.subtract(logits, np.float32(best), out=_scratch.of(logits.size))
        sampling = self.sampling
        if sampling.top_n_sigma > 0:
            weights[~filters.top_n_sigma(logits, sampling.top_n_sigma)] = -np.inf
        sharpness = self._sharpness if sampling.dynatemp_range == 0 else _dynamic_sharpness(weights, sampling)
        if sharpness != 1:
            weights *= np.float32(sharpness)
        np.exp(weights, out=weights)
        return weights

    def _draw(self, weights: Weights, ids: Indices | None, position: int, total: float | None = None) -> int:
        """Steps 7 to 13; `total` is the sum of the weights, where it is known."""
        number = self.number(position)
        index: int | None = None
        if self._is_unfiltered:
            index = draw(weights, number)
        elif self._nucleus is not None:
            total = float(np.add.reduce(weights)) if total is None else total
            index = draw_nucleus(weights, total, self._nucleus, number)
        if index is None:
            weights, ids = self._filter(Remaining(weights, ids), position, total)
            index = draw(weights, number)
        token_id = index if ids is None else int(ids[index])
        if self._mirostat is not None:
            self._drawn = token_id, float(weights[index]) / float(weights.sum())
        return token_id

    def _filter(self, remaining: Remaining, position: int, total: float | None) -> Remaining:
        """Steps 7 to 12."""
        sampling = self.sampling
        if self._mirostat is not None:
            return remaining.keep(self._mirostat.keep(remaining.weights))
        remaining = filters.narrowed(remaining, sampling, total)
        if sampling.xtc_probability > 0 and uniform(self._key, position, RandomStream.XTC) < sampling.xtc_probability:
            remaining.weights[filters.xtc(remaining.weights, sampling.xtc_threshold)] = 0
        return remaining


class _Narrowed(NamedTuple):
    logits: Logits
    ids: Indices | None  # of the logits; None: the whole vocabulary


class _Bias(NamedTuple):
    ids: NDArray[np.intp]
    values: NDArray[np.float32]


def _dynamic_sharpness(shifted: Logits, sampling: Sampling) -> float:
    """One over a temperature between the ends of its range, by how evenly the model spreads its trust."""
    possible = shifted[np.isfinite(shifted)].astype(np.float64)
    weights = np.exp(possible)
    # The surprise of each is the logarithm of its share, which is known without one.
    entropy = math.log(weights.sum()) - float((weights * possible).sum() / weights.sum())
    entropy = entropy / math.log(possible.size) if possible.size > 1 else 0.0
    least = max(0.0, sampling.temperature - sampling.dynatemp_range)
    most = sampling.temperature + sampling.dynatemp_range
    temperature = least + (most - least) * max(0.0, entropy) ** sampling.dynatemp_exponent
    return min(1 / temperature, _MAX_SHARPNESS) if temperature > 0 else _MAX_SHARPNESS


def _bias(sampling: Sampling) -> _Bias | None:
    if not sampling.logit_bias:
        return None
    ids = np.array(list(sampling.logit_bias), dtype=np.intp)
    return _Bias(ids, np.array(list(sampling.logit_bias.values()), dtype=np.float32))


def _penalties(sampling: Sampling, prompt_ids: Sequence[int]) -> tuple[Penalty, ...]:
    """The penalties that do something, in the order in which they apply."""
    penalties: list[Penalty] = []
    if sampling.repetition_penalty != 1:
        penalties.append(RepetitionPenalty(sampling.repetition_penalty, sampling.repetition_window, prompt_ids))
    if sampling.frequency_penalty != 0 or sampling.presence_penalty != 0:
        penalties.append(CountPenalty(sampling.frequency_penalty, sampling.presence_penalty))
    if sampling.dry_multiplier > 0:
        penalties.append(DryPenalty(sampling, prompt_ids))
    return tuple(penalties)


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
    for floor in _NUCLEUS_FLOORS:
        candidates = (weights >= floor * total).nonzero()[0]
        if candidates.size > _MAX_CANDIDATES:
            return None
        found = weights.take(candidates)
        ordered = found.copy()
        ordered.sort()
        ordered = ordered[::-1]
        last = int(ordered.cumsum(dtype=np.float64).searchsorted(share * total))
        if last < ordered.size:
            break
    else:
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
