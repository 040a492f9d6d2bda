"""Bounds on the number of properties, as alternatives that name them: the library counts unnamed ones only."""

import math
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any, NamedTuple

from proxy_inference_engine.state_machine.json_schema.budget import StepBudget
from proxy_inference_engine.state_machine.json_schema.errors import NotEnforceable
from proxy_inference_engine.state_machine.json_schema.keywords import KINDS, Schema

MAX_CHOICES = 130
# The library has alternatives of its own for one property; it follows all of them at once.
MAX_NATIVE = 24
_NAMES_PER_STEP = 8
_BOUNDS = frozenset({"minProperties", "maxProperties"})


def counted(schema: Mapping[str, Any], budget: StepBudget, *, is_remembered: bool = False) -> Schema:
    """An object's schema, already rewritten, without bounds on its properties that the library does not take.

    `is_remembered`: no unnamed property can come twice.
    """
    num_names = len(schema.get("required", ())) + len(schema.get("properties", ()))
    budget.spend(1 + num_names // _NAMES_PER_STEP)
    required = [name for name in schema.get("required", ()) if schema.get("properties", {}).get(name) is not False]
    needed = set(required)
    optional = [name for name, one in schema.get("properties", {}).items() if one is not False and name not in needed]
    rest = {key: value for key, value in schema.items() if key not in _BOUNDS}
    is_closed = schema.get("additionalProperties") is False and not schema.get("patternProperties")
    least = max(0, int(schema.get("minProperties", 0)) - len(required))
    most = int(schema["maxProperties"]) - len(required) if "maxProperties" in schema else None
    if (most is not None and (most < 0 or least > most)) or (is_closed and least > len(optional)):
        return False
    if is_closed and most is not None and most >= len(optional):
        most = None
    if least == 0 and most is None:
        return rest
    if most == 0 and not required:
        return {"additionalProperties": False}
    is_taken = is_closed and least <= 1 and most in {None, 1} and len(optional) <= MAX_NATIVE
    if not optional and least > 1 and not is_remembered:
        # Unnamed properties may be written twice, and then are fewer than they seem.
        raise NotEnforceable("That so many properties have different names cannot be enforced.", dict(schema))
    if not optional or is_taken:
        return dict(schema)
    if _has_many_choices(len(optional), least, most):
        raise NotEnforceable("There are too many ways to choose that many properties.", rest)
    choices = [choice for choice in _choices(optional, least, most, is_closed) if choice.least <= 1]
    budget.spend(len(choices) * (1 + num_names // _NAMES_PER_STEP))
    return {"anyOf": [_chosen(rest, choice, is_closed) for choice in choices]} if choices else False


def is_counted(schema: Mapping[str, Any]) -> bool:
    """Whether a rewritten object needs several properties without names, of which none may come twice."""
    least: int = schema.get("minProperties", 0)
    return least - len(schema.get("required", ())) > 1


def gathered(parts: list[Any], budget: StepBudget) -> list[Any]:
    """Parts of a schema with bounds that stand alone put where the properties are that they count."""
    bounds = [part for part in parts if _counts(part)]
    objects = [part for part in parts if "properties" in part]
    if not bounds or len(objects) != 1 or objects[0].get("type", "object") != "object":
        return parts
    counts = [*bounds, objects[0]]
    together = {**objects[0], "minProperties": max(part.get("minProperties", 0) for part in counts)}
    most = [part["maxProperties"] for part in counts if "maxProperties" in part]
    result = counted({**together, "maxProperties": min(most)} if most else together, budget)
    if result is False and "type" not in objects[0]:
        result = {"type": sorted(KINDS - {"object"})}
    types = [{"type": part["type"]} for part in bounds if "type" in part]
    gone = set(map(id, bounds))
    return [result if part is objects[0] else part for part in parts if id(part) not in gone] + types


def _has_many_choices(num_optional: int, least: int, most: int | None) -> bool:
    """Whether there are more than can be listed; added up only as far as that is open."""
    largest = least if most is None else most
    num_choices = 0
    for size in range(min(largest, num_optional) + 1):
        num_choices += math.comb(num_optional, size)
        if num_choices > MAX_CHOICES:
            return True
    return False


class _Choice(NamedTuple):
    """Names that must be there, names that must not, and how many others there may be at least and at most."""

    needed: tuple[str, ...]
    absent: tuple[str, ...]
    least: int
    most: int | None


def _choices(optional: list[str], least: int, most: int | None, is_closed: bool) -> Iterator[_Choice]:
    if most is None:
        # The first names that are there: what comes before the last of them is either one of them or absent.
        for names in combinations(optional, least) if least <= len(optional) else ():
            before = optional[: optional.index(names[-1])]
            yield _Choice(names, _without(before, names), 0, None)
        if is_closed:
            return
        for size in range(min(least, len(optional) + 1)):
            for names in combinations(optional, size):
                yield _Choice(names, _without(optional, names), least - size, None)
        return
    for size in range(min(most, len(optional)) + 1):
        if is_closed and size < least:
            continue
        for names in combinations(optional, size):
            yield _Choice(names, _without(optional, names), max(0, least - size), most - size)


def _without(names: list[str], taken: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in names if name not in taken)


def _chosen(schema: Mapping[str, Any], choice: _Choice, is_closed: bool) -> Schema:
    needed, absent, least, most = choice
    properties = {name: False if name in absent else one for name, one in schema["properties"].items()}
    required = [*schema.get("required", ()), *needed]
    result = {**schema, "properties": properties, "required": required}
    if not is_closed and least:
        result["minProperties"] = least + len(required)
    if not is_closed and most is not None:
        result["maxProperties"] = most + len(required)
    return result


def spread(parts: list[Any], budget: StepBudget) -> list[Any]:
    """Parts whose alternatives count the properties of another, with these properties in each of them."""
    if False in parts:
        return parts
    objects = [part for part in parts if "properties" in part and "anyOf" not in part]
    counting = [part for part in parts if part.keys() == {"anyOf"} and any(map(_counts, part["anyOf"]))]
    if len(objects) != 1 or not counting:
        return parts
    options = [_whole(gathered([objects[0], option], budget)) for option in counting[0]["anyOf"]]
    options = [option for option in options if option is not False]
    told: Any = {"anyOf": options} if options else False
    return [told if part is objects[0] else part for part in parts if part is not counting[0]]


def uncounted(part: Any) -> Any:
    """A part without bounds that stand alone, in it or in its alternatives; None where nothing is left."""
    if _counts(part):
        return {"type": part["type"]} if "type" in part else None
    if part.keys() != {"anyOf"} or not any(map(_counts, part["anyOf"])):
        return part
    options = [uncounted(option) if isinstance(option, dict) else option for option in part["anyOf"]]
    return None if None in options else {"anyOf": options}


def _counts(schema: Any) -> bool:
    return isinstance(schema, dict) and not schema.keys().isdisjoint(_BOUNDS) and schema.keys() <= _BOUNDS | {"type"}


def _whole(parts: list[Any]) -> Any:
    if False in parts:
        return False
    return {"allOf": parts} if len(parts) > 1 else parts[0]
