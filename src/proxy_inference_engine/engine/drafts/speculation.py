"""Guesses how a choice goes on from the client's own draft of the answer, so that several of its tokens can be checked
in one pass.

Knows token ids only, and decides nothing: a guess counts for as much of it as is then chosen without it.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from proxy_inference_engine.cache.prefix import common_prefix
from proxy_inference_engine.runners.base import TokenIds

MAX_DRAFT = 32  # tokens of a client's draft in one pass
NO_DRAFT: TokenIds = np.empty(0, np.int32)
_NUM_MATCHING = 2  # tokens that must agree before a place in a draft is believed
_MIN_DRAFT = 4  # where a wider pass is not free, the first guessed token costs most
_FIRST_DRAFT = 8
_MIN_RIGHT = 1 / 3  # of a proposal: about where it breaks even on a processor
_MAX_REST = 6  # 2**6 tokens


class Guesser(Protocol):
    """What guesses how one choice goes on."""

    @property
    def num_accepted(self) -> int: ...

    @property
    def num_rejected(self) -> int: ...

    def propose(self, ids: TokenIds, max_tokens: int) -> TokenIds:
        """What may follow `ids`, all of the choice's tokens; empty where there is nothing to go by."""
        ...

    def observe(self, num_proposed: int, num_right: int) -> None:
        """Learn how much of the last proposal was right."""
        ...

    def release(self) -> None:
        """The choice holds no slot any more. Idempotent."""
        ...


class Trust:
    """How long a proposal may be: longer after one that was all right, and shorter after one that was not.

    Where too little of one was right, the next tokens are chosen without any.
    """

    __slots__ = ("_length", "_max_tokens", "_min_tokens", "_num_misses", "_rests_until")

    def __init__(self, max_tokens: int, min_tokens: int = _MIN_DRAFT) -> None:
        self._max_tokens = max_tokens
        self._min_tokens = min_tokens
        self._length = min(_FIRST_DRAFT, max_tokens)
        self._num_misses = 0  # in a row
        self._rests_until = 0

    def length(self, num_tokens: int) -> int:
        """How many tokens may be proposed after so many tokens of a choice."""
        return 0 if num_tokens < self._rests_until else self._length

    def observe(self, num_tokens: int, num_proposed: int, num_right: int) -> None:
        """Learn how much was right of what was proposed after so many tokens."""
        wanted = 2 * self._length if num_right == num_proposed else max(self._min_tokens, self._length // 2)
        self._length = min(wanted, self._max_tokens)
        is_miss = num_right < _MIN_RIGHT * num_proposed
        self._num_misses = min(self._num_misses + 1, _MAX_REST) if is_miss else 0
        if is_miss:
            self._rests_until = num_tokens + num_right + 2**self._num_misses


class Drafter:
    """Walks along a client's draft as its choice grows; lost, it looks for the last few tokens in the draft again."""

    def __init__(self, draft_ids: Sequence[int] | TokenIds, num_prompt: int) -> None:
        self._draft_ids = np.array(draft_ids, np.int32)
        self._place = 0  # in the draft: where the next token is expected, or where the choice left it
        self._is_lost = False
        self._num_seen = num_prompt  # tokens of the choice up to which the place is known
        self._trust = Trust(MAX_DRAFT)
        self.num_accepted = 0
        self.num_rejected = 0

    def propose(self, ids: TokenIds, max_tokens: int) -> TokenIds:
        length = min(max_tokens, self._trust.length(len(ids)))
        if length <= 0:
            return NO_DRAFT
        self._follow(ids)
        return NO_DRAFT if self._is_lost else self._draft_ids[self._place : self._place + length]

    def observe(self, num_proposed: int, num_right: int) -> None:
        self.num_accepted += num_right
        self.num_rejected += num_proposed - num_right
        self._trust.observe(self._num_seen, num_proposed, num_right)

    def release(self) -> None:
        """A client's draft holds no slot, so there is nothing to free."""

    def _follow(self, ids: TokenIds) -> None:
        """Find the place in the draft after the newest tokens."""
        new_ids = ids[self._num_seen :]
        self._num_seen = len(ids)
        if not self._is_lost:
            num_shared = common_prefix(new_ids, self._draft_ids[self._place :])
            self._place += num_shared
            self._is_lost = num_shared < len(new_ids)
        if self._is_lost:
            found = _places_after(self._draft_ids, ids[-_NUM_MATCHING:])
            self._is_lost = not len(found)
            if len(found):
                self._place = self._nearest(found)

    def _nearest(self, found: NDArray[np.intp]) -> int:
        """The next place after the one that was left, or else the first."""
        later = found[found >= self._place]
        return int(later[0] if len(later) else found[0])


def _places_after(draft_ids: TokenIds, tail: TokenIds) -> NDArray[np.intp]:
    """Where a draft goes on after each occurrence of the tail; one at its very end does not count."""
    if len(draft_ids) <= len(tail):
        return np.empty(0, np.intp)
    places = np.flatnonzero(draft_ids[len(tail) - 1 : -1] == tail[-1])
    for offset, token_id in enumerate(tail[:-1]):
        places = places[draft_ids[places + offset] == token_id]
    return places + len(tail)
