"""The arena: extents that never overlap, joined again when they come back, and the heap for the rest."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy_inference_engine.runners.llama_cpp.arena import Arena, Bytes

PAGE = 4096


def test_a_buffer_has_the_size_asked_for_and_can_be_written() -> None:
    start, data = Arena(4 * PAGE).allocate(5000)
    assert start == 0
    assert data.dtype == np.uint8
    assert data.shape == (5000,)
    data[:] = 7
    assert data.sum() == 7 * 5000


def test_sizes_are_rounded_up_to_pages() -> None:
    arena = Arena(4 * PAGE + 1000)
    assert arena.num_bytes == arena.num_free_bytes == 4 * PAGE
    assert [arena.allocate(size)[0] for size in (1, PAGE, PAGE + 1)] == [0, PAGE, 2 * PAGE]
    assert arena.num_free_bytes == 0


def test_the_first_extent_that_fits_is_taken() -> None:
    arena = Arena(6 * PAGE)
    starts = [arena.allocate(size * PAGE)[0] for size in (1, 1, 2, 1)]
    arena.free(starts[0], PAGE)
    arena.free(starts[2], 2 * PAGE)
    assert arena.allocate(2 * PAGE)[0] == starts[2]
    assert arena.allocate(PAGE)[0] == starts[0]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1)])
def test_freed_neighbours_become_one_extent(order: tuple[int, ...]) -> None:
    arena = Arena(3 * PAGE)
    starts = [arena.allocate(PAGE)[0] for _ in range(3)]
    for index in order:
        arena.free(starts[index], PAGE)
    assert arena.allocate(3 * PAGE)[0] == 0


def test_what_does_not_fit_comes_from_the_heap() -> None:
    arena = Arena(PAGE)
    ticket, data = arena.allocate(2 * PAGE)
    assert ticket is None
    assert len(data) == 2 * PAGE
    assert arena.num_free_bytes == PAGE
    arena.free(ticket, 2 * PAGE)
    assert arena.num_free_bytes == PAGE


def test_fragments_too_small_are_left_for_later() -> None:
    arena = Arena(3 * PAGE)
    starts = [arena.allocate(PAGE)[0] for _ in range(3)]
    arena.free(starts[0], PAGE)
    arena.free(starts[2], PAGE)
    assert arena.allocate(2 * PAGE)[0] is None
    assert arena.num_free_bytes == 2 * PAGE


@pytest.mark.parametrize("num_bytes", [0, PAGE - 1])
def test_an_arena_of_no_size_is_all_heap(num_bytes: int) -> None:
    arena = Arena(num_bytes)
    assert arena.num_bytes == 0
    assert arena.allocate(10)[0] is None


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 5 * PAGE)), max_size=60))
def test_buffers_in_use_never_overlap_and_nothing_is_lost(actions: list[tuple[bool, int]]) -> None:
    arena = Arena(16 * PAGE)
    held: list[tuple[int | None, Bytes, int]] = []  # ticket, buffer, what was written to it
    for number, (is_free, size) in enumerate(actions):
        if is_free and held:
            ticket, data, value = held.pop(size % len(held))
            assert (data == value).all(), "somebody else wrote here"
            arena.free(ticket, len(data))
        else:
            ticket, data = arena.allocate(size)
            data[:] = number
            held.append((ticket, data, number))
        num_held = sum(-(-len(data) // PAGE) * PAGE for ticket, data, _ in held if ticket is not None)
        assert arena.num_free_bytes == arena.num_bytes - num_held
    for ticket, data, value in held:
        assert (data == value).all()
        arena.free(ticket, len(data))
    assert arena.allocate(16 * PAGE)[0] == 0
