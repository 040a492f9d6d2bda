"""The product compiled for this machine: three seconds of any C++ compiler. It stands beside the environment's own
libraries, under a name that changes with its source.

`python -m proxy_inference_engine.runners.llama_cpp.product.build` compiles it where that can be done; `make` calls it.
"""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

_FOLDER = Path(__file__).parent
_SOURCE = _FOLDER / "product.cpp"
_COMPILERS = ("c++", "g++", "clang++")
_NEEDED = ("avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni", "fma", "f16c", "avx2")
_FLAGS = (
    *("-O3", "-std=c++17", "-shared", "-fPIC", "-w"),  # GCC's own headers warn where they are inlined
    *(f"-m{name.replace('_', '')}" for name in _NEEDED),
)
_SHOWN_LINES = 5


class BuildError(Exception):
    """Says what is missing or what the compiler said."""


def product_path() -> Path:
    """Where the compiled product is, or would be."""
    digest = hashlib.sha256(" ".join(_FLAGS).encode())
    for path in [*sorted(_FOLDER.glob("*.h")), _SOURCE]:
        digest.update(path.read_bytes())
    return Path(sys.prefix) / "lib" / f"pie-product-{digest.hexdigest()[:12]}.so"


def missing_features(cpuinfo: Path = Path("/proc/cpuinfo")) -> list[str]:
    """What this machine lacks for the product: there is one for Linux on x86-64 with AVX-512 VNNI."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return ["Linux on x86-64"]
    try:
        flags = next(line for line in cpuinfo.read_text().splitlines() if line.startswith("flags")).split()
    except (OSError, StopIteration):
        return ["/proc/cpuinfo"]
    return [name for name in _NEEDED if name not in flags]


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
        made = Path(folder) / path.name
        command = [*compiler, *_FLAGS, str(_SOURCE), "-o", str(made)]
        answer = subprocess.run(command, capture_output=True, text=True, errors="replace")
        if answer.returncode != 0:
            lines = answer.stderr.strip().splitlines()[:_SHOWN_LINES]
            raise BuildError("the compiler failed: " + "\n  | ".join(lines or ["without a word"]))
        made.replace(path)


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
