"""The product's variants for other processors than this one: compiled for them, run in an emulator, and compared with
the plain product at the same edges. Debian's packages `g++-aarch64-linux-gnu` and `qemu-user` have what NEON needs; the
variant for AVX-VNNI runs here in the longer encoding of AVX-512. Skipped where one of them is missing.
"""

import ctypes
import shutil
import struct
import subprocess
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from proxy_inference_engine.runners.llama_cpp.library import start
from proxy_inference_engine.runners.llama_cpp.product import build
from proxy_inference_engine.runners.llama_cpp.product.hook import Product
from proxy_inference_engine.runners.llama_cpp.quantisation import Floats
from tests.model.plain_product import (
    FEW,
    FORMATS,
    SHAPES,
    TOLERANCE,
    Packed,
    distance,
    extreme,
    numbers,
    plain_product,
    quantised,
)

pytestmark = pytest.mark.model

_SOURCES = Path(build.__file__).parent
_PROGRAM = Path(__file__).parent / "product_program.cpp"
_HEAD = "<5q"


class Place(NamedTuple):
    """Where a variant is compiled and run."""

    variant: build.Variant
    compiler: str
    emulator: tuple[str, ...] = ()
    flag: str | None = None  # that this processor must have


(_NEON,) = build.variants("aarch64")
_AVX2 = next(each for each in build.variants("x86_64") if each.name == "avx2")
PLACES = (
    Place(_NEON, "aarch64-linux-gnu-g++", ("qemu-aarch64",)),
    Place(build.Variant("avx_vnni", (*_AVX2.flags, "-mavx512vl", "-mavx512vnni")), "c++", flag="avx512_vnni"),
)


@pytest.fixture(scope="module", params=PLACES, ids=[place.variant.name for place in PLACES])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command that runs it."""
    place: Place = request.param
    missing = [tool for tool in (place.compiler, *place.emulator) if shutil.which(tool) is None]
    cpuinfo = Path("/proc/cpuinfo")
    if place.flag is not None and place.flag not in (cpuinfo.read_text().split() if cpuinfo.exists() else ()):
        missing.append(place.flag)
    if missing:
        pytest.skip(f"without {', '.join(missing)}")
    folder, name = tmp_path_factory.mktemp("product"), place.variant.name
    common = [place.compiler, "-O2", "-std=c++17", "-w", f"-I{_SOURCES}"]
    one, other = folder / "variant.o", folder / "program"
    known = [f"-DWITH_{name.upper()}", f"-DVARIANT={name}"]
    for command in (
        [*common, *place.variant.flags, "-c", str(_SOURCES / f"{name}.cpp"), "-o", str(one)],
        [*common, *known, "-static", str(_PROGRAM), str(one), "-o", str(other)],
    ):
        subprocess.run(command, check=True, capture_output=True)
    return [*place.emulator, str(other)]


def compute(program: list[str], number: int, cases: list[tuple[Packed, Floats]]) -> list[NDArray[np.float32]]:
    """All of them in one run."""
    given = b"".join(
        struct.pack(_HEAD, number, len(packed), columns.shape[1], len(columns), packed.shape[1])
        + packed.tobytes()
        + columns.tobytes()
        for packed, columns in cases
    )
    answer = subprocess.run(program, input=given, capture_output=True)
    assert answer.returncode == 0, answer.stderr
    sizes = [len(packed) * len(columns) for packed, columns in cases]
    parts = np.split(np.frombuffer(answer.stdout, np.float32), np.cumsum(sizes)[:-1])
    return [part.reshape(len(columns), len(packed)) for part, (packed, columns) in zip(parts, cases, strict=True)]


@pytest.mark.parametrize("number", FORMATS)
def test_it_is_the_plain_product(program: list[str], number: int) -> None:
    binding, cases = start().binding, []
    for num_rows, num_columns in [*FEW, *SHAPES]:
        packed = quantised(binding, number, numbers(num_rows, 512, seed=1))
        columns = numbers(num_columns, 512, seed=2)
        if num_columns > 1:
            columns[num_columns // 2] = 0
        cases.append((packed, columns))
    cases.append((extreme(number, 18, 512), np.where(numbers(20, 512) > 0, 1, -1).astype(np.float32)))
    cases.append((extreme(number, 18, 512), np.ones((3, 512), np.float32)))
    for (packed, columns), found in zip(cases, compute(program, number, cases), strict=True):
        assert distance(found, plain_product(number, packed, columns)) <= TOLERANCE


def test_a_column_does_not_depend_on_its_neighbours(program: list[str]) -> None:
    packed, columns = quantised(start().binding, 8, numbers(50, 96)), numbers(45, 96)
    parts = [slice(0, 45), *(slice(first, first + count) for first, count in ((0, 1), (7, 13), (20, 2), (3, 40)))]
    together, *others = compute(program, 8, [(packed, columns[part].copy()) for part in parts])
    for part, found in zip(parts[1:], others, strict=True):
        assert np.array_equal(found, together[part])


@pytest.mark.parametrize("variant", build.variants(), ids=lambda variant: variant.name)
def test_a_variant_shares_no_function(tmp_path: Path, variant: build.Variant) -> None:
    """Of a function that several sources define, one is linked for all: it may be what this processor cannot run. Nor
    does anything run when the library is loaded. Without optimising, so that nothing is hidden by being inlined.
    """
    compiler = build.find_compiler()
    if compiler is None or shutil.which("nm") is None:
        pytest.skip("without a C++ compiler and nm")
    source, made = _SOURCES / f"{variant.name}.cpp", tmp_path / "variant.o"
    compiled = subprocess.run([*compiler, "-O0", "-std=c++17", "-w", *variant.flags, "-c", source, "-o", made])
    if compiled.returncode != 0:
        pytest.skip(f"a compiler that does not know {variant.name}")
    symbols = subprocess.run(["nm", "--defined-only", made], capture_output=True, text=True, check=True).stdout
    kinds = {name: kind for _, kind, name in map(str.split, symbols.splitlines())}
    assert "_ZN7product" in symbols
    assert not [name for name, kind in kinds.items() if kind in ("T", "W")]
    assert not [name for name in kinds if "GLOBAL__sub" in name]


def test_what_the_compiler_does_not_know_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = build.find_compiler()
    if compiler is None or build.missing_features() or len(build.variants()) < 2:
        pytest.skip("without a compiler, or only one variant")
    unknown = build.variants()[0].flags[-1]
    older = tmp_path / "older"
    older.write_text(f'#!/bin/sh\ncase "$*" in *{unknown}*) exit 1;; esac\nexec {" ".join(compiler)} "$@" -O0\n')
    older.chmod(0o755)
    monkeypatch.setenv("CXX", str(older))
    monkeypatch.setattr(build, "product_path", lambda: tmp_path / "product.so")
    found = Product(ctypes.CDLL(str(build.build())), tmp_path).variants
    assert found and "AMX" not in found
