"""Our product of quantised weights and many columns: against a plain one, at every edge of its shapes, and only where
it was tried beside ggml's own. Skipped where it was not compiled: another processor, no compiler.
"""

import ctypes
import logging
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from proxy_inference_engine.runners.llama_cpp.binding import Binding
from proxy_inference_engine.runners.llama_cpp.library import start
from proxy_inference_engine.runners.llama_cpp.product import build, hook
from proxy_inference_engine.runners.llama_cpp.product.hook import Product
from proxy_inference_engine.runners.llama_cpp.product.multiplication import Multiplication
from tests.model.plain_product import (
    FEW,
    FORMATS,
    SHAPES,
    TOLERANCE,
    distance,
    extreme,
    numbers,
    plain_product,
    quantised,
)

pytestmark = pytest.mark.model

MIN_COLUMNS = 1  # fewer than it may be used for


def variants() -> list[str]:
    """Those that this processor can run, without llama.cpp."""
    path = build.product_path()
    return Product(ctypes.CDLL(str(path)), path).variants if path.exists() and not build.missing_features() else [""]


@pytest.fixture(scope="module", params=variants())
def product(request: pytest.FixtureRequest) -> Iterator[Product]:
    found = start().product
    if found is None:
        pytest.skip(f"no product: {', '.join(build.missing_features()) or 'not compiled'}")
    found.choose(request.param)
    found.use(False)
    found.use(True, MIN_COLUMNS)
    yield found
    found.use(False)
    found.choose(found.variants[0])


@pytest.fixture(scope="module")
def binding() -> Binding:
    return start().binding


@pytest.mark.parametrize("number", FORMATS)
@pytest.mark.parametrize(("num_rows", "num_columns"), [*FEW, *SHAPES])
@pytest.mark.parametrize("width", [256, 768])
def test_it_is_the_plain_product(
    product: Product, binding: Binding, number: int, num_rows: int, num_columns: int, width: int
) -> None:
    values, columns = numbers(num_rows, width, seed=1), numbers(num_columns, width, seed=2)
    if num_columns > 1:
        columns[num_columns // 2] = 0  # a column of nothing has no scale
    expected = plain_product(number, quantised(binding, number, values), columns)
    before = product.num_computed
    with Multiplication(binding, number, values, columns) as multiplication:
        for threads in (1, 2, 3):
            assert distance(multiplication.compute(threads), expected) <= TOLERANCE
    assert product.num_computed == before + 3


@pytest.mark.parametrize("number", FORMATS)
@pytest.mark.parametrize("num_columns", [3, 20])
def test_no_sum_overflows(product: Product, binding: Binding, number: int, num_columns: int) -> None:
    """Every weight and every column as large as can be, all of one sign and of both."""
    packed = extreme(number, 18, 512)
    for columns in (np.ones((num_columns, 512), np.float32), np.sign(numbers(num_columns, 512))):
        with Multiplication(binding, number, numbers(18, 512), columns) as multiplication:
            multiplication.set_weights(packed)
            assert distance(multiplication.compute(2), plain_product(number, packed, columns)) <= TOLERANCE


@pytest.mark.parametrize("width", [32, 96, 544])
def test_rows_of_any_number_of_blocks(product: Product, binding: Binding, width: int) -> None:
    values, columns = numbers(40, width), numbers(20, width)
    with Multiplication(binding, 8, values, columns) as multiplication:
        found = multiplication.compute(2)
    assert distance(found, plain_product(8, quantised(binding, 8, values), columns)) <= TOLERANCE


def test_a_column_does_not_depend_on_its_neighbours(product: Product, binding: Binding) -> None:
    """To the bit: which of them are computed together changes nothing."""
    values, columns = numbers(50, 256), numbers(45, 256)
    for number in FORMATS:
        with Multiplication(binding, number, values, columns) as multiplication:
            together = multiplication.compute(2)
        for first, count in ((0, 1), (7, 13), (20, 2), (3, 40)):
            few = slice(first, first + count)
            with Multiplication(binding, number, values, columns[few].copy()) as multiplication:
                assert np.array_equal(multiplication.compute(1), together[few])


def test_fewer_columns_than_it_is_told_are_ggmls(product: Product, binding: Binding) -> None:
    before = product.num_computed
    for min_columns, num_columns in ((8, 1), (8, 7), (None, 64)):
        product.use(False)
        if min_columns is not None:
            product.use(True, min_columns)
        with Multiplication(binding, 8, numbers(32, 256), numbers(num_columns, 256)) as multiplication:
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
    old.write_text("processor : 0\nflags : avx fma f16c\nFeatures : asimd\n")
    assert build.missing_features(old) in (["avx2"], ["asimddp"], ["Linux on x86-64 or ARM64"])
    monkeypatch.setattr(build, "product_path", lambda: tmp_path / "lib" / "product.so")
    monkeypatch.setattr(build, "missing_features", list)
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(build.BuildError, match="no C\\+\\+ compiler"):
        build.build()
    monkeypatch.setenv("CXX", "false")
    with pytest.raises(build.BuildError, match="the compiler failed"):
        build.build()
    assert not list(tmp_path.glob("lib/*"))
