"""The layout of the weights, chosen for a CPU: converted once, kept on disk.

llama.cpp has fast batch kernels for some quantisations only. A small model in one of the others is rewritten as Q8_0,
which barely moves the values and computes prompts about twice as fast, batches 1.4 times or more (`docs/log.md`).
"""

import logging
import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import llama_cpp

from proxy_inference_engine.runners.llama_cpp import library
from proxy_inference_engine.runners.llama_cpp.model import Model

_log = logging.getLogger(__name__)

_SLOW_FILE_TYPES = {"3": "Q4_1", "8": "Q5_0", "9": "Q5_1"}  # general.file_type of what has no batch kernels
_Q8_0 = 7
_MAX_BYTES = 1 << 30  # beyond, decoding is bound by the bytes of the weights, and Q8_0 has more of them


def fastest_weights(path: Path, *, cache_dir: Path, threads: int, report: Callable[[str], None]) -> Path:
    """The file to load: the given one, or its conversion. Whatever goes wrong, the given one."""
    library.start()
    if not _is_slow(path):
        return path
    status = path.stat()
    facts = (str(path.resolve()), status.st_size, status.st_mtime_ns, library.version())
    converted = cache_dir / "weights" / f"{path.stem}-{sha256(repr(facts).encode()).hexdigest()[:12]}-q8_0.gguf"
    if converted.exists():
        return converted
    report("converting the weights to a layout that this processor computes faster (once)…")
    try:
        converted.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _convert(path, converted, threads)
    except (OSError, RuntimeError) as error:
        _log.warning("the weights stay as they are: %s", error)
        return path
    return converted


def _is_slow(path: Path) -> bool:
    if path.stat().st_size > _MAX_BYTES:
        return False
    model = Model(path, vocab_only=True)
    try:
        is_split = model.metadata("split.count") not in (None, "0", "1")
        return model.metadata("general.file_type") in _SLOW_FILE_TYPES and not is_split
    finally:
        model.close()


def _convert(path: Path, target: Path, threads: int) -> None:
    """Written beside the target and renamed, so that a half-written file is never taken for weights, nor one that
    another process writes too."""
    partial = target.with_suffix(f".{os.getpid()}.part")
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = _Q8_0
    params.nthread = threads
    params.allow_requantize = True
    if llama_cpp.llama_model_quantize(str(path).encode(), str(partial).encode(), params) != 0:
        partial.unlink(missing_ok=True)
        raise RuntimeError("llama.cpp could not convert them")
    partial.replace(target)
