"""The filters, tests and functions a chat template may use: what Hugging Face templates need, each of bounded cost.

Whatever is not listed here does not exist for a template.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, cast

from jinja2 import pass_context, tests
from jinja2.exceptions import SecurityError, TemplateRuntimeError
from jinja2.filters import FILTERS as JINJA_FILTERS
from jinja2.sandbox import safe_range
from jinja2.utils import Namespace
from markupsafe import escape

from proxy_inference_engine.prompt.budget import Budget, RenderContext, check_pattern, join, replace, write

_MAX_FORMAT_CHARS = 256  # of strftime, which may widen each field
_MAX_INDENT = 64
_MAX_DIGITS = 15
_CHARS_PER_VALUE = 8  # `[[[[`: each sign may be a value of its own
_PLAIN_FIELD = re.compile(r"%%|%(?:\(\w+\))?[sdr]")

JINJA_TESTS = cast(dict[str, Callable[..., Any]], tests.TESTS)
_SHALLOW_FILTERS = "d default first float int items last map reject rejectattr select selectattr"
_DEEP_FILTERS = "dictsort max min sort unique"
_TYPE_TESTS = (
    "boolean callable defined false float integer iterable mapping none number sameas sequence string true undefined"
)
_NUMBER_TESTS = "divisibleby even odd"
_COMPARISONS = "!= < <= == > >= eq equalto ge greaterthan gt in le lessthan lt ne"


class TemplateRefusal(TemplateRuntimeError):
    """The template itself says why it cannot render this conversation."""


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
    """A value as JSON text, as Hugging Face writes it: no HTML escapes, and other defaults than Jinja's."""
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


def _from_json(budget: Budget, value: Any) -> Any:
    """The value that a JSON text writes; what is no text is a value already."""
    if not isinstance(value, str):
        return value
    budget.allow(_CHARS_PER_VALUE * len(value))
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise TemplateRuntimeError("from_json was given a text that is no JSON") from None


def _format(budget: Budget, value: Any, *args: Any, **kwargs: Any) -> str:
    """`"%s" | format(text)`: fields without a width, which could be any."""
    pattern = write(budget, value)
    if re.search("%", _PLAIN_FIELD.sub("", pattern)):
        raise SecurityError("format takes only plain fields in chat templates")
    budget.allow(len(pattern) + pattern.count("%") * budget.weigh(*args, *kwargs.values()))
    return pattern % (kwargs or args)


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
    """A filter or test of our own, whose function takes the budget first."""

    @pass_context
    def run(context: RenderContext, *args: Any, **kwargs: Any) -> Any:
        context.budget.tick()
        result = function(context.budget, *args, **kwargs)
        if isinstance(result, str | list):
            context.budget.spend(len(result))
        return result

    return run


def _borrowed(name: str, *, is_deep: bool) -> Callable[..., Any]:
    """A filter of Jinja's. A deep one reads or compares whole values, so these are weighed first."""
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
    "format": _own(_format),
    "from_json": _own(_from_json),
    "fromjson": _own(_from_json),
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
