"""Slots of plain attention: rows see their own slot and nothing else, and a device that fails harms nobody for long."""

import gc
from contextlib import suppress
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from numpy.typing import NDArray

from proxy_inference_engine.runners.mlx.head import OutputHead
from proxy_inference_engine.runners.mlx.memory.base import LostSlot
from proxy_inference_engine.runners.mlx.memory.segment import KvSegment
from proxy_inference_engine.runners.mlx.memory.slots import SlotMemory
from proxy_inference_engine.runners.mlx.model import MlxModel
from proxy_inference_engine.runners.mlx.rows import Batch, SlotRow
from tests.tiny.runners import load_tiny, logits_of

NUM_LAYERS = 3
TOKEN_BYTES = 2 * NUM_LAYERS * 2 * 16 * 4  # K and V of two heads of sixteen numbers
CLOSE = 1e-4
IDS = np.random.default_rng(1).integers(10, 500, (6, 400)).astype(np.int32)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> MlxModel:
    return load_tiny("llama", tmp_path_factory.getbasetemp())


@pytest.fixture
def slots(loaded: MlxModel) -> SlotMemory:
    return SlotMemory(loaded.model, OutputHead(loaded.model), NUM_LAYERS)


def feed(slots: SlotMemory, slot: int, start: int, stop: int, source: int | None = None) -> NDArray[np.float32]:
    """The logits after the last token."""
    ids = IDS[slot if source is None else source, start:stop]
    [logits] = slots.forward([SlotRow(slot, start, mx.array(ids), 1)])
    mx.eval(slots.started())
    last: NDArray[np.float32] = np.array(logits)[0]
    return last


def feed_batch(slots: SlotMemory, starts: dict[int, int], counts: list[int], width: int) -> NDArray[np.float32]:
    ids = np.full((len(counts), width), 9, np.int32)
    for row, (slot, start) in enumerate(starts.items()):
        ids[row, : counts[row]] = IDS[slot, start : start + counts[row]]
    numbers = [np.array(values, np.int32) for values in (list(starts), list(starts.values()), counts)]
    batch = Batch(mx.array(ids), numbers[0], numbers[1], numbers[1], numbers[2])
    return np.array(slots.forward_batch(batch))


def assert_close(loaded: MlxModel, logits: NDArray[np.float32], source: int, stop: int) -> None:
    assert np.abs(logits - logits_of(loaded, IDS[source, :stop].tolist())[-1]).max() < CLOSE


def test_a_batch_of_different_lengths(loaded: MlxModel, slots: SlotMemory) -> None:
    """Also of slots that are not neighbours, filled up to one width: what is behind a row's end is nobody's."""
    for slot, length in enumerate((5, 60, 0, 33, 255)):
        if length:
            feed(slots, slot, 0, length)
    for starts, counts, width in [
        ({0: 5, 1: 60}, [1, 1], 1),
        ({0: 6, 3: 33, 4: 255}, [3, 1, 4], 4),  # over the room that there was
        ({1: 61, 2: 0, 4: 259}, [1, 7, 8], 8),
        ({0: 9, 1: 62, 2: 7, 3: 34, 4: 267}, [1, 2, 1, 1, 2], 2),
    ]:
        found = feed_batch(slots, starts, counts, width)
        for row, (slot, start) in enumerate(starts.items()):
            assert_close(loaded, found[row], slot, start + counts[row])


def test_arrays_grow_and_keep_what_they_hold(loaded: MlxModel, slots: SlotMemory) -> None:
    feed(slots, 0, 0, 250)
    feed(slots, 3, 0, 300)
    feed(slots, 0, 250, 270)
    assert {array.shape for array in slots.started()} == {(4, 2, 512, 16)}
    assert_close(loaded, feed(slots, 0, 270, 271), 0, 271)
    assert_close(loaded, feed(slots, 3, 300, 302), 3, 302)


def test_segments_are_cut_and_joined(loaded: MlxModel, slots: SlotMemory) -> None:
    feed(slots, 0, 0, 90)
    whole, rest = slots.export(0, 0, 60), slots.export(0, 60, 90)
    assert (whole.num_tokens, whole.num_bytes) == (60, 60 * TOKEN_BYTES)
    first, second = whole.split(25)
    assert (first.num_tokens, second.num_tokens) == (25, 35)
    assert first.num_bytes + second.num_bytes == 60 * TOKEN_BYTES and whole.arrays == []
    for num_tokens in (90, 61, 60, 40, 25, 3):
        slots.restore(2, [first, second, rest], num_tokens)
        assert_close(loaded, feed(slots, 2, num_tokens, num_tokens + 5, source=0), 0, num_tokens + 5)


def test_memory_is_given_back(slots: SlotMemory) -> None:
    for slot in (0, 2):
        feed(slots, slot, 0, 300)
    mx.clear_cache()  # a buffer that MLX kept from something else may be larger than what is asked for
    segment = slots.export(2, 0, 300)
    slots.release(0)
    slots.release(0)
    assert sum(array.nbytes for array in slots.started()) == 3 * 512 * TOKEN_BYTES
    slots.release(2)
    assert slots.started() == []
    gc.collect()
    before = mx.get_active_memory()
    segment.free()
    gc.collect()
    assert before - mx.get_active_memory() == 300 * TOKEN_BYTES


# A device that fails


def stray_id() -> mx.array:
    """An array that can't be computed: MLX finds out when it is to."""
    stray: list[mx.array] = []

    def leak(value: mx.array) -> mx.array:
        stray.append(value)
        return value + 1

    mx.compile(leak)(mx.array([1]))
    with suppress(RuntimeError):
        mx.eval(stray)
        pytest.skip("without a C++ compiler MLX traces nothing on a CPU")
    return stray[0]


def failing(slots: SlotMemory, slot: int, start: int = 0) -> SlotRow:
    """A row that goes well until the device is to compute it."""
    ids = mx.array(IDS[slot, start : start + 8]) + stray_id()

    def compute(caches: list[Any]) -> mx.array:
        return slots._head.logits(ids[None], caches, lambda hidden: hidden[:, -1:])[0]

    return SlotRow(slot, start, ids, 1, compute)


def test_a_failed_pass_costs_what_the_slots_held_and_no_more(loaded: MlxModel, slots: SlotMemory) -> None:
    """All layers of all slots depended on what could not be computed, and did so in every pass that followed."""
    feed(slots, 0, 0, 30)
    feed(slots, 1, 0, 20)
    logits = slots.forward([failing(slots, 2)])
    with pytest.raises(RuntimeError):
        mx.eval(logits, slots.started())
    slots.recover()
    slots.truncate(2, 0)
    assert_close(loaded, feed(slots, 2, 0, 9), 2, 9)
    for call in (
        lambda: feed(slots, 0, 30, 31),
        lambda: feed_batch(slots, {0: 30, 2: 9}, [1, 1], 1),
        lambda: slots.truncate(0, 30),
        lambda: slots.export(0, 0, 30),
    ):
        with pytest.raises(LostSlot):
            call()
    slots.release(0)
    assert_close(loaded, feed(slots, 0, 0, 40), 0, 40)
    slots.restore(1, [slots.export(0, 0, 40)], 40)
    assert_close(loaded, feed(slots, 1, 40, 44, source=0), 0, 44)


def test_a_failure_that_passes_costs_nothing(loaded: MlxModel, slots: SlotMemory) -> None:
    """The pass was ordered, and can still be computed."""
    feed(slots, 0, 0, 30)
    slots.forward([SlotRow(1, 0, mx.array(IDS[1, :9]), 1)])
    slots.recover()
    for slot, num_tokens in ((0, 30), (1, 0)):
        slots.truncate(slot, num_tokens)
        assert_close(loaded, feed(slots, slot, num_tokens, num_tokens + 3), slot, num_tokens + 3)


def test_a_restore_that_fails(loaded: MlxModel, slots: SlotMemory) -> None:
    feed(slots, 0, 0, 30)
    bad = [array + stray_id() for array in slots.export(0, 0, 30).arrays]
    with pytest.raises(RuntimeError):
        slots.restore(1, [KvSegment(bad, 30)], 30)
    slots.release(1)
    slots.release(0)
    assert_close(loaded, feed(slots, 1, 0, 30), 1, 30)


def test_what_a_lane_holds_is_not_seen_by_another(loaded: MlxModel) -> None:
    head = OutputHead(loaded.model)
    lanes = [SlotMemory(loaded.model, head, NUM_LAYERS) for _ in range(2)]
    feed(lanes[0], 0, 0, 50)
    assert_close(loaded, feed(lanes[1], 0, 0, 3), 0, 3)
    assert_close(loaded, feed(lanes[0], 0, 50, 51), 0, 51)
