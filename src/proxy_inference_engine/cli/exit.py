"""The end of the program, also where a model is still being loaded, or a module imported."""

import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

INTERRUPTED = 130  # what a shell reports for a program that Ctrl-C ended


def leave(code: int) -> int:
    """The code, for whoever ends the program with it; or its end at once.

    The library crashes when the program ends under a thread that computes, and a load that hangs does not end.
    """
    if any(thread.name == "engine" for thread in threading.enumerate()):
        _end(code)
    return code


@contextlib.contextmanager
def interrupted_imports() -> Iterator[None]:
    """Ctrl-C while a module is imported ends the program at once, and is a KeyboardInterrupt anywhere else.

    Not every module expects one: some print what they were at, and in some of Python's own places it is lost.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield  # somebody else decides, or a shell started it in the background
        return
    signal.signal(signal.SIGINT, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    caller = frame
    while caller is not None:
        if caller.f_code.co_filename.startswith("<frozen importlib"):
            with contextlib.suppress(OSError):
                os.write(2, b"\n")
            _end(INTERRUPTED)
        caller = caller.f_back
    signal.default_int_handler(number, frame)


def _end(code: int) -> None:
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, RuntimeError, ValueError):  # closed, busy, or never there
            stream.flush()
    os._exit(code)
