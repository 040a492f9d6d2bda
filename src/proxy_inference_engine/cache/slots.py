"""Which slots are free: lanes of slots, from the widest lane to the longest. Knows no tokens, only sizes."""

from collections.abc import Sequence
from itertools import accumulate

from proxy_inference_engine.runners.base import Lane


class Slots:
    """Hands out the lowest free slot of a lane, so that the slots in use stay close together; the highest one to those
    that only fill idle time: when these rest, the others are still neighbours.
    """

    def __init__(self, lanes: Sequence[Lane]) -> None:
        self._lanes = tuple(lanes)
        self._first = [0, *accumulate(lane.num_slots for lane in lanes)]  # lane i holds slots _first[i].._first[i + 1]
        self._is_held = [False] * self._first[-1]
        self._is_high = [False] * self._first[-1]  # held from the end of its lane on
        self._num_high = 0
        self._lane_of = [i for i, lane in enumerate(lanes) for _ in range(lane.num_slots)]

    @property
    def num_slots(self) -> int:
        return len(self._is_held)

    @property
    def num_held(self) -> int:
        return sum(self._is_held)

    @property
    def max_tokens(self) -> int:
        """The longest sequence any slot can hold."""
        return max(lane.slot_tokens for lane in self._lanes)

    def lane_of(self, slot: int) -> int:
        return self._lane_of[slot]

    def capacity(self, slot: int) -> int:
        return self._lanes[self._lane_of[slot]].slot_tokens

    def lane_for(self, num_tokens: int) -> int:
        """The first lane whose slots hold so many tokens (the last one if none does)."""
        for index, lane in enumerate(self._lanes):
            if lane.slot_tokens >= num_tokens:
                return index
        return len(self._lanes) - 1

    def lane_with_room(self, num_tokens: int) -> int:
        """The first lane of the same slot size as `lane_for` that has a free slot (that lane itself if none has)."""
        first = self.lane_for(num_tokens)
        same = [i for i, lane in enumerate(self._lanes) if lane.slot_tokens == self._lanes[first].slot_tokens]
        return next((lane for lane in same if self.has_free(lane)), first)

    def has_free(self, lane: int) -> bool:
        return not all(self._is_held[self._first[lane] : self._first[lane + 1]])

    def num_free(self, lane: int) -> int:
        return self._is_held[self._first[lane] : self._first[lane + 1]].count(False)

    def num_slots_of(self, lane: int) -> int:
        return self._lanes[lane].num_slots

    def allocate(self, lane: int, *, is_high: bool = False) -> int | None:
        slots = range(self._first[lane], self._first[lane + 1])
        for slot in reversed(slots) if is_high else slots:
            if not self._is_held[slot]:
                self._is_held[slot], self._is_high[slot] = True, is_high
                self._num_high += is_high
                return slot
        return None

    def free(self, slot: int) -> None:
        assert self._is_held[slot], f"slot {slot} freed twice"
        self._is_held[slot] = False
        self._num_high -= self._is_high[slot]

    def hole(self, lane: int) -> tuple[int, int] | None:
        """(highest held slot, lowest free slot below it): moving the one into the other closes a gap. For those at the
        end of the lane the other way round."""
        slots = range(self._first[lane], self._first[lane + 1])
        low = self._hole(slots, is_high=False)
        return self._hole(slots[::-1], is_high=True) if low is None and self._num_high else low

    def _hole(self, slots: range, *, is_high: bool) -> tuple[int, int] | None:
        held = [slot for slot in slots if self._is_held[slot] and self._is_high[slot] == is_high]
        free = next((slot for slot in slots if not self._is_held[slot]), None)
        if not held or free is None or (free - held[-1]) * slots.step > 0:
            return None
        return held[-1], free
