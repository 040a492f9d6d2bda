"""Segments of MLX as bytes: what comes back is the same to the bit, in every type that KV has."""

import mlx.core as mx
import numpy as np
import pytest

from proxy_inference_engine.runners.base import Lane, Row
from proxy_inference_engine.runners.mlx.memory.segment import KvSegment, SegmentPacker
from proxy_inference_engine.runners.mlx.runner import MlxRunner, Settings
from tests.tiny.runners import load_tiny

NUM_TOKENS = 7
PACKER = SegmentPacker("test")


def make_segment(dtype: mx.Dtype) -> KvSegment:
    """Two arrays of different widths, one of them a view of a larger one."""
    wide = mx.random.normal((2, NUM_TOKENS, 16)).astype(dtype)
    return KvSegment([wide, mx.random.normal((2, 2 * NUM_TOKENS, 8)).astype(dtype)[:, ::2]], NUM_TOKENS)


@pytest.mark.parametrize("dtype", [mx.bfloat16, mx.float16, mx.float32])
def test_packed_and_unpacked_is_the_same(dtype: mx.Dtype) -> None:
    segment = make_segment(dtype)
    again = PACKER.unpack(NUM_TOKENS, PACKER.pack(segment))
    assert (again.num_tokens, again.num_bytes) == (NUM_TOKENS, segment.num_bytes)
    for found, array in zip(again.arrays, segment.arrays, strict=True):
        assert found.dtype == dtype and mx.array_equal(found, array)


@pytest.mark.parametrize("num_tokens", [0, NUM_TOKENS - 1, NUM_TOKENS + 1])
def test_another_number_of_tokens_is_refused(num_tokens: int) -> None:
    with pytest.raises(ValueError):
        PACKER.unpack(num_tokens, PACKER.pack(make_segment(mx.float16)))


def test_what_is_no_segment_is_refused() -> None:
    packed = PACKER.pack(make_segment(mx.float16))
    for data in (packed[:2], packed[:40], packed[:-1], np.zeros(64, np.uint8), np.full(64, 255, np.uint8)):
        with pytest.raises(ValueError):
            PACKER.unpack(NUM_TOKENS, data)


def test_a_slot_goes_on_from_what_was_unpacked(tmp_path_factory: pytest.TempPathFactory) -> None:
    loaded = load_tiny("llama", tmp_path_factory.getbasetemp())
    ids = np.arange(10, 30, dtype=np.int32)
    runner = MlxRunner(loaded, Settings((Lane(2, 64),)))
    assert runner.packer is not None
    runner.forward([Row(0, 0, ids, 1)])
    packed = runner.packer.pack(runner.export(0, 0, len(ids)))
    expected = np.array(runner.forward([Row(0, len(ids), ids[:1], 1)])[0])
    runner.restore(1, [runner.packer.unpack(len(ids), packed)], len(ids))
    assert np.array_equal(np.array(runner.forward([Row(1, len(ids), ids[:1], 1)])[0]), expected)
    runner.close()
