"""The DRY penalty: the longer the run of tokens that a token would repeat, the less likely it becomes.

As described in https://github.com/oobabooga/text-generation-webui/pull/5677, over prompt and output together.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from proxy_inference_engine.runners.base import Logits
from proxy_inference_engine.types import Sampling

_MAX_PENALTY = 1e30  # float32 ends at 3e38
_ROOM = 256


class DryPenalty:
    """Keeps, for every earlier token, how many tokens up to it equal the last tokens of the text.

    `_lengths[i + 1]` belongs to `_ids[i]`. A further token t makes it `_lengths[i] + 1` where `_ids[i]` is t and 0
    elsewhere: time linear in the text. A breaker makes all of them 0. The last token's own entry is always 0.
    """

    def __init__(self, sampling: Sampling, prompt_ids: Sequence[int]) -> None:
        base = sampling.dry_base
        self._multiplier = sampling.dry_multiplier
        self._base = base
        self._allowed_length = sampling.dry_allowed_length
        self._max_exponent = math.log(_MAX_PENALTY) / math.log(base) if base > 1 else math.inf
        self._breakers = sampling.dry_breakers
        self._breaker_ids = np.array(sorted(self._breakers), dtype=np.int32)
        self._num_tokens = len(prompt_ids)
        self._ids: NDArray[np.int32] = np.array([*prompt_ids, *[0] * _ROOM], dtype=np.int32)
        lengths = match_lengths(prompt_ids, self._breakers)
        self._lengths: NDArray[np.int32] = np.array([0, *lengths, *[0] * _ROOM], dtype=np.int32)

    def apply(self, logits: Logits) -> None:
        lengths = self._lengths[1 : self._num_tokens + 1]
        ends = np.flatnonzero(lengths >= max(self._allowed_length, 1))
        if ends.size == 0:
            return
        next_ids, places = np.unique(self._ids[ends + 1], return_inverse=True)
        longest = np.zeros(next_ids.size, dtype=np.int32)
        np.maximum.at(longest, places, lengths[ends])
        exponents = np.minimum(longest - self._allowed_length, self._max_exponent)
        penalties = np.minimum(self._multiplier * self._base**exponents, _MAX_PENALTY)
        penalties[np.isin(next_ids, self._breaker_ids)] = 0.0
        logits[next_ids] -= penalties.astype(np.float32)

    def accept(self, token_id: int) -> None:
        num = self._num_tokens
        if num == self._ids.size:
            self._grow()
        if token_id in self._breakers:
            self._lengths[1 : num + 1] = 0
        else:
            self._lengths[1 : num + 1] = (self._lengths[:num] + 1) * (self._ids[:num] == token_id)
        self._ids[num] = token_id
        self._num_tokens = num + 1

    def _grow(self) -> None:
        room = np.zeros(self._ids.size, dtype=np.int32)
        self._ids = np.concatenate((self._ids, room))
        self._lengths = np.concatenate((self._lengths, room))


def match_lengths(token_ids: Sequence[int], breakers: frozenset[int]) -> list[int]:
    """How many tokens up to each equal the last tokens, counted back to the last breaker; 0 for the last.

    The Z-algorithm on the reversed text, so that a long prompt of one repeated token takes no longer than another.
    """
    text = [*reversed(token_ids)]
    num_open = next((i for i, token_id in enumerate(text) if token_id in breakers), len(text))
    lengths = [0] * len(text)
    start = end = 0  # text[start:end] equals the first tokens of the text, and no such run is known to reach further
    for i in [i for i, token_id in enumerate(text) if token_id == text[0]][1:]:
        length = min(end - i, lengths[i - start]) if i < end else 0
        while i + length < len(text) and text[length] == text[i + length]:
            length += 1
        lengths[i] = length
        if i + length > end:
            start, end = i, i + length
    return [min(length, num_open) for length in reversed(lengths)]
