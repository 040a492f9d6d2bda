"""The layout of the weights, chosen for a CPU: converted once, kept on disk.

llama.cpp has fast batch kernels for some quantisations only. A small model in one of the others is rewritten as Q8_0,
which barely moves the values and computes prompts about twice as fast, batches 1.4 times or more (`docs/log.md`).
"""

import logging
import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from proxy_inference_engine.runners.llama_cpp.conversion import convert
from proxy_inference_engine.runners.llama_cpp.header import GgufHeader, read_header

_log = logging.getLogger(__name__)

_SLOW_FILE_TYPES = {3: "Q4_1", 8: "Q5_0", 9: "Q5_1"}  # general.file_type of what has no batch kernels
MAX_BYTES = 1 << 30  # beyond, decoding is bound by the bytes of the weights, and Q8_0 has more of them
MAX_GROWTH = 34 / 18  # of a file by its conversion: bytes of a block in Q8_0 and in the narrowest of the slow ones
_MANNER = "q8_0 of slow tensors, 1"  # changes with what is written, so that older files are not taken for it


def fastest_weights(
    path: Path,
    *,
    cache_dir: Path,
    threads: int,
    report: Callable[[str], None],
    on_progress: Callable[[float], None] | None = None,
) -> Path:
    """The file to load: the given one, or its conversion. Whatever goes wrong, the given one."""
    if not is_slow(path):
        return path
    status = path.stat()
    facts = (str(path.resolve()), status.st_size, status.st_mtime_ns, _MANNER)
    converted = cache_dir / "weights" / f"{path.stem}-{sha256(repr(facts).encode()).hexdigest()[:12]}-q8_0.gguf"
    if converted.exists():
        return converted
    report("converting the weights to a layout that this processor computes faster (once)…")
    # Written beside the target and renamed, so that a half-written file is never taken for weights, nor one that
    # another process writes too.
    partial = converted.with_suffix(f".{os.getpid()}.part")
    try:
        converted.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        convert(path, partial, threads=threads, on_progress=on_progress)
        partial.replace(converted)
    except (OSError, ValueError) as error:
        _log.warning("the weights stay as they are: %s", error)
        _remove(partial)
        return path
    return converted


def is_slow(path: Path) -> bool:
    """Whether its weights would be converted."""
    try:
        num_bytes = path.stat().st_size
        return num_bytes <= MAX_BYTES and is_slow_layout(read_header(path), num_bytes)
    except (OSError, ValueError):
        return False  # loading it says what is wrong


def is_slow_layout(header: GgufHeader, num_bytes: int) -> bool:
    """Whether a file with such a header, which need not be here, has weights in a layout that is slow."""
    is_split = header.number("split.count") not in (None, 0, 1)
    return num_bytes <= MAX_BYTES and header.number("general.file_type") in _SLOW_FILE_TYPES and not is_split


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        _log.debug("%s stays: %s", path, error)
