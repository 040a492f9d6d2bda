"""Our product of quantised weights and many columns: against a plain one, at every edge of its shapes, and only where
it was tried beside ggml's own. Skipped where it was not compiled: another processor, no compiler.
"""

import ctypes
import logging
from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from proxy_inference_engine.runners.llama_cpp.binding import Binding
from proxy_inference_engine.runners.llama_cpp.library import start
from proxy_inference_engine.runners.llama_cpp.product import build, hook
from proxy_inference_engine.runners.llama_cpp.product.hook import Product
from proxy_inference_engine.runners.llama_cpp.product.multiplication import Multiplication, declared
from proxy_inference_engine.runners.llama_cpp.quantisation import Floats

pytestmark = pytest.mark.model

MIN_COLUMNS = 8  # more than it is used for: those below it are ggml's
FORMATS = {8: "Q8_0", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K"}


@pytest.fixture(scope="module")
def product() -> Iterator[Product]:
    found = start().product
    if found is None:
        pytest.skip(f"no product: {', '.join(build.missing_features()) or 'not compiled'}")
    found.use(False)
    found.use(True, MIN_COLUMNS)
    yield found
    found.use(False)


@pytest.fixture(scope="module")
def binding() -> Binding:
    return start().binding


def numbers(*shape: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def as_weights(binding: Binding, number: int, values: Floats) -> NDArray[np.float64]:
    """What is left of them in this format, as the package gguf reads it."""
    kind = gguf.GGMLQuantizationType(number)
    block, size = gguf.GGML_QUANT_SIZES[kind]
    packed = np.zeros((len(values), values.shape[1] // block * size), np.uint8)
    quantize = declared(
        binding, "ggml_quantize_chunk", ctypes.c_size_t, ctypes.c_int, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 3,
        ctypes.c_void_p,
    )  # fmt: skip
    quantize(number, values.ctypes.data, packed.ctypes.data, 0, *values.shape, None)
    plain: NDArray[np.float64] = gguf.dequantize(packed, kind).astype(np.float64)
    return plain


def as_columns(values: Floats) -> NDArray[np.float64]:
    """Rounded to bytes, 32 at a time, with a scale in 16 bits."""
    blocks = values.reshape(len(values), -1, 32)
    most = np.abs(blocks).max(axis=2, keepdims=True)
    inverse = np.divide(np.float32(127), most, out=np.zeros_like(most), where=most != 0)
    scale = (most / np.float32(127)).astype(np.float16).astype(np.float64)
    rounded: NDArray[np.float64] = np.rint(blocks * inverse) * scale
    return rounded.reshape(values.shape)


@pytest.mark.parametrize("number", FORMATS)
@pytest.mark.parametrize(
    ("num_rows", "num_columns"),
    [(1, 8), (15, 9), (16, 16), (17, 17), (31, 33), (48, 12), (100, 64), (130, 101), (600, 8)],
)
@pytest.mark.parametrize("width", [256, 768])
def test_it_is_the_plain_product(
    product: Product, binding: Binding, number: int, num_rows: int, num_columns: int, width: int
) -> None:
    values, columns = numbers(num_rows, width, seed=1), numbers(num_columns, width, seed=2)
    columns[num_columns // 2] = 0  # a column of nothing has no scale
    expected = as_columns(columns) @ as_weights(binding, number, values).T
    before = product.num_computed
    with Multiplication(binding, number, values, columns) as multiplication:
        for threads in (1, 2, 3):
            found = multiplication.compute(threads)
            assert np.abs(found - expected).max() <= 2e-5 * np.abs(expected).max()
    assert product.num_computed == before + 3


@pytest.mark.parametrize("width", [32, 96, 544])
def test_rows_of_any_number_of_blocks(product: Product, binding: Binding, width: int) -> None:
    values, columns = numbers(40, width), numbers(20, width)
    with Multiplication(binding, 8, values, columns) as multiplication:
        found = multiplication.compute(2)
    expected = as_columns(columns) @ as_weights(binding, 8, values).T
    assert np.abs(found - expected).max() <= 2e-5 * np.abs(expected).max()


def test_a_column_does_not_depend_on_its_neighbours(product: Product, binding: Binding) -> None:
    """To the bit: which of them are computed together changes nothing."""
    values, columns = numbers(50, 256), numbers(45, 256)
    with Multiplication(binding, 8, values, columns) as multiplication:
        together = multiplication.compute(2)
    with Multiplication(binding, 8, values, columns[7:20].copy()) as multiplication:
        assert np.array_equal(multiplication.compute(1), together[7:20])


def test_few_columns_are_ggmls(product: Product, binding: Binding) -> None:
    before = product.num_computed
    for num_columns in (1, 7):
        with Multiplication(binding, 8, numbers(32, 256), numbers(num_columns, 256)) as multiplication:
            multiplication.compute()
    assert product.num_computed == before
    product.use(False)
    with Multiplication(binding, 8, numbers(32, 256), numbers(64, 256)) as multiplication:
        multiplication.compute()
    assert product.num_computed == before
    product.use(True, MIN_COLUMNS)


def test_a_product_that_computes_otherwise_is_not_used(
    product: Product, binding: Binding, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Registered once more it is asked no more often: the first on the list answers."""
    monkeypatch.setattr(hook, "_attached", [])
    monkeypatch.setattr(hook, "_TOLERANCES", {8: -1.0})
    with caplog.at_level(logging.WARNING):
        assert hook.attach(binding) is None
    assert "is not used: for format 8 it is" in caplog.text
    assert len(caplog.records) == 1
    product.use(False)
    product.use(True, MIN_COLUMNS)


def test_one_library_of_a_process_has_it(product: Product, binding: Binding) -> None:
    assert hook.attach(binding) is None


def test_what_is_missing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "cpuinfo"
    old.write_text("processor : 0\nflags : avx2 fma f16c avx512f\n")
    if build.missing_features() != ["Linux on x86-64"]:
        assert "avx512_vnni" in build.missing_features(old)
    monkeypatch.setattr(build, "product_path", lambda: tmp_path / "lib" / "product.so")
    monkeypatch.setattr(build, "missing_features", list)
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(build.BuildError, match="no C\\+\\+ compiler"):
        build.build()
    monkeypatch.setenv("CXX", "false")
    with pytest.raises(build.BuildError, match="the compiler failed"):
        build.build()
    assert not list(tmp_path.glob("lib/*"))
