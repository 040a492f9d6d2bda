"""Chooses the next token of one choice from its logits, in each of its states as that is to be sampled.

Knows neither batches nor text nor when to stop.
"""

import math
import threading
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from proxy_inference_engine.runners.base import Logits
from proxy_inference_engine.sampling import filters
from proxy_inference_engine.sampling.draws import (
    RandomStream,
    block_sums,
    draw,
    draw_by_blocks,
    draw_nucleus,
    stream_key,
    uniform,
)
from proxy_inference_engine.sampling.dry import DryPenalty
from proxy_inference_engine.sampling.filters import Indices, Weights
from proxy_inference_engine.sampling.mirostat import Mirostat
from proxy_inference_engine.sampling.penalties import CountPenalty, Penalty, RepetitionPenalty
from proxy_inference_engine.types import STEP_PARAMETERS, Request, Sampling, Shortcut, State

Allowed = NDArray[np.bool_]

# Where logits need no copy, because nothing of steps 1, 3 and 4 is wanted.
PLAIN = Shortcut("seed", "temperature", "top_k", "top_p", "min_p", "xtc_probability", *STEP_PARAMETERS)
# Where nothing is wanted but the draw.
BARE = Shortcut("seed", "temperature", *STEP_PARAMETERS)
# Where of steps 5 to 12 only `top_p` is wanted.
NUCLEUS = Shortcut(
    *("seed", "logit_bias", "repetition_penalty", "frequency_penalty", "presence_penalty", "dry_multiplier"),
    *("temperature", "top_p", *STEP_PARAMETERS),
)

_MAX_LISTED = 4096
_MIN_TOTAL, _MAX_TOTAL = 1e-20, 1e30  # sums of exponentials that are well within float32
_MAX_SHARPNESS = 1e30  # 1 / temperature must stay a float32, or 0 * inf would make a NaN of the best logit


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
        if self._mirostat is not None:
            return self._draw_unsurprising(self._mirostat, _Candidates(weights, ids), number)
        index: int | None
        if self._nucleus is not None:
            total = float(np.add.reduce(weights)) if total is None else total
            index = draw_nucleus(weights, total, self._nucleus, number)
            if index is not None:
                return index if ids is None else int(ids[index])
        candidates = self._filter(_Candidates(weights, ids), position, total)
        index = draw(candidates.weights, number)
        return index if candidates.ids is None else int(candidates.ids[index])

    def _draw_unsurprising(self, mirostat: Mirostat, candidates: "_Candidates", number: float) -> int:
        kept = candidates.keep(mirostat.keep(candidates.weights))
        index = draw(kept.weights, number)
        token_id = index if kept.ids is None else int(kept.ids[index])
        self._drawn = token_id, float(kept.weights[index]) / float(kept.weights.sum())
        return token_id

    def _filter(self, candidates: "_Candidates", position: int, total: float | None) -> "_Candidates":
        """Steps 8 to 12."""
        sampling = self.sampling
        if sampling.top_k > 0:
            candidates, total = candidates.keep(filters.top_k(candidates.weights, sampling.top_k)), None
        if sampling.typical_p < 1:
            candidates, total = candidates.keep(filters.typical_p(candidates.weights, sampling.typical_p)), None
        if sampling.top_p < 1:
            candidates = candidates.keep(filters.top_p(candidates.weights, sampling.top_p, total))
        if sampling.min_p > 0:
            candidates = candidates.keep(filters.min_p(candidates.weights, sampling.min_p))
        if sampling.xtc_probability > 0 and uniform(self._key, position, RandomStream.XTC) < sampling.xtc_probability:
            candidates.weights[filters.xtc(candidates.weights, sampling.xtc_threshold)] = 0
        return candidates


class Samplers:
    """The sampler of one choice, or several where sampling differs from state to state.

    Every sampler that counts tokens takes in every one, so that the penalties of each state know the whole text.
    """

    __slots__ = ("_by_state", "_counting", "_default")

    def __init__(self, request: Request, choice: int, num_tokens: int) -> None:
        def make(sampling: Sampling) -> Sampler:
            return Sampler(sampling, choice=choice, prompt_ids=request.prompt_ids, num_tokens=num_tokens)

        self._default = make(request.sampling)
        self._by_state = {state: make(sampling) for state, sampling in request.state_sampling.items()}
        self._counting = [each for each in (self._default, *self._by_state.values()) if each.counts]

    def sample(
        self,
        logits: Logits,
        position: int,
        banned: Collection[int] = (),
        allowed: Allowed | None = None,
        state: State = "text",
    ) -> int:
        return self.of(state).sample(logits, position, banned, allowed)

    def of(self, state: State) -> Sampler:
        """The sampler that chooses the tokens of a state."""
        return self._by_state.get(state, self._default) if self._by_state else self._default

    def accept(self, token_id: int) -> None:
        for sampler in self._counting:
            sampler.accept(token_id)


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
