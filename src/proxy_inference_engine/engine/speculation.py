"""Guesses how a choice goes on, so that several of its tokens can be checked in one pass.

A guess comes from the client's own draft of the answer, or from a place where the text so far said the same. Knows
token ids only, and decides nothing: a guess counts for as much of it as is then chosen without it.
"""

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from proxy_inference_engine.cache.prefix import common_prefix
from proxy_inference_engine.runners.base import TokenIds
from proxy_inference_engine.types import Request

MAX_DRAFT = 32  # tokens of a client's draft in one pass
NO_DRAFT: TokenIds = np.empty(0, np.int32)
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
    """How long a proposal may be: longer as long as all of one is right, and shorter when not.

    After one of which too little was right come tokens without any.
    """

    __slots__ = ("_length", "_max_tokens", "_min_tokens", "_num_misses", "_rests_until")

    def __init__(self, max_tokens: int, min_tokens: int = _MIN_DRAFT) -> None:
        self._max_tokens = max_tokens
        self._min_tokens = min_tokens
        self._length = min(_FIRST_DRAFT, max_tokens)
        self._num_misses = 0  # in a row
        self._rests_until = 0

    def length(self, num_tokens: int) -> int:
        """Of what is proposed after so many tokens of a choice."""
        return 0 if num_tokens < self._rests_until else self._length

    def observe(self, num_tokens: int, num_proposed: int, num_right: int) -> None:
        """After so many tokens, so much of a proposal was right."""
        wanted = 2 * self._length if num_right == num_proposed else max(self._min_tokens, self._length // 2)
        self._length = min(wanted, self._max_tokens)
        is_miss = num_right < _MIN_RIGHT * num_proposed
        self._num_misses = min(self._num_misses + 1, _MAX_REST) if is_miss else 0
        if is_miss:
            self._rests_until = num_tokens + num_right + 2**self._num_misses


class _Terms(NamedTuple):
    """How much a source is trusted."""

    max_tokens: int
    num_matching: int  # tokens that must agree before a place in the source is believed


class Drafter:
    """Walks along a source as its choice grows; lost, it looks for the last few tokens in the source again.

    The source is the client's draft, or the choice's own text where there is none.
    """

    def __init__(self, draft_ids: TokenIds, num_prompt: int, max_own_tokens: int) -> None:
        has_draft = len(draft_ids) > 0
        self._draft_ids = draft_ids if has_draft else None
        self._terms = _Terms(MAX_DRAFT, 2) if has_draft else _Terms(max_own_tokens, 3)
        self._place = 0  # in the source: where the next token is expected, or where the choice left it
        self._is_lost = not has_draft
        self._num_seen = num_prompt  # tokens of the choice up to which the place is known
        self._trust = Trust(self._terms.max_tokens)
        self.num_accepted = 0
        self.num_rejected = 0

    def propose(self, ids: TokenIds, max_tokens: int) -> TokenIds:
        length = min(max_tokens, self._trust.length(len(ids)))
        if length <= 0:
            return NO_DRAFT
        source = ids if self._draft_ids is None else self._draft_ids
        self._follow(source, ids)
        ahead = source[self._place : self._place + length]
        if self._is_lost or not len(ahead):
            return NO_DRAFT
        # Text that repeats itself up to its very end is expected to go on so.
        return ahead if self._draft_ids is not None else np.resize(ahead, length)

    def observe(self, num_proposed: int, num_right: int) -> None:
        self.num_accepted += num_right
        self.num_rejected += num_proposed - num_right
        self._trust.observe(self._num_seen, num_proposed, num_right)

    def release(self) -> None:
        """Nothing is held."""

    def _follow(self, source: TokenIds, ids: TokenIds) -> None:
        """Find the place in the source after the newest tokens."""
        new_ids = ids[self._num_seen :]
        self._num_seen = len(ids)
        if not self._is_lost:
            num_shared = common_prefix(new_ids, source[self._place :])
            self._place += num_shared
            self._is_lost = num_shared < len(new_ids)
        if self._is_lost:
            found = _places_after(source, ids[-self._terms.num_matching :])
            self._is_lost = not len(found)
            if len(found):
                self._place = self._nearest(found)

    def _nearest(self, found: NDArray[np.intp]) -> int:
        """In a draft the next place after the one that was left, in a text the latest."""
        if self._draft_ids is None:
            return int(found[-1])
        later = found[found >= self._place]
        return int(later[0] if len(later) else found[0])


def make_drafter(request: Request, max_own_tokens: int) -> Drafter | None:
    """For one choice; None without a client's draft where its own text is no source."""
    if not request.draft_ids and max_own_tokens <= 0:
        return None
    return Drafter(np.array(request.draft_ids, np.int32), len(request.prompt_ids), max_own_tokens)


def _places_after(source: TokenIds, tail: TokenIds) -> NDArray[np.intp]:
    """Where the source goes on after each occurrence of the tail; one at its very end does not count."""
    if len(source) <= len(tail):
        return np.empty(0, np.intp)
    places = np.flatnonzero(source[len(tail) - 1 : -1] == tail[-1])
    for offset, token_id in enumerate(tail[:-1]):
        places = places[source[places + offset] == token_id]
    return places + len(tail)
