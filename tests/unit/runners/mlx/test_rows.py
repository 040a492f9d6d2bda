"""Rows as arrays: what is filled up, and ids that only the device knows."""

from collections.abc import Sequence

import mlx.core as mx
import numpy as np
import pytest

from proxy_inference_engine.runners.base import UNREAD_ID, Row, Unread
from proxy_inference_engine.runners.mlx.chooser import DevicePicks
from proxy_inference_engine.runners.mlx.rows import MAX_SHORT, SlotRow, make_batch, row_ids

PICKS = DevicePicks(mx.array([70, 71, -1, 73], mx.int32))


def row(slot: int, start: int, ids: Sequence[int], place: int | None = None) -> Row:
    """`place`: the last id is the one chosen there."""
    unread = None if place is None else Unread(PICKS, place)
    return Row(slot, start, np.array([*ids, *([] if place is None else [UNREAD_ID])], np.int32), 1, unread=unread)


ROWS: list[tuple[list[Row], list[list[int]]]] = [
    ([row(4, 9, [5])], [[5]]),
    ([row(4, 9, [5]), row(6, 2, [7])], [[5], [7]]),
    ([row(4, 9, [5, 6, 7]), row(6, 2, [7])], [[5, 6, 7, 0], [7, 0, 0, 0]]),
    ([row(4, 9, [], 0), row(6, 2, [], 1)], [[70], [71]]),
    ([row(4, 9, [], 3), row(6, 2, [], 0)], [[73], [70]]),
    ([row(4, 9, [], 0), row(5, 1, [8]), row(6, 2, [], 1)], [[70], [8], [71]]),
    ([row(4, 9, [], 0), row(5, 1, [8, 9]), row(6, 2, [3], 3)], [[70, 0], [8, 9], [3, 73]]),
    ([row(4, 9, [], 2)], [[0]]),  # no number: computed as some token, and thrown away
    ([row(4, 9, [1, 2], 2), row(5, 0, [4, 5, 6, 7])], [[1, 2, 0, 0], [4, 5, 6, 7]]),
    ([row(4, 9, [-7, 5])], [[0, 5]]),  # pieces of images are nobody's embedding
]


@pytest.mark.parametrize(("rows", "expected"), ROWS)
def test_batches(rows: list[Row], expected: list[list[int]]) -> None:
    batch = make_batch(rows, 4, None)
    assert np.array(batch.ids).tolist() == expected
    assert batch.ids.dtype == mx.int32
    assert batch.slots.tolist() == [row.slot - 4 for row in rows]
    assert batch.starts.tolist() == batch.turns.tolist() == [row.start for row in rows]
    assert batch.counts.tolist() == [len(row.ids) for row in rows]
    assert (batch.num_rows, batch.width) == (len(expected), len(expected[0]))
    assert batch.end == max(row.start for row in rows) + len(expected[0])


@pytest.mark.parametrize(("longest", "width"), [(1, 1), (2, 2), (3, 4), (5, 8), (9, 16), (17, 32), (MAX_SHORT, 32)])
def test_widths_are_few(longest: int, width: int) -> None:
    """Each width is compiled on its own."""
    assert make_batch([row(0, 0, range(longest)), row(1, 0, [1])], 0, None).width == width


def test_turns_may_differ_from_starts() -> None:
    batch = make_batch([row(0, 50, [1]), row(1, 9, [2])], 0, [20, 9])
    assert batch.turns.tolist() == [20, 9] and batch.starts.tolist() == [50, 9]


@pytest.mark.parametrize(
    ("one", "expected"),
    [(row(0, 0, [1, 2, 3]), [1, 2, 3]), (row(0, 0, [1, 2], 3), [1, 2, 73]), (row(0, 0, [], 1), [71])],
)
def test_ids_of_one_row(one: Row, expected: list[int]) -> None:
    assert np.array(row_ids(one)).tolist() == expected
    assert SlotRow(0, 0, row_ids(one), 1).num_tokens == len(expected)


def test_tokens_of_two_passes_are_never_unread_at_once() -> None:
    other = Unread(DevicePicks(mx.array([1], mx.int32)), 0)
    rows = [row(0, 0, [], 0), Row(1, 0, np.array([UNREAD_ID], np.int32), 1, unread=other)]
    with pytest.raises(AssertionError):
        make_batch(rows, 0, None)
