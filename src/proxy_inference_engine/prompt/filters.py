"""The filters, tests and functions a chat template may use: what Hugging Face templates need, each of bounded cost.

Whatever is not listed here does not exist for a template.
"""

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, cast

from jinja2 import Undefined, pass_context, tests
from jinja2.exceptions import SecurityError, TemplateRuntimeError
from jinja2.filters import FILTERS as JINJA_FILTERS
from jinja2.runtime import Context
from jinja2.sandbox import safe_range
from jinja2.utils import Namespace
from markupsafe import escape

from proxy_inference_engine.prompt.budget import Budget

_MAX_PATTERN_CHARS = 1024  # some searches cost text times pattern
_MAX_FORMAT_CHARS = 256  # of strftime, which may widen each field
_MAX_INDENT = 64
_MAX_DIGITS = 15

JINJA_TESTS = cast(dict[str, Callable[..., Any]], tests.TESTS)
_SHALLOW_FILTERS = "d default first float int items last map reject rejectattr select selectattr"
_DEEP_FILTERS = "dictsort max min sort unique"
_TYPE_TESTS = (
    "boolean callable defined false float integer iterable mapping none number sameas sequence string true undefined"
)
_NUMBER_TESTS = "divisibleby even odd"
_COMPARISONS = "!= < <= == > >= eq equalto ge greaterthan gt in le lessthan lt ne"


class RenderContext(Context):
    """Jinja's context with what belongs to one rendering."""

    budget: Budget
    now: datetime

    def derived(self, locals: dict[str, Any] | None = None) -> "RenderContext":
        context = super().derived(locals)
        assert isinstance(context, RenderContext)
        context.budget, context.now = self.budget, self.now
        return context


class TemplateRefusal(TemplateRuntimeError):
    """The template itself says why it cannot render this conversation."""


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


def _join(budget: Budget, value: Any, d: Any = "") -> str:
    return join(budget, write(budget, d), value)


def _replace(budget: Budget, value: Any, old: Any, new: Any, count: int | None = None) -> str:
    text, old, new = (write(budget, each) for each in (value, old, new))
    return replace(budget, text, old, new, -1 if count is None else count)


def _indent(budget: Budget, value: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> Any:
    text = write(budget, value)
    step = len(width) if isinstance(width, str) else max(width, 0)
    budget.allow(len(text) + step * (2 + len(text.splitlines())))
    return JINJA_FILTERS["indent"](text, width, first, blank)


def _tojson(
    budget: Budget,
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    """As Hugging Face's: no HTML escapes, and other defaults than Jinja's."""
    budget.allow(budget.weigh(value, indent, separators))
    if (len(indent) if isinstance(indent, str) else indent or 0) > _MAX_INDENT:
        raise SecurityError("tojson indents too far")
    encoder = json.JSONEncoder(
        ensure_ascii=ensure_ascii, indent=indent, separators=separators and tuple(separators), sort_keys=sort_keys
    )
    if indent is None and separators is None:
        return encoder.encode(value)
    pieces = []
    for piece in encoder.iterencode(value):
        budget.tick()
        budget.spend(len(piece))
        pieces.append(piece)
    return "".join(pieces)


def _list(budget: Budget, value: Any) -> list[Any]:
    if isinstance(value, list | tuple | dict):
        budget.allow(8 * len(value))
    elif isinstance(value, str | range):
        budget.spend(40 * len(value))  # each element is a new object
    return list(value)


def _reverse(budget: Budget, value: Any) -> Any:
    return value[::-1] if isinstance(value, str) else _list(budget, value)[::-1]


def _trim(budget: Budget, value: Any, chars: str | None = None) -> str:
    check_pattern(chars)
    return write(budget, value).strip(chars)


def _sum(budget: Budget, value: Any, start: float = 0) -> Any:
    numbers = list(value)
    if not all(isinstance(number, int | float) for number in (start, *numbers)):
        raise SecurityError("sum adds numbers only")
    return sum(numbers, start)


def _round(budget: Budget, value: float, precision: int = 0, method: str = "common") -> Any:
    if abs(precision) > _MAX_DIGITS:
        raise SecurityError("round keeps too many digits")
    return JINJA_FILTERS["round"](value, precision, method)


def _text(change: Callable[[str], str]) -> Callable[[Budget, Any], str]:
    return lambda budget, value: change(write(budget, value))


def _own(function: Callable[..., Any]) -> Callable[..., Any]:
    """One of ours: it takes the budget first."""

    @pass_context
    def run(context: RenderContext, *args: Any, **kwargs: Any) -> Any:
        context.budget.tick()
        result = function(context.budget, *args, **kwargs)
        if isinstance(result, str | list):
            context.budget.spend(len(result))
        return result

    return run


def _borrowed(name: str, *, is_deep: bool) -> Callable[..., Any]:
    """One of Jinja's. A deep one reads or compares whole values, so these are weighed first."""
    function = JINJA_FILTERS[name]
    wants = getattr(function, "jinja_pass_arg", None)

    @pass_context
    def run(context: RenderContext, value: Any, *args: Any, **kwargs: Any) -> Any:
        context.budget.tick()
        if is_deep:
            value = value if isinstance(value, str | Mapping) else list(value)
            context.budget.spend(context.budget.weigh(value, *args, *kwargs.values()))
        if wants is None:
            return function(value, *args, **kwargs)
        first = {"context": context, "eval_context": context.eval_ctx, "environment": context.environment}[wants.name]
        return function(first, value, *args, **kwargs)

    return run


def _comparing(name: str) -> Callable[..., Any]:
    test = JINJA_TESTS[name]

    @pass_context
    def run(context: RenderContext, value: Any, other: Any) -> Any:
        context.budget.weigh(value, other)
        return test(value, other)

    return run


def _counting(name: str) -> Callable[..., Any]:
    test = JINJA_TESTS[name]

    def run(*numbers: Any) -> Any:
        if not all(isinstance(number, int | float) for number in numbers):
            raise SecurityError(f"{name} tests numbers only")
        return test(*numbers)

    return run


@pass_context
def _raise_exception(context: RenderContext, message: Any = "") -> str:
    raise TemplateRefusal(write(context.budget, message))


@pass_context
def _strftime_now(context: RenderContext, format: str) -> str:
    if not isinstance(format, str) or len(format) > _MAX_FORMAT_CHARS:
        raise SecurityError("strftime_now needs a short format")
    return context.now.strftime(format)


def _range(*bounds: int) -> range:
    try:
        return safe_range(*bounds)
    except OverflowError:
        raise SecurityError("range is too long") from None


def _dict(**items: Any) -> dict[str, Any]:
    return items


def _namespace(**items: Any) -> Namespace:
    return Namespace(**items)


FILTERS: dict[str, Callable[..., Any]] = {
    **{name: _borrowed(name, is_deep=False) for name in _SHALLOW_FILTERS.split()},
    **{name: _borrowed(name, is_deep=True) for name in _DEEP_FILTERS.split()},
    "abs": _own(lambda budget, value: abs(value)),
    "capitalize": _own(_text(str.capitalize)),
    "count": _own(lambda budget, value: len(value)),
    "e": _own(_text(lambda text: str(escape(text)))),
    "escape": _own(_text(lambda text: str(escape(text)))),
    "indent": _own(_indent),
    "join": _own(_join),
    "length": _own(lambda budget, value: len(value)),
    "list": _own(_list),
    "lower": _own(_text(str.lower)),
    "replace": _own(_replace),
    "reverse": _own(_reverse),
    "round": _own(_round),
    "safe": _own(_text(str)),  # nothing here escapes, so nothing needs to be marked
    "string": _own(_text(str)),
    "sum": _own(_sum),
    "title": _own(_text(JINJA_FILTERS["title"])),
    "tojson": _own(_tojson),
    "trim": _own(_trim),
    "upper": _own(_text(str.upper)),
}

TESTS: dict[str, Callable[..., Any]] = {
    **{name: JINJA_TESTS[name] for name in _TYPE_TESTS.split()},
    **{name: _counting(name) for name in _NUMBER_TESTS.split()},
    **{name: _comparing(name) for name in _COMPARISONS.split()},
    "lower": _own(lambda budget, value: write(budget, value).islower()),
    "upper": _own(lambda budget, value: write(budget, value).isupper()),
}

GLOBALS: dict[str, Any] = {
    "dict": _dict,
    "namespace": _namespace,
    "raise_exception": _raise_exception,
    "range": _range,
    "strftime_now": _strftime_now,
}
