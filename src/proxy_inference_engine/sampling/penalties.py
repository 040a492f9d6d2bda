"""Penalties on tokens that occurred: repetition, frequency, presence.

Each keeps its own history and touches only the logits of the ids in it, never the whole vocabulary.
"""

from collections import Counter, deque
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from proxy_inference_engine.runners.base import Logits


class Penalty(Protocol):
    """Lowers logits by what was said so far."""

    def apply(self, logits: Logits) -> None:
        """Change `logits` in place."""
        ...

    def accept(self, token_id: int) -> None:
        """Take a chosen token into the history."""
        ...


class RepetitionPenalty:
    """Divides positive logits and multiplies negative ones of the ids among the last `window` tokens (0: all)."""

    def __init__(self, penalty: float, window: int, prompt_ids: Sequence[int]) -> None:
        counted = prompt_ids[-window:] if window else prompt_ids
        self._penalty = penalty
        self._window = window
        self._recent = deque(counted) if window else deque[int]()
        self._tally = Tally(counted)

    def apply(self, logits: Logits) -> None:
        ids = self._tally.ids
        found = logits[ids]
        logits[ids] = np.where(found > 0, found / self._penalty, found * self._penalty)

    def accept(self, token_id: int) -> None:
        self._tally.add(token_id)
        if not self._window:
            return
        self._recent.append(token_id)
        if len(self._recent) > self._window:
            self._tally.remove(self._recent.popleft())


class CountPenalty:
    """OpenAI's penalties: `frequency` for each time an id was generated, `presence` once. The prompt does not count."""

    def __init__(self, frequency: float, presence: float) -> None:
        self._frequency = frequency
        self._presence = presence
        self._tally = Tally()

    def apply(self, logits: Logits) -> None:
        logits[self._tally.ids] -= self._tally.counts * self._frequency + self._presence

    def accept(self, token_id: int) -> None:
        self._tally.add(token_id)


class Tally:
    """How often each id occurred, as two dense arrays in no particular order."""

    def __init__(self, token_ids: Sequence[int] = ()) -> None:
        counts = Counter(token_ids)
        self._slots = {token_id: slot for slot, token_id in enumerate(counts)}
        self._ids: NDArray[np.intp] = np.array([*counts, *[0] * 64], dtype=np.intp)
        self._counts: NDArray[np.float32] = np.array([*counts.values(), *[0] * 64], dtype=np.float32)

    @property
    def ids(self) -> NDArray[np.intp]:
        return self._ids[: len(self._slots)]

    @property
    def counts(self) -> NDArray[np.float32]:
        return self._counts[: len(self._slots)]

    def add(self, token_id: int) -> None:
        slot = self._slots.setdefault(token_id, len(self._slots))
        if slot == self._ids.size:
            self._ids = np.concatenate((self._ids, np.zeros_like(self._ids)))
            self._counts = np.concatenate((self._counts, np.zeros_like(self._counts)))
        self._ids[slot] = token_id
        self._counts[slot] += 1

    def remove(self, token_id: int) -> None:
        """Forget one occurrence; the last slot fills the gap of an id that is gone."""
        slot = self._slots[token_id]
        self._counts[slot] -= 1
        if self._counts[slot] > 0:
            return
        last = len(self._slots) - 1
        last_id = int(self._ids[last])
        self._ids[slot], self._counts[slot] = last_id, self._counts[last]
        self._counts[last] = 0
        self._slots[last_id] = slot
        del self._slots[token_id]
