"""What one rendering of a chat template may cost: CPU time, the size of any value, and all memory traffic together.

Nothing can stop a single long operation of the interpreter from outside, so every operation of the template language
asks here *before* it makes anything big (`sandbox.py`, `filters.py`).
"""

import time
from collections.abc import ItemsView, KeysView, Sequence, ValuesView
from typing import Any

from jinja2 import Undefined
from jinja2.exceptions import SecurityError

MAX_CPU_SECONDS = 1.0
_FREE_SIZE = 1 << 20
_FREE_WORK = 64 << 20
_POINTER = 8
_LARGE = 1 << 14  # after handling this much the clock is looked at again
_TICKS_PER_LOOK = 32  # looking at the clock costs as much as several operations


class BudgetExceeded(SecurityError):
    """The template takes too long, or makes too much."""


class Budget:
    """Sizes count characters of text and eight for everything else of a container.

    `max_size` bounds each value and the output: four times the input and one MiB. The sum of everything ever made is
    bounded too, because a template can keep it all in a list.
    """

    __slots__ = ("_deadline", "_ticks", "_work", "max_size")

    def __init__(self, num_input_chars: int, cpu_seconds: float = MAX_CPU_SECONDS) -> None:
        self.max_size = 4 * num_input_chars + _FREE_SIZE
        self._work = 16 * self.max_size + _FREE_WORK
        self._ticks = _TICKS_PER_LOOK
        self._deadline = time.thread_time() + cpu_seconds

    def tick(self) -> None:
        """Once for every operation and every turn of a loop."""
        self._ticks -= 1
        if self._ticks < 0:
            self._ticks = _TICKS_PER_LOOK
            if time.thread_time() > self._deadline:
                raise BudgetExceeded("the chat template takes too long")

    def spend(self, size: int) -> None:
        """Account for something of a size that cannot surprise."""
        self._work -= size
        if self._work < 0:
            raise BudgetExceeded("the chat template needs too much memory")
        if size > _LARGE:
            self._ticks = 0

    def allow(self, size: int) -> None:
        """Account for one value before it is made."""
        if size > self.max_size:
            raise BudgetExceeded("the chat template makes a value that is too large")
        self.spend(size)

    def weigh(self, *values: Any) -> int:
        """The size of values; raises when that is too large, and for anything that is not plain data."""
        size = weigh(values, self.max_size)
        if size > _LARGE:
            self._ticks = 0
        return size


def weigh(values: Sequence[Any], max_size: int) -> int:
    """The size of values as they would be written out, what they share counted each time."""
    total = 0
    stack = list(values)
    while stack:
        value = stack.pop()
        if isinstance(value, str):
            total += len(value)
        else:
            parts = _parts(value)
            total += _POINTER * (1 + len(parts))
            stack.extend(parts)
        if total > max_size:
            raise BudgetExceeded("the chat template uses a value that is too large")
    return total


def _parts(value: Any) -> list[Any]:
    if value is None or isinstance(value, int | float | range | Undefined):
        return []
    if isinstance(value, dict):
        return [*value.keys(), *value.values()]
    if isinstance(value, list | tuple | KeysView | ValuesView | ItemsView):
        return list(value)
    raise SecurityError(f"a {type(value).__name__} is no plain value")
