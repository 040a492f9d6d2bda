"""Blocks of 32 weights from one of llama.cpp's formats to Q8_0, to the bit as llama.cpp's own quantiser makes them.

    Q4_1: scale, least (16 bits each), 16 bytes of two numbers        Q5_0: scale, 4 bytes of fifth bits, 16 bytes
    Q5_1: scale, least, fifth bits, 16 bytes                          Q8_0: scale, 32 signed bytes
The low halves of the bytes are the first 16 numbers, the high halves the others.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

BLOCK = 32  # weights
Q8_0 = 8  # the format's number for its own kind of tensor
Q8_0_BYTES = 34

BlockBytes = NDArray[np.uint8]
Floats = NDArray[np.float32]


class BlockFormat(NamedTuple):
    name: str
    num_bytes: int  # of a block
    has_least: bool  # numbers count from the least weight; else from minus sixteen scales
    has_fifth_bits: bool


FORMATS = {
    3: BlockFormat("Q4_1", 20, has_least=True, has_fifth_bits=False),
    6: BlockFormat("Q5_0", 22, has_least=False, has_fifth_bits=True),
    7: BlockFormat("Q5_1", 24, has_least=True, has_fifth_bits=True),
}  # by the format's numbers for kinds of tensors


def dequantise(format: BlockFormat, blocks: BlockBytes) -> Floats:
    """The weights (blocks, 32) of blocks (blocks, bytes)."""
    halves = blocks[:, -16:]
    numbers = np.concatenate((halves & 15, halves >> 4), axis=1)  # (blocks, 32)
    if format.has_fifth_bits:
        fifth = blocks[:, -20:-16]
        numbers |= np.unpackbits(fifth, axis=1, bitorder="little") << 4
    weights = numbers.astype(np.float32)
    if not format.has_least:
        weights -= 16
    weights *= _half(blocks[:, :2])
    if format.has_least:
        weights += _half(blocks[:, 2:4])
    return weights


def quantise(weights: Floats) -> BlockBytes:
    """Blocks (blocks, 34) of weights (blocks, 32), which are overwritten. ggml: quantize_row_q8_0_ref."""
    greatest = np.abs(np.maximum(weights.max(axis=1), -weights.min(axis=1)))
    scales = greatest / np.float32(127)
    with np.errstate(all="ignore"):  # of weights so small or so large that 16 bits have no scale for them
        inverse = np.where(scales != 0, np.float32(1) / scales, np.float32(0))
        weights *= inverse[:, None]
        # Halves go away from zero, as in C. Adding a half first would round what is just below one up.
        whole = np.trunc(weights)
        weights -= whole
        whole += np.trunc(weights * 2)
        blocks = np.empty((len(weights), Q8_0_BYTES), np.uint8)
        blocks[:, :2] = scales.astype("<f2")[:, None].view(np.uint8)
        blocks[:, 2:] = whole.astype(np.int8).view(np.uint8)
    return blocks


def _half(pairs: BlockBytes) -> Floats:
    """Numbers of 16 bits (blocks, 1), from their bytes."""
    numbers: Floats = np.ascontiguousarray(pairs).view("<f2").astype(np.float32)
    return numbers
