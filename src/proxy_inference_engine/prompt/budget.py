"""What one rendering of a chat template may cost, and the operations on values that ask before they make anything big.

The budget bounds CPU time, the size of any value, and all memory traffic together. Nothing can stop a single long
operation of the interpreter from outside, so every operation of the template language asks here *before* it runs.
"""

import re
import time
from collections.abc import Callable, ItemsView, Iterator, KeysView, Sequence, ValuesView
from datetime import datetime
from types import BuiltinMethodType
from typing import Any

from jinja2 import Undefined, pass_context
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context

MAX_CPU_SECONDS = 1.0
_FREE_SIZE = 1 << 20
_FREE_WORK = 64 << 20
_POINTER = 8
_LARGE = 1 << 14  # after handling this much the clock is looked at again
_TICKS_PER_LOOK = 32  # looking at the clock costs as much as several operations
_MAX_PATTERN_CHARS = 1024  # some searches cost text times pattern
_MAX_INT_BITS = 1024
_PIECE = 64  # a small string in a list
_SIMPLE_FIELD = re.compile(r"\{\{|\}\}|\{\w*\}")
_AT_AN_END = frozenset({"endswith", "removeprefix", "removesuffix", "startswith"})
_CUTTING = frozenset({"rsplit", "split", "splitlines"})


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


class RenderContext(Context):
    """Jinja's context with what belongs to one rendering."""

    budget: Budget
    now: datetime
    _given: frozenset[int] | None = None  # ids of the lists that came from outside

    def is_given(self, value: list[Any]) -> bool:
        """Whether a list is part of what the template was given, which other renderings use too."""
        if self._given is None:
            self._given = frozenset(map(id, _lists(list(self.parent.values()))))
        return id(value) in self._given

    def derived(self, locals: dict[str, Any] | None = None) -> "RenderContext":
        context = super().derived(locals)
        assert isinstance(context, RenderContext)
        context.budget, context.now = self.budget, self.now
        return context


def _lists(values: list[Any]) -> Iterator[list[Any]]:
    for value in values:
        if isinstance(value, list):
            yield value
            yield from _lists(value)
        elif isinstance(value, dict):
            yield from _lists(list(value.values()))


def write(budget: Budget, value: Any) -> str:
    """Any plain value as text."""
    if isinstance(value, str):
        return value
    if value is not None and not isinstance(value, int | float | Undefined):
        budget.allow(budget.weigh(value))
    return str(value)


def replace(budget: Budget, text: str, old: str, new: str, count: int = -1) -> str:
    check_pattern(old)
    num_matches = text.count(old) if count < 0 else min(count, text.count(old))
    budget.allow(len(text) + num_matches * max(len(new) - len(old), 0))
    return text.replace(old, new, count)


def join(budget: Budget, separator: str, items: Any) -> str:
    texts = [write(budget, item) for item in items]
    budget.allow(sum(map(len, texts)) + len(separator) * len(texts))
    return separator.join(texts)


def check_pattern(*patterns: Any) -> None:
    if any(isinstance(pattern, str) and len(pattern) > _MAX_PATTERN_CHARS for pattern in patterns):
        raise SecurityError("the chat template searches for a text that is too long")


def check_operation(budget: Budget, operator: str, left: Any, right: Any) -> None:
    kinds = (type(left), type(right))
    if operator == "+" and kinds in ((str, str), (list, list), (tuple, tuple)):
        budget.allow(_size(left) + _size(right))
    elif operator == "*" and isinstance(right, int) and isinstance(left, str | list | tuple):
        budget.allow(_size(left) * max(right, 0))
    elif operator == "*" and isinstance(left, int) and isinstance(right, str | list | tuple):
        budget.allow(_size(right) * max(left, 0))
    elif isinstance(left, int | float) and isinstance(right, int | float):
        if operator == "**" and isinstance(left, int) and left.bit_length() * abs(right) > _MAX_INT_BITS:
            raise SecurityError("the chat template computes with numbers that are too large")
    elif isinstance(left, str) or not (isinstance(left, Undefined) or isinstance(right, Undefined)):
        raise SecurityError(f"cannot compute {kinds[0].__name__} {operator} {kinds[1].__name__}")


def check_number(value: Any) -> Any:
    if isinstance(value, int) and value.bit_length() > _MAX_INT_BITS:
        raise SecurityError("the chat template computes with numbers that are too large")
    return value


def check_key(value: Any) -> Any:
    """Tuples are no keys: hashing nested ones can take for ever."""
    if isinstance(value, tuple):
        raise SecurityError("a tuple cannot be a key in a chat template")
    return value


def call_method(budget: Budget, method: BuiltinMethodType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call one of the methods the sandbox lets a template reach."""
    owner, name = method.__self__, method.__name__
    if isinstance(owner, list):
        budget.spend(_POINTER * sum(len(arg) if isinstance(arg, list | tuple) else 1 for arg in args))
    if not isinstance(owner, str):
        return method(*(check_key(arg) for arg in args), **kwargs)
    if name == "join":
        return join(budget, owner, *args, **kwargs)
    if name == "replace":
        return replace(budget, owner, *args, **kwargs)
    if name not in _AT_AN_END:
        check_pattern(*args, *kwargs.values())
    budget.spend(len(owner))
    if name in _CUTTING:
        separator = args[0] if args else kwargs.get("sep")
        budget.spend(_PIECE * (owner.count(separator) if isinstance(separator, str) and separator else len(owner) // 2))
    return method(*args, **kwargs)


def formatter(text: str) -> Callable[..., str]:
    """`text.format` for fields that name a value and nothing else."""
    if re.search("[{}]", _SIMPLE_FIELD.sub("", text)):
        raise SecurityError("format takes only plain fields in chat templates")

    @pass_context
    def run(context: RenderContext, *args: Any, **kwargs: Any) -> str:
        weight = context.budget.weigh(*args, *kwargs.values())
        context.budget.allow(len(text) + text.count("{") * weight)
        return text.format(*args, **kwargs)

    return run


def _size(value: Any) -> int:
    return len(value) if isinstance(value, str) else 8 * len(value)
