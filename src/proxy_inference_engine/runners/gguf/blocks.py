"""The blocks that GGUF keeps weights in, as MLX's groups of 32 or as plain numbers. Nothing is rounded but to bf16.

GGUF, 4 bits:  scale [minimum] | v0+v16 v1+v17 … v15+v31     one byte each, the first in the lower half
MLX, 4 bits:   v0+v1 v2+v3 … v30+v31                         scales and biases in arrays of their own
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from proxy_inference_engine.runners.gguf.file import GgufFile, Tensor

GROUP = 32
BITS = {"Q4_0": 4, "Q4_1": 4, "Q8_0": 8}
_ZEROS = {"Q4_0": 8, "Q8_0": 128}  # what 0 is stored as


class Quantised(NamedTuple):
    """Values are `stored * scale + bias`, with a scale and a bias for each group of a row."""

    weight: NDArray[np.uint32]  # (rows, columns * bits / 32)
    scales: NDArray[np.float16]  # (rows, columns / 32)
    biases: NDArray[np.float16]


def quantised(file: GgufFile, tensor: Tensor) -> Quantised:
    """Raises StartupError for a tensor that is damaged."""
    blocks, rows = file.data(tensor), tensor.shape[0]
    scales = _halves(blocks[:, :2])
    biases = _halves(blocks[:, 2:4]) if tensor.kind == "Q4_1" else scales * np.float16(-_ZEROS[tensor.kind])
    stored = _stored(blocks, tensor.kind)
    if BITS[tensor.kind] == 4:
        stored = stored[:, 0::2] | stored[:, 1::2] << np.uint8(4)
    weight = np.ascontiguousarray(stored).view("<u4")
    return Quantised(weight.reshape(rows, -1), scales.reshape(rows, -1), biases.reshape(rows, -1))


def plain(file: GgufFile, tensor: Tensor) -> NDArray[np.float32]:
    """The same for every kind: numbers in the tensor's shape."""
    blocks = file.data(tensor)
    if tensor.kind in BITS:
        groups = quantised(file, tensor)
        scales, biases = (part.reshape(-1, 1).astype(np.float32) for part in (groups.scales, groups.biases))
        values = _stored(blocks, tensor.kind).astype(np.float32) * scales + biases
    elif tensor.kind == "BF16":
        values = (np.ascontiguousarray(blocks).view("<u2").astype(np.uint32) << 16).view(np.float32)
    else:
        values = np.ascontiguousarray(blocks).view("<f4" if tensor.kind == "F32" else "<f2").astype(np.float32)
    return values.reshape(tensor.shape)


def to_bf16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Round to the nearest, ties to even."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def _stored(blocks: NDArray[np.uint8], kind: str) -> NDArray[np.uint8]:
    """What the blocks hold, one byte a value, in order: (blocks, 32)."""
    if BITS[kind] == 8:
        return blocks[:, 2:] ^ np.uint8(0x80)  # from signed to what counts from 0
    halves = blocks[:, 4 if kind == "Q4_1" else 2 :]
    return np.concatenate([halves & np.uint8(0x0F), halves >> np.uint8(4)], axis=1)


def _halves(data: NDArray[np.uint8]) -> NDArray[np.float16]:
    found: NDArray[np.float16] = np.ascontiguousarray(data).view("<f2")[:, 0]
    return found
