"""How the items of an array can be kept apart while they are written, so that there is always another way to go on.

Scalars are counted: a watch goes where more texts begin than there are already. An object can differ as long as another
property may come; a closed one as long as a text of its own is being written that may have any end.
"""

import json
from collections.abc import Iterable, Mapping
from math import ceil, floor
from typing import Any

from proxy_inference_engine.state_machine.json_schema.budget import StepBudget
from proxy_inference_engine.state_machine.json_schema.counting import (
    AnyStrings,
    FewTexts,
    Numbers,
    PatternStrings,
    WholeNumbers,
)
from proxy_inference_engine.state_machine.json_schema.keywords import KINDS, OF_STRINGS, is_number, kind_of, kinds_of
from proxy_inference_engine.state_machine.json_schema.languages import language_of
from proxy_inference_engine.state_machine.json_schema.regexes import MAX_REPEAT, RegexError
from proxy_inference_engine.state_machine.shapes import Items, Texts, written_key

# Stands in a rewritten schema for uniqueItems, with its path; never in what the library is given.
DIFFERENT = "x-different"
MAX_FEW = 1_000
_BOUNDS = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")
_OTHERS: dict[str, tuple[bytes, ...]] = {"null": (b"null",), "boolean": (b"false", b"true")}

Together = tuple[Mapping[str, Any], ...]


class Unwatchable(Exception):
    """Nothing shows that the items can be kept apart without a dead end."""


def items_of(cases: Iterable[Together], least: int, budget: StepBudget) -> Items:
    """How items differ that are as one of the cases says, of which there are at least so many."""
    found: dict[str, list[Texts]] = {}
    has_objects, keys = False, set[bytes]()
    for case in cases:
        budget.spend(len(case))
        listed = _listed(case)
        for kind in _kinds(case) if listed is None else ():
            if kind in _OTHERS:
                found.setdefault("other", []).append(FewTexts(_OTHERS[kind]))
            elif kind == "string":
                found.setdefault(kind, []).append(_strings(case, budget))
            elif kind == "number":
                found.setdefault(kind, []).append(_numbers(case))
            else:
                has_objects = True
                keys |= _key_of_object(case, budget) if kind == "object" else _no_key_of_array(case)
        for value in listed or ():
            kind = kind_of(value)
            kind = kind if kind in {"string", "number"} else "other"
            found.setdefault(kind, []).append(FewTexts([_text(value)]))
    if len(keys) > 1:
        raise Unwatchable
    texts = {kind: _union(group) for kind, group in found.items()}
    if not has_objects and sum(one.num_from(b"") for one in texts.values()) < least:
        raise Unwatchable
    return Items(texts, has_objects, next(iter(keys), None))


def _kinds(case: Together) -> frozenset[str]:
    return KINDS.intersection(*map(kinds_of, case))


def _listed(case: Together) -> list[Any] | None:
    """The values that a case lists, which nothing beside them may make fewer."""
    listing = [part for part in case if "enum" in part or "const" in part]
    if not listing:
        return None
    rest = [part for part in case if part is not listing[0] and not part.keys() <= {"type"}]
    values: list[Any] = listing[0].get("enum", [listing[0].get("const")])
    if rest or len(values) > MAX_FEW or not listing[0].keys() <= {"type", "enum", "const"}:
        raise Unwatchable
    return [value for value in values if kind_of(value) in _kinds((*case, {"enum": [value]}))]


def _text(value: Any) -> bytes:
    if isinstance(value, list | dict | float):
        raise Unwatchable
    return json.dumps(value, ensure_ascii=False).encode()


def _union(group: list[Texts]) -> Texts:
    few = [one for one in group if isinstance(one, FewTexts)]
    others = [one for one in group if not isinstance(one, FewTexts)]
    if not others:
        return FewTexts([text for one in few for text in one.texts])
    for one in others:
        if one in (AnyStrings(), WholeNumbers()) or isinstance(one, Numbers) or len(group) == 1:
            return one
    raise Unwatchable


def _merged(case: Together, keywords: Iterable[str]) -> dict[str, Any]:
    """What the parts say with some keywords, each of which only one may use."""
    merged: dict[str, Any] = {}
    for part in case:
        for keyword in keywords:
            if keyword in part and merged.setdefault(keyword, part[keyword]) != part[keyword]:
                raise Unwatchable
    return merged


def _strings(case: Together, budget: StepBudget) -> Texts:
    said = _merged(case, OF_STRINGS - {"pattern"})
    patterns = list(dict.fromkeys(part["pattern"] for part in case if "pattern" in part))
    least, most = said.get("minLength", 0), said.get("maxLength")
    if "format" in said:
        raise Unwatchable
    if not patterns:
        return AnyStrings(most)
    if max(least, most or 0) > MAX_REPEAT:
        raise Unwatchable
    try:
        language = language_of(patterns[0])
        for pattern in patterns[1:]:
            language = language.and_(language_of(pattern))
        return PatternStrings(language.with_length(least, most), budget.think)
    except RegexError:
        raise Unwatchable from None


def _numbers(case: Together) -> Texts:
    said = _merged(case, ("multipleOf", *_BOUNDS))
    types = [part["type"] if isinstance(part["type"], list) else [part["type"]] for part in case if "type" in part]
    is_whole = any("integer" in names and "number" not in names for names in types)
    if "multipleOf" in said or (said and not is_whole) or not all(map(is_number, said.values())):
        raise Unwatchable
    if not is_whole:
        return Numbers()
    lows = [ceil(said["minimum"])] if "minimum" in said else []
    lows += [floor(said["exclusiveMinimum"]) + 1] if "exclusiveMinimum" in said else []
    highs = [floor(said["maximum"])] if "maximum" in said else []
    highs += [ceil(said["exclusiveMaximum"]) - 1] if "exclusiveMaximum" in said else []
    return WholeNumbers(max(lows, default=None), min(highs, default=None))


def _key_of_object(case: Together, budget: StepBudget) -> set[bytes]:
    """The property by which closed objects are told apart; none where another may always come."""
    if all(_is_open(part) for part in case):
        return set()
    if len([part for part in case if not part.keys() <= {"type"}]) != 1:
        raise Unwatchable
    part = next(part for part in case if not part.keys() <= {"type"})
    required = set(part.get("required", ()))
    for name, one in reversed(part.get("properties", {}).items()):
        if name in required and _is_endless(one, budget):
            return {written_key(name)}
    raise Unwatchable


def _is_open(part: Mapping[str, Any]) -> bool:
    is_free = part.get("additionalProperties", True) in (True, {})
    return is_free and not part.get("patternProperties") and "maxProperties" not in part


def other_keys(schema: Mapping[str, Any], budget: StepBudget) -> Texts | None:
    """The keys of an object that it does not name; raises Unwatchable where that cannot be told."""
    if schema.get("additionalProperties", True) is not False:
        return AnyStrings()
    patterns = list(schema.get("patternProperties", ()))
    return keys_of(patterns, budget) if patterns else None


def keys_of(patterns: list[str], budget: StepBudget) -> PatternStrings:
    """The keys that one of some patterns matches."""
    try:
        outside = language_of(patterns[0]).complement()
        for pattern in patterns[1:]:
            outside = outside.and_(language_of(pattern).complement())
        return PatternStrings(outside.complement(), budget.think)
    except RegexError:
        raise Unwatchable from None


def _is_endless(schema: Any, budget: StepBudget) -> bool:
    """Whether a string can go on wherever it has come to."""
    if not isinstance(schema, Mapping) or not schema.keys() <= OF_STRINGS | {"type"} or schema.get("type") != "string":
        return False
    try:
        texts = _strings((schema,), budget)
    except Unwatchable:
        return False
    return texts == AnyStrings() or (isinstance(texts, PatternStrings) and texts.is_endless)


def _no_key_of_array(case: Together) -> set[bytes]:
    """Arrays differ as long as another item may come."""
    for part in case:
        if "maxItems" in part or DIFFERENT in part or part.get("items", True) is False:
            raise Unwatchable
    if sum("items" in part for part in case) > 1:
        raise Unwatchable
    return set()
