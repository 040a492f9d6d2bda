"""Blocks of weights, against llama.cpp's own functions and the gguf package's: equal to the bit."""

import ctypes

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from proxy_inference_engine.runners.llama_cpp.library import start
from proxy_inference_engine.runners.llama_cpp.quantisation import FORMATS, dequantise, quantise

NAMES = {number: format.name.lower() for number, format in FORMATS.items()}


def random_blocks(number: int, count: int) -> NDArray[np.uint8]:
    """Any bits for the weights, and scales as weights have them."""
    random = np.random.default_rng(number)
    blocks = random.integers(0, 256, (count, FORMATS[number].num_bytes), dtype=np.uint8)
    num_scales = 2 if FORMATS[number].has_least else 1
    scales = random.normal(0, 0.05, (count, num_scales)).astype("<f2")
    blocks[:, : 2 * num_scales] = scales.view(np.uint8)
    return blocks


def in_c(name: str, source: NDArray[np.generic], num_bytes: int, num_weights: int) -> NDArray[np.uint8]:
    function = start().binding.find(name)
    if function is None:
        pytest.skip(f"this library does not show its {name}")
    target = np.zeros(num_bytes, np.uint8)
    function.argtypes, function.restype = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64], None
    function(source.ctypes.data, target.ctypes.data, num_weights)
    return target


@pytest.mark.parametrize("number", FORMATS)
def test_weights_are_those_of_llama_cpp(number: int) -> None:
    blocks = random_blocks(number, 500)
    weights = dequantise(FORMATS[number], blocks)
    expected = in_c(f"dequantize_row_{NAMES[number]}", blocks, 4 * weights.size, weights.size)
    assert np.array_equal(weights.reshape(-1).view(np.uint8), expected)
    assert np.array_equal(weights, gguf.dequantize(blocks, gguf.GGMLQuantizationType(number)))


def awkward_weights() -> NDArray[np.float32]:
    """Zeros; one weight; halves, which go away from zero; what is just below one; what 16 bits cannot hold."""
    random = np.random.default_rng(0)
    rows = [random.normal(0, scale, 32) for scale in (1e-30, 1e-8, 1e-3, 1, 1e4) for _ in range(200)]
    rows += [np.zeros(32), np.eye(32)[5], -np.eye(32)[5], np.full(32, 127.0), np.full(32, 1e-44)]
    rows.append(np.concatenate(([127.0], np.arange(31) - 15.5)))
    rows.append(np.concatenate(([127.0], np.nextafter(np.float32(np.arange(31) - 15.5), np.float32(0)))))
    rows.append(np.concatenate(([-127.0], [0.49999997, -0.49999997], np.zeros(29))))
    return np.array(rows, np.float32)


def test_blocks_are_those_of_llama_cpp() -> None:
    weights = awkward_weights()
    expected = in_c("quantize_row_q8_0_ref", weights, 34 * len(weights), weights.size)
    assert np.array_equal(quantise(weights.copy()).reshape(-1), expected)
    assert np.array_equal(quantise(weights.copy()), gguf.quantize(weights, gguf.GGMLQuantizationType.Q8_0))


@pytest.mark.parametrize("number", FORMATS)
def test_both_steps_together(number: int) -> None:
    weights = dequantise(FORMATS[number], random_blocks(number, 2000))
    expected = in_c("quantize_row_q8_0_ref", weights, 34 * len(weights), weights.size)
    assert np.array_equal(quantise(weights.copy()).reshape(-1), expected)
