"""KV outside the library: divided without loss, accounted for to the byte, given back to the arena."""

import numpy as np
import pytest

from proxy_inference_engine.runners.base import Segment
from proxy_inference_engine.runners.llama_cpp.arena import Arena
from proxy_inference_engine.runners.llama_cpp.blob import KvLayout
from proxy_inference_engine.runners.llama_cpp.segment import BlobSegment, KvSegment, SegmentPacker
from tests.unit.runners.states import State, make_state

NUM_TOKENS = 10
PAGE = 4096


@pytest.fixture
def arena() -> Arena:
    return Arena(16 * PAGE)


def make_segment(arena: Arena, state: State, *, is_transposed: bool) -> KvSegment:
    layout = KvLayout.read(make_state(5, is_transposed=is_transposed).blob, 5, 3)
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


@pytest.mark.parametrize("is_transposed", [False, True])
def test_packed_and_unpacked_is_the_same(arena: Arena, is_transposed: bool) -> None:
    state = make_state(NUM_TOKENS, is_transposed=is_transposed)
    segment = make_segment(arena, state, is_transposed=is_transposed)
    packer = SegmentPacker(arena, segment._layout)
    packed = packer.pack(segment)
    segment.free()
    again = packer.unpack(NUM_TOKENS, packed)
    assert isinstance(again, KvSegment)
    for found, plane in zip(again.planes, state.planes, strict=True):
        assert np.array_equal(found, plane)
    with pytest.raises(ValueError, match="tokens"):
        packer.unpack(NUM_TOKENS + 1, packed)
    again.free()
    packer.release(packed)
    assert arena.num_free_bytes == arena.num_bytes


def test_packed_bytes_stay_until_they_are_released_whatever_becomes_of_the_segment(arena: Arena) -> None:
    state = make_state(NUM_TOKENS)
    segment = make_segment(arena, state, is_transposed=False)
    packer = SegmentPacker(arena, segment._layout)
    first, second = packer.pack(segment), packer.pack(segment)
    before = first.tobytes()
    for half in segment.split(4):
        half.free()
    others = [BlobSegment(arena, 1, PAGE) for _ in range(15)]
    for other in others:
        other.data[:] = 255
    assert first.tobytes() == second.tobytes() == before
    packer.release(first)
    assert arena.num_free_bytes == 0
    packer.release(second)
    assert arena.num_free_bytes == PAGE


def test_a_packed_snapshot_is_its_bytes(arena: Arena) -> None:
    segment = BlobSegment(arena, NUM_TOKENS, 5000)
    segment.data[:] = np.random.default_rng(1).integers(0, 256, 5000)
    packer = SegmentPacker(arena, None)
    again = packer.unpack(NUM_TOKENS, packer.pack(segment))
    assert isinstance(again, BlobSegment) and np.array_equal(again.data, segment.data)
    assert again.data.ctypes.data != segment.data.ctypes.data and again.num_tokens == NUM_TOKENS


def test_layouts_are_told_apart(arena: Arena) -> None:
    layouts = [KvLayout.read(make_state(5, is_transposed=each).blob, 5, 3) for each in (False, True)]
    assert len({SegmentPacker(arena, layout).layout for layout in (*layouts, None)}) == 3
