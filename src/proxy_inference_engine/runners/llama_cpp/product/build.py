"""The product compiled for this kind of machine: seconds of any C++ compiler. It stands beside the environment's own
libraries, under a name that changes with its source. It has all variants that the compiler knows, and which of them
runs is chosen at the start: an image made on one machine runs on another.

`python -m proxy_inference_engine.runners.llama_cpp.product.build` compiles it where that can be done; `make` calls it.
"""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

_FOLDER = Path(__file__).parent
_SOURCE = _FOLDER / "product.cpp"
_COMPILERS = ("c++", "g++", "clang++")
_FLAGS = ("-O3", "-std=c++17", "-fPIC", "-w")  # GCC's own headers warn where they are inlined
_AVX2 = ("-mavx2", "-mfma", "-mf16c")
_SHOWN_LINES = 5


class Variant(NamedTuple):
    """A source of its own name and what the compiler is told for it."""

    name: str
    flags: tuple[str, ...]


class Architecture(NamedTuple):
    title: str
    cpuinfo: str  # the line with what a processor has
    needed: tuple[str, ...]  # in it, for the least of the variants
    variants: tuple[Variant, ...]


_AVX512 = tuple(f"-mavx512{part}" for part in ("f", "bw", "dq", "vl", "vnni"))
_ARCHITECTURES = {
    "x86_64": Architecture(
        "x86-64",
        "flags",
        ("avx2", "fma", "f16c"),
        (
            Variant("amx", (*_AVX2, *_AVX512, "-mamx-tile", "-mamx-int8")),
            Variant("avx512", (*_AVX2, *_AVX512)),
            Variant("avx_vnni", (*_AVX2, "-mavxvnni")),
            Variant("avx2", _AVX2),
        ),
    ),
    "aarch64": Architecture(
        "ARM64", "Features", ("asimddp",), (Variant("neon", ("-march=armv8.2-a+dotprod", "-ffp-contract=off")),)
    ),
}


class BuildError(Exception):
    """Says what is missing or what the compiler said."""


def variants(machine: str = platform.machine()) -> tuple[Variant, ...]:
    """The variants for a kind of processor, the best first."""
    return _ARCHITECTURES[machine].variants if machine in _ARCHITECTURES else ()


def product_path() -> Path:
    """Where the compiled product is, or would be."""
    digest = hashlib.sha256(repr((_FLAGS, variants())).encode())
    for path in sorted([*_FOLDER.glob("*.h"), *_FOLDER.glob("*.cpp")]):
        digest.update(path.read_bytes())
    return Path(sys.prefix) / "lib" / f"pie-product-{digest.hexdigest()[:12]}.so"


def missing_features(cpuinfo: Path = Path("/proc/cpuinfo")) -> list[str]:
    """What this machine lacks for the product: there is one for Linux on x86-64 with AVX2 and on ARM64 with dotprod."""
    architecture = _ARCHITECTURES.get(platform.machine())
    if sys.platform != "linux" or architecture is None:
        return ["Linux on " + " or ".join(each.title for each in _ARCHITECTURES.values())]
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    found = next((line.split() for line in lines if line.startswith(architecture.cpuinfo)), None)
    if found is None:
        return [str(cpuinfo)]
    return [name for name in architecture.needed if name not in found]


def find_compiler() -> list[str] | None:
    """The words of the command: `CXX` may have options in it."""
    words = os.environ.get("CXX", "").split()
    if words:
        return words if shutil.which(words[0]) else None
    found = next((program for program in _COMPILERS if shutil.which(program)), None)
    return [found] if found else None


def build() -> Path:
    """Compile it where that was not done already. Raises BuildError."""
    path = product_path()
    if path.exists():
        return path
    missing = missing_features()
    if missing:
        raise BuildError(f"this machine lacks {', '.join(missing)}")
    compiler = find_compiler()
    if compiler is None:
        raise BuildError("no C++ compiler found")
    try:
        _compile(compiler, path)
    except OSError as error:
        raise BuildError(f"it could not be written: {error}") from None
    return path


def _compile(compiler: list[str], path: Path) -> None:
    """Into a file beside it first: another process may look for it meanwhile."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix="pie-product-") as folder:
        with ThreadPoolExecutor() as pool:
            made = list(pool.map(lambda variant: _compile_variant(compiler, variant, Path(folder)), variants()))
        objects = [each for each in made if isinstance(each, Path)]
        if not objects:
            raise next(each for each in made if isinstance(each, BuildError))
        known = [f"-DWITH_{each.stem.upper()}" for each in objects]
        library = Path(folder) / path.name
        _run([*compiler, *_FLAGS, *known, "-shared", str(_SOURCE), *map(str, objects), "-o", str(library)])
        library.replace(path)


def _compile_variant(compiler: list[str], variant: Variant, folder: Path) -> Path | BuildError:
    """An older compiler does not know every kind of processor: the product does without that variant."""
    made = folder / f"{variant.name}.o"
    try:
        _run([*compiler, *_FLAGS, *variant.flags, "-c", str(_FOLDER / f"{variant.name}.cpp"), "-o", str(made)])
    except BuildError as error:
        return error
    return made


def _run(command: list[str]) -> None:
    answer = subprocess.run(command, capture_output=True, text=True, errors="replace")
    if answer.returncode != 0:
        lines = answer.stderr.strip().splitlines()[:_SHOWN_LINES]
        raise BuildError("the compiler failed: " + "\n  | ".join(lines or ["without a word"]))


def main() -> int:
    """Says nothing where there is nothing to do, or nothing that can be done: the start names what would be faster."""
    if product_path().exists() or missing_features() or find_compiler() is None:
        return 0
    print("Compiling a faster product for this processor", flush=True)
    try:
        build()
    except BuildError as error:
        print(f"  llama.cpp's own is used: {error}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
