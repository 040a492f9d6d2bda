"""What operators and methods of plain values may do in a chat template, checked before they run."""

import re
from collections.abc import Callable
from types import BuiltinMethodType
from typing import Any

from jinja2 import Undefined, pass_context
from jinja2.exceptions import SecurityError

from proxy_inference_engine.prompt.budget import Budget
from proxy_inference_engine.prompt.filters import RenderContext, check_pattern, join, replace

_MAX_INT_BITS = 1024
_PIECE = 64  # a small string in a list
_SIMPLE_FIELD = re.compile(r"\{\{|\}\}|\{\w*\}")
_AT_AN_END = frozenset({"endswith", "removeprefix", "removesuffix", "startswith"})
_CUTTING = frozenset({"rsplit", "split", "splitlines"})


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
