"""Libraries that are not quite llama.cpp, compiled when a test wants one: all functions, and nothing behind them."""

import ctypes
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from proxy_inference_engine.runners.llama_cpp.binding import (
    FUNCTIONS,
    IMAGE_FUNCTIONS,
    llama_context_params,
    llama_model_params,
    mtmd_context_params,
)
from proxy_inference_engine.runners.llama_cpp.library import start

POINTER_BYTES = ctypes.sizeof(ctypes.c_void_p)
DEFAULTS = {
    "llama_model_default_params": llama_model_params,
    "llama_context_default_params": llama_context_params,
    "mtmd_context_params_default": mtmd_context_params,
}


def default_bytes(function: str) -> bytes:
    """What the real library gives, without the room at the end."""
    struct = DEFAULTS[function]
    return bytes(getattr(start().binding, function)())[: struct.room.offset]


def compile_library(path: Path, *, without: str = "", uses: Sequence[str] = (), **defaults: bytes) -> Path:
    """A shared library with some default parameters other than the real ones, without a function, or one that says that
    it was compiled for more than others."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler to make a false library with")
    lines = ["#include <string.h>", *(f"int ggml_cpu_has_{name}(void) {{ return 1; }}" for name in uses)]
    for name in (*FUNCTIONS, *(IMAGE_FUNCTIONS if start().binding.takes_images else ())):
        if name == without:
            continue
        if name not in DEFAULTS:
            lines.append(f"void *{name}(void) {{ return 0; }}")
            continue
        data = defaults.get(name, default_bytes(name))
        numbers = ",".join(map(str, data))
        lines.append(f"struct {name} {{ _Alignas({POINTER_BYTES}) unsigned char data[{len(data)}]; }};")
        lines.append(f"static const struct {name} of_{name} = {{{{ {numbers} }}}};")
        lines.append(f"struct {name} {name}(void) {{ return of_{name}; }}")
    source = path.with_suffix(".c")
    source.write_text("\n".join(lines))
    command = [compiler, "-shared", "-fPIC", "-w", "-o", str(path), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    return path
