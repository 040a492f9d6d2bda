"""How much Python a call runs and holds: lines and bytes, which are the same on every machine, unlike its time."""

import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType
from typing import Any


class TooMuch(BaseException):
    """Raised inside the work itself, so that what would never end fails instead. Nothing that works catches it."""


def lines_of(work: Callable[[], Any], most: int) -> int:
    """How many lines it runs; raises TooMuch at the line that is one too many."""
    num_lines = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal num_lines
        if event == "line":
            num_lines += 1
            if num_lines > most:
                raise TooMuch(f"{frame.f_code.co_filename}:{frame.f_lineno}")
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return num_lines


def bytes_of(work: Callable[[], Any]) -> int:
    """How many bytes it holds at most at once."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
