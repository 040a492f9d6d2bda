"""llama.cpp's library: started once per process, quiet unless something is wrong."""

import ctypes
import logging
from typing import Any

import llama_cpp

_log = logging.getLogger("llama.cpp")
_LEVELS = {3: logging.DEBUG, 4: logging.ERROR}  # its warnings are for those who develop it
_kept: list[Any] = []  # ctypes frees a callback that nobody refers to, and the next log line would crash


def start() -> None:
    """Initialise the library; harmless when repeated."""
    if _kept:
        return
    callback = llama_cpp.llama_log_callback(_write)
    _kept.append(callback)
    llama_cpp.llama_log_set(callback, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()


def log_callback() -> Any:
    """Where the library's own libraries are to write, once it is started."""
    return _kept[0]


def _write(level: int, text: bytes, _user_data: object) -> None:
    if level in _LEVELS:
        _log.log(_LEVELS[level], text.decode(errors="replace").rstrip())


def version() -> str:
    return f"llama-cpp-python {llama_cpp.__version__}"
