"""KV outside the library: divided without loss, accounted for to the byte, given back to the arena."""

import numpy as np
import pytest

from proxy_inference_engine.runners.base import Segment
from proxy_inference_engine.runners.llama_cpp.arena import Arena
from proxy_inference_engine.runners.llama_cpp.blob import Layout
from proxy_inference_engine.runners.llama_cpp.segment import BlobSegment, KvSegment
from tests.unit.runners.states import State, make_state

NUM_TOKENS = 10
PAGE = 4096


@pytest.fixture
def arena() -> Arena:
    return Arena(16 * PAGE)


def make_segment(arena: Arena, state: State, *, is_transposed: bool) -> KvSegment:
    layout = Layout.read(make_state(5, is_transposed=is_transposed).blob, 5, 3)
    assert layout is not None
    segment = KvSegment(arena, layout, NUM_TOKENS)
    for target, plane in zip(segment.planes, state.planes, strict=True):
        target[:] = plane
    return segment


@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("at", [1, 4, 9])
def test_the_halves_of_a_split_hold_what_the_whole_held(arena: Arena, is_transposed: bool, at: int) -> None:
    state = make_state(NUM_TOKENS, is_transposed=is_transposed)
    head, tail = make_segment(arena, state, is_transposed=is_transposed).split(at)
    assert (head.num_tokens, tail.num_tokens) == (at, NUM_TOKENS - at)
    for first, second, plane in zip(head.planes, tail.planes, state.planes, strict=True):
        assert np.array_equal(np.concatenate([first, second], axis=1), plane)


def test_bytes_are_those_of_the_tokens_and_a_split_keeps_them(arena: Arena) -> None:
    segment: Segment = make_segment(arena, make_state(NUM_TOKENS), is_transposed=False)
    assert segment.num_bytes == NUM_TOKENS * (2 * 34 + 2 * 16)
    num_bytes = segment.num_bytes
    head, tail = segment.split(3)
    assert head.num_bytes + tail.num_bytes == num_bytes


def test_a_split_frees_the_whole_and_freeing_the_halves_returns_everything(arena: Arena) -> None:
    head, tail = make_segment(arena, make_state(NUM_TOKENS), is_transposed=False).split(3)
    assert arena.num_free_bytes == arena.num_bytes - 2 * PAGE
    head.free()
    tail.free()
    assert arena.num_free_bytes == arena.num_bytes


def test_freeing_twice_gives_back_once(arena: Arena) -> None:
    segment = make_segment(arena, make_state(NUM_TOKENS), is_transposed=False)
    segment.free()
    other = make_segment(arena, make_state(NUM_TOKENS), is_transposed=False)
    segment.free()
    assert arena.num_free_bytes == arena.num_bytes - PAGE
    other.free()


def test_a_full_arena_is_no_obstacle() -> None:
    state = make_state(NUM_TOKENS)
    head, tail = make_segment(Arena(0), state, is_transposed=False).split(3)
    assert np.array_equal(np.concatenate([head.planes[0], tail.planes[0]], axis=1), state.planes[0])


@pytest.mark.parametrize("at", [0, NUM_TOKENS, NUM_TOKENS + 1])
def test_a_split_lies_inside(arena: Arena, at: int) -> None:
    with pytest.raises(AssertionError):
        make_segment(arena, make_state(NUM_TOKENS), is_transposed=False).split(at)


def test_a_snapshot_is_kept_as_it_is(arena: Arena) -> None:
    segment: Segment = BlobSegment(arena, NUM_TOKENS, 5000)
    assert (segment.num_tokens, segment.num_bytes) == (NUM_TOKENS, 5000)
    assert arena.num_free_bytes == arena.num_bytes - 2 * PAGE
    with pytest.raises(AssertionError, match="can't be divided"):
        segment.split(5)
    for _ in range(2):
        segment.free()
    assert arena.num_free_bytes == arena.num_bytes
