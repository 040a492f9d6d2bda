"""The keywords the library takes, one kind of value at a time: written as it needs them, or found impossible."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from proxy_inference_engine.state_machine.json_schema.budget import StepBudget
from proxy_inference_engine.state_machine.json_schema.errors import NotEnforceable
from proxy_inference_engine.state_machine.json_schema.formats import OF_THE_LIBRARY, PATTERNS
from proxy_inference_engine.state_machine.json_schema.keywords import (
    OF_NUMBERS,
    children,
    is_integral,
    is_number,
    is_whole,
    lengths,
    mapped,
)
from proxy_inference_engine.state_machine.json_schema.languages import language_of
from proxy_inference_engine.state_machine.json_schema.regexes import (
    SPACE,
    RegexError,
    as_members_text,
    complement,
    is_anchored_simply,
    read,
)
from proxy_inference_engine.state_machine.json_schema.result import divisor_of

MAX_EXACT = 2**53
_BOUNDS = OF_NUMBERS - {"multipleOf"}
MAX_INTEGER = 2**63 - 1
MIN_INTEGER = -(2**63) + 1024  # the library reads bounds as floating point, and has no range from its very last
UNWRITABLE = frozenset(map(chr, (*range(32), 127))) - set("\b\f\n\r\t")
_LOOKS = ("(?=", "(?!", "(?<=", "(?<!", "\\b", "\\B")

_ANY = r"[\s\S]"
_SPACES = {"\\s": as_members_text(SPACE), "\\S": as_members_text(complement(SPACE))}

Report = Callable[[str, NotEnforceable], Any]


def numbers(schema: Mapping[str, Any], report: Report) -> dict[str, Any] | None:
    """Bounds of numbers; None where no number is left."""
    result: dict[str, Any] = {key: value for key, value in schema.items() if key in OF_NUMBERS}
    for closed, opened in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(result.get(opened), bool):
            is_open = result.pop(opened)
            if is_open and closed in result:
                result[opened] = result.pop(closed)
    if "multipleOf" in result and not divisor_of(result["multipleOf"]).is_held:
        report("multipleOf", NotEnforceable("The number has too many digits for its multiples to be enforced."))
        del result["multipleOf"]
    is_whole = is_integral(schema)
    for key in [key for key in result if key != "multipleOf"]:
        try:
            result[key] = _exact(result[key], key in {"minimum", "exclusiveMinimum"}, is_whole)
        except NotEnforceable as failure:
            report(key, failure)
            del result[key]
    return result if _has_room(result, is_whole) else None


def _exact(bound: Any, is_lower: bool, is_whole: bool) -> Any:
    """The bound as a number the library can hold, never a wider one."""
    limit = MAX_INTEGER if is_whole else MAX_EXACT
    if is_whole and bound < MIN_INTEGER and is_lower:
        return MIN_INTEGER
    if abs(bound) > limit:
        if (bound > 0) == is_lower:
            raise NotEnforceable("The bound has more digits than can be compared.")
        return -limit if is_lower else limit
    if isinstance(bound, float) or abs(bound) <= MAX_EXACT or abs(bound) == MAX_INTEGER:
        return bound
    nearest = float(bound)
    if nearest != bound and (nearest < bound) == is_lower:
        nearest = math.nextafter(nearest, math.inf if is_lower else -math.inf)
    return int(nearest)


def _has_room(bounds: Mapping[str, Any], is_whole: bool) -> bool:
    lows = [(bounds[key], key != "minimum") for key in ("minimum", "exclusiveMinimum") if key in bounds]
    highs = [(bounds[key], key != "maximum") for key in ("maximum", "exclusiveMaximum") if key in bounds]
    for low, is_open_low in lows:
        for high, is_open_high in highs:
            if low > high or (low == high and (is_open_low or is_open_high)):
                return False
    if is_whole and lows and highs:
        first = max(math.floor(low) + 1 if is_open else math.ceil(low) for low, is_open in lows)
        last = min(math.ceil(high) - 1 if is_open else math.floor(high) for high, is_open in highs)
        return bool(first <= last)
    return True


def without_touched_ends(schema: Any, budget: StepBudget) -> Any:
    """A rewritten schema whose ranges do not end right at a whole number where others end at fractions.

    From exclusiveMinimum 1 to maximum 1.5 the library has 1 as well, also where the bounds stand in different parts.
    """
    return _apart_from_ends(schema, budget) if _has_fractions(schema, budget) else schema


def _has_fractions(schema: Any, budget: StepBudget) -> bool:
    stack = [schema]
    while stack:
        budget.spend()
        one = stack.pop()
        if isinstance(one, dict):
            if any(key in one and not is_whole(one[key]) for key in _BOUNDS):
                return True
            stack += [below for _, below in children(one)]
    return False


def _apart_from_ends(schema: Any, budget: StepBudget) -> Any:
    budget.spend()
    if not isinstance(schema, dict):
        return schema
    result = mapped(schema, lambda _, one: _apart_from_ends(one, budget))
    low, high = result.get("exclusiveMinimum"), result.get("exclusiveMaximum")
    if low is not None and low >= 0 and is_whole(low):
        del result["exclusiveMinimum"]
        result["minimum"] = max(low + _step(low), result.get("minimum", low))
    if high is not None and high <= 0 and is_whole(high):
        del result["exclusiveMaximum"]
        result["maximum"] = min(high - _step(high), result.get("maximum", high))
    return result


def _step(end: int | float) -> float:
    """A small distance that does not get lost."""
    return 1e-9 if abs(end) < 2**20 else 1e-3 if abs(end) < 2**40 else 1


def is_expressible(value: Any) -> bool:
    """Whether the library can hold a constant: it reads numbers as floating point, and strings need their escapes."""
    if is_number(value):
        return bool(abs(value) <= MAX_EXACT)
    if isinstance(value, str):
        return UNWRITABLE.isdisjoint(value)
    if isinstance(value, list):
        return all(map(is_expressible, value))
    return all(map(is_expressible, value.values())) if isinstance(value, dict) else True


def strings(schema: Mapping[str, Any], report: Report, budget: StepBudget) -> dict[str, Any] | None:
    """Length, pattern and format of strings; None where no string is left."""
    if schema.get("minLength", 0) > schema.get("maxLength", math.inf):
        return None
    bounds = zip(("minLength", "maxLength"), lengths(schema), strict=True)
    result: dict[str, Any] = {key: bound for key, bound in bounds if key in schema}
    if schema.get("pattern"):
        try:
            pattern = supported_pattern(schema["pattern"], budget)
            if pattern is None:
                return None
            result["pattern"] = pattern
        except NotEnforceable as failure:
            report("pattern", failure)
    name = schema.get("format")
    if name in OF_THE_LIBRARY:
        result["format"] = name
    elif name in PATTERNS and "pattern" in result:
        result["allOf"] = [{"pattern": PATTERNS[name]}]
    elif name in PATTERNS:
        result["pattern"] = PATTERNS[name]
    return result


def supported_pattern(pattern: str, budget: StepBudget) -> str | None:
    """A pattern in the library's syntax, with anchors at its ends alone; None where no string has it."""
    budget.think(len(pattern))
    try:
        is_simple = is_anchored_simply(read(pattern))
    except RegexError as error:
        if _has_back_reference(pattern) or any(look in pattern for look in _LOOKS):
            raise NotEnforceable(f"The pattern cannot be enforced: {error}.") from None
        return pattern
    if is_simple:
        return _escaped(pattern) if "[" in pattern or "\\s" in pattern or "\\S" in pattern else pattern
    try:
        language = language_of(pattern)
        return None if language.is_empty(budget.think) else language.pattern(budget.think)
    except RegexError as error:
        if "(?" not in pattern.replace("(?:", ""):
            return pattern
        raise NotEnforceable(f"The pattern cannot be enforced: {error}.") from None


def _has_back_reference(pattern: str) -> bool:
    return any(f"\\{digit}" in pattern.replace("\\\\", "") for digit in range(1, 10)) or "\\k<" in pattern


def _escaped(pattern: str) -> str:
    """The pattern with characters escaped that mean something more in the library's character classes.

    White space is written out: the library has other characters for it than ECMA-262.
    """
    result: list[str] = []
    is_inside = False
    index = 0
    while index < len(pattern):
        char = pattern[index]
        if not is_inside and pattern.startswith(_ANY, index):
            result.append(_ANY)
            index += len(_ANY)
            continue
        if char == "\\":
            escape = pattern[index : index + 2]
            members = _SPACES.get(escape, escape)
            result.append(members if is_inside or escape not in _SPACES else f"[{members}]")
            index += 2
            continue
        if is_inside and (char == "[" or (char in "&~" and pattern[index : index + 2] == char * 2)):
            result.append("\\")
        elif char == "[" and not is_inside:
            is_inside = True
        elif char == "]":
            is_inside = False
        result.append(char)
        index += 1
    return "".join(result)
