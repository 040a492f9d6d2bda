"""llama.cpp's library: the first of several that proves itself, started once per process, quiet unless something fails.

In this order: one that the operator names, one compiled for this processor (`make native`: llama-cpp-python's), and
the prebuilt one (the package xllamacpp, whose extension module has all of llama.cpp; its Python part is not run).
"""

import contextlib
import importlib.util
import logging
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.runners.llama_cpp import defaults, self_test
from proxy_inference_engine.runners.llama_cpp.binding import Binding, log_callback
from proxy_inference_engine.runners.llama_cpp.processor import missing_features
from proxy_inference_engine.runners.llama_cpp.product.hook import Product, attach

Origin = Literal["named", "native", "prebuilt"]

_log = logging.getLogger(__name__)
_library_log = logging.getLogger("llama.cpp")
_LEVELS = {3: logging.DEBUG, 4: logging.ERROR}  # its warnings are for those who develop it
_SUFFIXES = {"darwin": (".dylib", ".so"), "win32": (".dll", ".pyd")}
_PLACES: tuple[tuple[Origin, str, str], ...] = (
    ("native", "llama_cpp", "lib/*llama"),
    ("prebuilt", "xllamacpp", "xllamacpp*"),
)
_kept: list[Any] = []  # ctypes frees a callback that nobody refers to, and the next log line would crash


class Candidate(NamedTuple):
    origin: Origin
    path: Path


class Library(NamedTuple):
    origin: Origin
    binding: Binding
    product: Product | None = None  # ours for many columns, where it was compiled

    @property
    def version(self) -> str:
        """The version of the source and what it was compiled for: numbers differ in their last bits with either."""
        words = (self.binding.ggml_version(), self.binding.llama_print_system_info())
        product = [] if self.product is None else [self.product.path.stem, self.product.variant]
        return " ".join([*(word.decode(errors="replace") for word in words), *product])


@cache
def start(named: Path | None = None) -> Library:
    """The library to use; each is loaded once. Raises StartupError where none can be used."""
    for candidate in candidates(named):
        try:
            return load(candidate)
        except (OSError, ValueError) as error:
            _log.warning("%s llama.cpp %s is not used: %s", candidate.origin, candidate.path, _advice(str(error)))
    raise StartupError(
        "no llama.cpp library works here: `make install` brings a prebuilt one, `pie optimize` compiles one"
    )


def candidates(named: Path | None = None) -> Iterator[Candidate]:
    """Files that may be a library, the best first."""
    if named is not None:
        yield Candidate("named", named)
    for origin, package, pattern in _PLACES:
        for folder in _folders(package):
            for suffix in _SUFFIXES.get(sys.platform, (".so",)):
                found = sorted(folder.glob(pattern + suffix))
                if found:
                    yield Candidate(origin, found[0])
                    break


@cache
def load(candidate: Candidate) -> Library:
    """Start a library that has proved itself. Raises OSError or ValueError, which say why not."""
    binding = Binding(candidate.path)
    missing = missing_features(binding)
    if missing:
        raise ValueError(f"this processor lacks {', '.join(missing)}")
    found = defaults.difference(binding)
    if found is not None:
        raise ValueError(f"it is another version than the one that is known here: {found}")
    callback = log_callback(_write)
    _kept.append(callback)
    binding.llama_log_set(callback, None)
    if binding.takes_images:
        binding.mtmd_log_set(callback, None)
    binding.llama_backend_init()
    product: Product | None = None
    with contextlib.suppress(OSError):  # there is no folder for its file
        found = self_test.failure(binding)
        product = attach(binding) if found is None else None
    if found is not None:
        raise ValueError(found)
    return Library(candidate.origin, binding, product)


def _folders(package: str) -> list[Path]:
    """Where an installed package lies, without running any of it."""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return []
    return [Path(folder) for folder in spec.submodule_search_locations or ()] if spec is not None else []


def _advice(reason: str) -> str:
    return f"{reason} (Debian and Ubuntu: apt install libgomp1)" if "libgomp" in reason else reason


def _write(level: int, text: bytes, _user_data: object) -> None:
    if level in _LEVELS:
        _library_log.log(_LEVELS[level], text.decode(errors="replace").rstrip())
