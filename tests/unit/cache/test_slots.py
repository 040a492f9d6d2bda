"""Slots: the lowest free one of a lane, never twice, and where the gaps are."""

import pytest

from proxy_inference_engine.cache.slots import Slots
from proxy_inference_engine.runners.base import Lane

WIDE_AND_LONG = (Lane(3, 100), Lane(2, 400))


def test_the_lowest_free_slot_comes_first() -> None:
    slots = Slots([Lane(4, 100)])
    assert [slots.allocate(0) for _ in range(4)] == [0, 1, 2, 3]
    slots.free(2)
    slots.free(1)
    assert [slots.allocate(0) for _ in range(2)] == [1, 2]


def test_a_full_lane_gives_nothing_even_if_another_has_room() -> None:
    slots = Slots(WIDE_AND_LONG)
    for _ in range(3):
        slots.allocate(0)
    assert slots.allocate(0) is None
    assert not slots.has_free(0)
    assert slots.has_free(1)


def test_lanes_are_numbered_one_after_another() -> None:
    slots = Slots(WIDE_AND_LONG)
    assert [slots.allocate(1) for _ in range(2)] == [3, 4]
    assert [slots.lane_of(slot) for slot in range(5)] == [0, 0, 0, 1, 1]
    assert [slots.capacity(slot) for slot in range(5)] == [100, 100, 100, 400, 400]


def test_counts() -> None:
    slots = Slots(WIDE_AND_LONG)
    assert (slots.num_slots, slots.num_held, slots.max_tokens) == (5, 0, 400)
    slots.allocate(0)
    slots.allocate(1)
    assert slots.num_held == 2
    slots.free(0)
    assert slots.num_held == 1


@pytest.mark.parametrize(("num_tokens", "lane"), [(1, 0), (100, 0), (101, 1), (400, 1), (401, 1)])
def test_lane_for_is_the_first_that_holds_so_many(num_tokens: int, lane: int) -> None:
    assert Slots(WIDE_AND_LONG).lane_for(num_tokens) == lane


def test_a_slot_cannot_be_freed_twice() -> None:
    slots = Slots([Lane(2, 100)])
    slots.allocate(0)
    slots.free(0)
    with pytest.raises(AssertionError, match="slot 0 freed twice"):
        slots.free(0)


@pytest.mark.parametrize(
    ("held", "hole"),
    [
        ([], None),
        ([0], None),
        ([0, 1, 2], None),
        ([1], (1, 0)),
        ([0, 2], (2, 1)),
        ([2, 3], (3, 0)),
        ([0, 3], (3, 1)),
    ],
)
def test_a_hole_is_the_lowest_free_slot_below_the_highest_held(held: list[int], hole: tuple[int, int] | None) -> None:
    for lanes, lane in ([Lane(4, 100)], 0), ([Lane(2, 50), Lane(4, 100)], 1):
        slots = Slots(lanes)
        first = 2 * lane
        for _ in range(4):
            slots.allocate(lane)
        for slot in {0, 1, 2, 3} - set(held):
            slots.free(first + slot)
        assert slots.hole(lane) == (hole and (hole[0] + first, hole[1] + first))


def test_a_gap_in_one_lane_is_no_hole_of_another() -> None:
    slots = Slots(WIDE_AND_LONG)
    slots.allocate(1)
    assert slots.hole(0) is None
    assert slots.hole(1) is None


def test_high_slots_are_taken_from_the_end_and_stay_together() -> None:
    slots = Slots([Lane(6, 10)])
    assert [slots.allocate(0, is_high=True) for _ in range(3)] == [5, 4, 3]
    assert [slots.allocate(0) for _ in range(2)] == [0, 1]
    assert slots.hole(0) is None and slots.num_free(0) == 1
    slots.free(4)
    assert slots.hole(0) == (3, 4), "moved up"
    slots.free(0)
    assert slots.hole(0) == (1, 0), "the others first, moved down"
