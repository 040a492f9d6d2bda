"""Patterns of properties that match the same names, in one object's schema or in several that hold together.

The library wants every name to have one pattern at most, so such patterns are cut into pieces that share none.
"""

from collections.abc import Mapping
from itertools import combinations, product
from typing import Any

from proxy_inference_engine.state_machine.json_schema.budget import StepBudget
from proxy_inference_engine.state_machine.json_schema.errors import NotEnforceable
from proxy_inference_engine.state_machine.json_schema.keywords import Schema
from proxy_inference_engine.state_machine.json_schema.languages import RegularLanguage, language_of
from proxy_inference_engine.state_machine.json_schema.patterns import do_meet
from proxy_inference_engine.state_machine.json_schema.regexes import RegexError

MAX_OVERLAPPING = 4
# What parts may say that are joined into one.
_JOINED = frozenset({"type", "patternProperties", "additionalProperties"})


def apart(patterns: Mapping[str, Schema], budget: StepBudget) -> dict[str, Schema]:
    """Patterns for the same properties of which no two match one name."""
    overlapping = _overlapping(list(patterns), budget)
    if not overlapping:
        return dict(patterns)
    if len(overlapping) > MAX_OVERLAPPING:
        raise NotEnforceable("Too many patterns match the same names.")
    result = {pattern: one for pattern, one in patterns.items() if pattern not in overlapping}
    for choice in product((True, False), repeat=len(overlapping)):
        chosen = [pattern for pattern, is_in in zip(overlapping, choice, strict=True) if is_in]
        if not chosen:
            continue
        region = language_of("")
        for pattern, is_in in zip(overlapping, choice, strict=True):
            language = language_of(pattern)
            region = region.and_(language if is_in else language.complement())
        try:
            if not region.is_empty(budget.think):
                name = region.pattern(budget.think)
                result[name] = {"allOf": [patterns[pattern] for pattern in chosen]}
        except RegexError as error:
            raise NotEnforceable(f"Patterns that match the same names cannot be told apart: {error}.") from None
    return result


def _overlapping(patterns: list[str], budget: StepBudget) -> list[str]:
    """Patterns that share a name with another; those that cannot be reasoned about are left to the grammar library."""
    found = []
    for left, right in combinations(patterns, 2):
        try:
            if do_meet(left, right, budget):
                found += [left, right]
        except RegexError:
            continue
    return list(dict.fromkeys(found))


# Parts of a rewritten schema


def joined(parts: list[Any], budget: StepBudget) -> list[Any]:
    """Parts that hold together, those with patterns that match the same names as one."""
    result: list[Any] = []
    for part in parts:
        budget.spend(len(result))
        place = next((index for index, one in enumerate(result) if _do_overlap(one, part, budget)), None)
        together = None if place is None else _intersection(result[place], part, budget)
        if place is None or together is None:
            result.append(part)
        else:
            result[place] = together
    return result


def _do_overlap(left: Any, right: Any, budget: StepBudget) -> bool:
    if not all(
        isinstance(one, dict) and one.get("patternProperties") and one.keys() <= _JOINED for one in (left, right)
    ):
        return False
    if left.get("type", "object") != "object" or right.get("type", "object") != "object":
        return False
    pairs = product(left["patternProperties"], right["patternProperties"])
    try:
        return any(ours != theirs and do_meet(ours, theirs, budget) for ours, theirs in pairs)
    except RegexError:
        return False


def _intersection(left: Mapping[str, Any], right: Mapping[str, Any], budget: StepBudget) -> dict[str, Any] | None:
    """One part for two: every name has the schemas of both. None where the names cannot be described."""
    patterns: dict[str, Any] = {}
    ours, theirs = left["patternProperties"], right["patternProperties"]
    rest_of_ours, rest_of_theirs = left.get("additionalProperties", {}), right.get("additionalProperties", {})
    try:
        for one, other in product(ours, theirs):
            common = language_of(one).and_(language_of(other))
            _add(patterns, common, _both(ours[one], theirs[other]), budget)
        for one in ours:
            _add(patterns, _outside(one, theirs), _both(ours[one], rest_of_theirs), budget)
        for other in theirs:
            _add(patterns, _outside(other, ours), _both(rest_of_ours, theirs[other]), budget)
    except RegexError:
        return None
    rest = _both(rest_of_ours, rest_of_theirs)
    kind = {"type": "object"} if "type" in left or "type" in right else {}
    return {**kind, "patternProperties": patterns, **({"additionalProperties": rest} if rest != {} else {})}


def _outside(pattern: str, others: Mapping[str, Any]) -> RegularLanguage:
    language = language_of(pattern)
    for other in others:
        language = language.and_(language_of(other).complement())
    return language


def _add(patterns: dict[str, Any], language: RegularLanguage, schema: Any, budget: StepBudget) -> None:
    if not language.is_empty(budget.think):
        patterns[language.pattern(budget.think)] = schema


def _both(left: Any, right: Any) -> Any:
    if left is False or right is False:
        return False
    parts = [one for one in (left, right) if one != {}]
    return {"allOf": parts} if len(parts) > 1 and parts[0] != parts[1] else parts[0] if parts else {}
