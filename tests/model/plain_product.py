"""A product of quantised weights and rounded columns in plain steps, and weights for it in ggml's formats."""

import ctypes

import gguf
import numpy as np
from numpy.typing import NDArray

from proxy_inference_engine.runners.llama_cpp.binding import Binding
from proxy_inference_engine.runners.llama_cpp.product.multiplication import declared
from proxy_inference_engine.runners.llama_cpp.quantisation import Floats

FORMATS = {8: "Q8_0", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K"}
TOLERANCE = 2e-5  # of the largest: sums of floats in another order
# Rows and columns at the edges: of panels, strips and the numbers of columns that are computed together.
SHAPES = [(1, 8), (15, 9), (16, 16), (17, 17), (31, 33), (48, 12), (100, 64), (130, 101), (600, 8)]
FEW = [(16, 1), (33, 2), (47, 3), (16, 5), (90, 7)]

Packed = NDArray[np.uint8]


def numbers(*shape: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def quantised(binding: Binding, number: int, values: Floats) -> Packed:
    block, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(number)]
    packed = np.zeros((len(values), values.shape[1] // block * size), np.uint8)
    quantize = declared(
        binding, "ggml_quantize_chunk", ctypes.c_size_t, ctypes.c_int, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 3,
        ctypes.c_void_p,
    )  # fmt: skip
    quantize(number, values.ctypes.data, packed.ctypes.data, 0, *values.shape, None)
    return packed


def extreme(number: int, num_rows: int, width: int) -> Packed:
    """Weights as large as the format has them, which no quantiser writes: where sums of few bits would overflow."""
    block, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(number)]
    blocks = np.full((num_rows, width // block, size), 0xFF, np.uint8)
    scales = {8: [0], 12: [0, 2], 13: [0, 2], 14: [size - 2]}[number]
    for place in scales:
        blocks[:, :, place : place + 2] = np.array([0.01], np.float16).view(np.uint8)
    if number == 8:
        blocks[:, :, 2:] = 0x80  # -128
        blocks[1::2, :, 2:] = 0x7F
    return blocks.reshape(num_rows, -1)


def plain_product(number: int, packed: Packed, columns: Floats) -> NDArray[np.float64]:
    """(columns, rows). The weights as the package gguf reads them."""
    weights = gguf.dequantize(packed, gguf.GGMLQuantizationType(number)).astype(np.float64)
    result: NDArray[np.float64] = _rounded(columns) @ weights.T
    return result


def _rounded(values: Floats) -> NDArray[np.float64]:
    """To bytes, 32 at a time, with a scale in 16 bits."""
    blocks = values.reshape(len(values), -1, 32)
    most = np.abs(blocks).max(axis=2, keepdims=True)
    inverse = np.divide(np.float32(127), most, out=np.zeros_like(most), where=most != 0)
    scale = (most / np.float32(127)).astype(np.float16).astype(np.float64)
    rounded: NDArray[np.float64] = np.rint(blocks * inverse) * scale
    return rounded.reshape(values.shape)


def distance(found: NDArray[np.floating], expected: NDArray[np.float64]) -> float:
    """The largest difference, as a part of the largest number."""
    return float(np.abs(found - expected).max() / np.abs(expected).max())
