"""Keywords that the grammar library does not take, said with keywords that it takes: one schema in, one schema out.

What a function here returns holds together with the rest of its schema, and never for a value the keyword forbids.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from proxy_inference_engine.state_machine.json_schema.arrays import contains, unique_items
from proxy_inference_engine.state_machine.json_schema.discriminators import tagged
from proxy_inference_engine.state_machine.json_schema.disjointness import (
    are_disjoint,
    certain_kinds,
    conjuncts,
    property_in,
    property_of,
)
from proxy_inference_engine.state_machine.json_schema.document import Document
from proxy_inference_engine.state_machine.json_schema.errors import NotEnforceable
from proxy_inference_engine.state_machine.json_schema.evaluation import unevaluated_items, unevaluated_properties
from proxy_inference_engine.state_machine.json_schema.keywords import (
    ASSERTIONS,
    KINDS,
    Kinds,
    Schema,
    children,
    is_known_to,
    kinds_of,
    values_of,
)
from proxy_inference_engine.state_machine.json_schema.names import property_names
from proxy_inference_engine.state_machine.json_schema.negation import Negation, alternatives, negate
from proxy_inference_engine.state_machine.json_schema.values import key_of

MAX_BRANCHES = 16
MAX_WEIGHT = 1_000
MAX_CASES = 64
MIN_TAGGED = 3


def typed(schema: dict[str, Any], kinds: Kinds) -> Schema:
    """The schema with the type that is known already, so that fewer alternatives are looked at."""
    return schema if kinds == KINDS or "type" in schema else {"type": sorted(kinds), **schema}


def one_of(schema: Mapping[str, Any], document: Document, kinds: Kinds) -> Schema:
    """Alternatives that exclude each other, by proof or by what is added to them."""
    options = [option for option in schema["oneOf"] if certain_kinds(document.resolved(option), document) & kinds]
    meant = tagged(options, schema, document) if "discriminator" in schema else options
    weight = _weight({keyword: one for keyword, one in schema.items() if keyword != "oneOf"})
    rivals = _rivals(_in_context(options, schema), document)
    chosen: list[Schema] = []
    for index, option in enumerate(meant):
        against = [_excluding(options[rival], option, kinds, document) for rival in rivals[index]]
        if any(one.branches == [] and not one.is_exact for one in against):
            reason = "The options cannot be told apart: nothing shows that a value satisfies only one of them."
            raise NotEnforceable(reason, {"anyOf": meant})
        document.is_narrowed |= not all(one.is_exact for one in against)
        if all(one.branches for one in against):
            width = _width(len(against), _weight(option) + weight)
            others = [alternatives(Negation(sorted(one.branches, key=_plainness)[:width], True)) for one in against]
            chosen.append({"allOf": [option, *others]} if others else option)
    return {"anyOf": chosen} if chosen else False


def _in_context(options: list[Schema], schema: Mapping[str, Any]) -> list[Schema]:
    """The options together with what holds beside them anyway, which may be what tells them apart."""
    context = {keyword: schema[keyword] for keyword in ("required", "properties", "type") if keyword in schema}
    return [{"allOf": [context, option]} for option in options] if context else options


def _rivals(options: list[Schema], document: Document) -> list[list[int]]:
    """The options that may hold together with each option."""
    rivals: list[list[int]] = [[] for _ in options]
    for left, option in enumerate(options):
        for right in range(left + 1, len(options)):
            if not are_disjoint(option, options[right], document):
                rivals[left].append(right)
                rivals[right].append(left)
    return rivals


def _excluding(rival: Schema, option: Schema, kinds: Kinds, document: Document) -> Negation:
    """Ways to satisfy an option but not its rival: a property on which they differ, or those of the negation."""
    kinds = kinds & kinds_of(document.resolved(option))
    ours, theirs = conjuncts(option, document) or [], conjuncts(rival, document) or []
    if "object" in kinds:
        telling = [
            name
            for name in _names(ours)
            if are_disjoint(property_in(ours, name, document), property_in(theirs, name, document), document)
        ]
        if telling:
            rest = negate(document.resolved(rival), document, kinds - {"object"}).branches
            return Negation([{"type": "object", "required": [name]} for name in telling] + rest, False)
    return negate(document.resolved(rival), document, kinds)


def _names(parts: list[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for part in parts for name in part.get("properties", ())))


def _width(num_rivals: int, weight: int) -> int:
    """How many ways to fail each rival may have, so that all combinations stay few for what they weigh."""
    combinations = min(MAX_BRANCHES, MAX_WEIGHT // weight)
    return max(1, int(combinations ** (1 / max(1, num_rivals))))


def _weight(schema: Schema) -> int:
    """How many schemas there are in a schema."""
    weight = 0
    stack = [schema]
    while stack and weight < MAX_WEIGHT:
        weight += 1
        one = stack.pop()
        if isinstance(one, dict):
            stack += [below for _, below in children(one)]
    return weight


def _plainness(branch: Schema) -> int:
    """Orders ways to fail a schema, the plainest first: a property that is absent, another type, another value."""
    if not isinstance(branch, dict):
        return 0
    if "properties" in branch and "required" not in branch:
        return 0
    if branch.keys() <= {"type", "required"}:
        return 1
    return 2 if "required" in branch else 3


def negation(schema: Mapping[str, Any], document: Document, kinds: Kinds) -> Schema:
    """What a schema must not be, as the ways to be something else."""
    found = negate(schema["not"], document, kinds)
    document.is_narrowed |= not found.is_exact
    result = alternatives(found)
    if result is None:
        raise NotEnforceable("The negation of this schema cannot be expressed.")
    return result


def condition(schema: Mapping[str, Any], document: Document, kinds: Kinds) -> Schema:
    """A condition with its consequence, or its negation with the other one."""
    if "then" not in schema and "else" not in schema:
        return True
    asked, consequence, otherwise = schema["if"], schema.get("then", True), schema.get("else", True)
    found = negate(asked, document, kinds)
    document.is_narrowed |= not found.is_exact
    unless = alternatives(found)
    if unless is None:
        relaxed = {"anyOf": [{"allOf": [asked, consequence]}, otherwise]}
        raise NotEnforceable("The negation of this condition cannot be expressed.", relaxed)
    if otherwise is True:
        return {"anyOf": [consequence, unless]}
    return {"anyOf": [{"allOf": [asked, consequence]}, {"allOf": [unless, otherwise]}]}


def _dependent(keyword: str) -> Callable[[Mapping[str, Any], Document, Kinds], Schema]:
    def lower(schema: Mapping[str, Any], document: Document, kinds: Kinds) -> Schema:
        """An object without what needs something, or with what that needs; one choice for all that need the same."""
        given = schema.get("required", ())
        given = set(given) if isinstance(given, list) else set()
        groups: dict[str, tuple[Schema, list[str]]] = {}
        for name, needed in schema[keyword].items():
            if isinstance(needed, list):
                needed = {"required": needed} if set(needed) - given - {name} else True
            if needed is not True:
                groups.setdefault(json.dumps(needed, sort_keys=True), (needed, []))[1].append(name)
        listed = schema.get("properties", {})
        by_value = _by_value(list(groups.values()), schema, document, kinds) if len(groups) >= MIN_TAGGED else None
        parts = [_unless_present(names, needed, given, kinds) for needed, names in groups.values()]
        parts = parts if by_value is None else [by_value]
        # The names in the order of the client, where the schema itself does not list them.
        order = {name: True for name in schema[keyword] if name not in listed}
        parts = [{"properties": order}, *parts] if order and parts else parts
        return {"allOf": parts} if parts else True

    return lower


def _by_value(
    groups: list[tuple[Schema, list[str]]], schema: Mapping[str, Any], document: Document, kinds: Kinds
) -> Schema | None:
    """Names that all need certain values of one property, as one choice among its values; None where they do not.

    One by one they would double the alternatives.
    """
    cases = [_case({"if": needed}, document) for needed, _ in groups]
    tags = {case.name for case in cases if case is not None and not case.is_required}
    known = property_of(schema, min(tags), document) if len(tags) == 1 and None not in cases else True
    possible = values_of(known, document.draft) if isinstance(known, dict) else None
    if possible is None or any(case is None or case.is_required for case in cases):
        return None
    document.spend(len(possible) * len(groups))
    meant = [{key_of(value) for value in case.values} for case in cases if case is not None]
    choices: dict[tuple[str, ...], list[Any]] = {}
    for value in possible:
        shut = [names for keys, (_, names) in zip(meant, groups, strict=True) if key_of(value) not in keys]
        choices.setdefault(tuple(name for names in shut for name in names), []).append(value)
    tag = min(tags)
    branches: list[Schema] = [
        {"type": "object", "properties": {**dict.fromkeys(shut, False), tag: {"enum": values}}, "required": [tag]}
        for shut, values in choices.items()
    ]
    others: list[Schema] = [{"type": sorted(kinds - {"object"})}] if kinds != {"object"} else []
    return {"anyOf": [*branches, {"type": "object", "properties": {tag: False}}, *others]}


def _unless_present(names: list[str], needed: Schema, given: set[str], kinds: Kinds) -> Schema:
    if given & set(names):
        return {"anyOf": [needed, {"type": sorted(kinds - {"object"})}]} if kinds != {"object"} else needed
    absent = typed({"properties": dict.fromkeys(names, False)}, kinds)
    present = {"type": "object", **needed} if isinstance(needed, dict) and "type" not in needed else needed
    return {"anyOf": [present, absent]}


# Conditions in a row that all ask for the value of one property


class _Case(NamedTuple):
    """What holds when a property has one of some values, and what holds otherwise."""

    name: str
    values: list[Any]
    is_required: bool
    then: Schema
    otherwise: Schema


def switched(schema: Mapping[str, Any], document: Document) -> Mapping[str, Any]:
    """An object's schema with conditions of its allOf that ask for one property as one choice among its values.

    One by one they would double the alternatives.
    """
    if not is_known_to(document.draft, "if"):
        return schema
    cases = [_case(part, document) for part in schema["allOf"]]
    names = Counter(case.name for case in cases if case is not None)
    name, count = max(names.items(), key=lambda item: item[1], default=("", 0))
    if count < 2:
        return schema
    chosen = [case for case in cases if case is not None and case.name == name]
    if sum(len(case.values) for case in chosen) > MAX_CASES:
        return schema
    rest = [part for part, case in zip(schema["allOf"], cases, strict=True) if case is None or case.name != name]
    known = property_of(schema, name, document)
    return {**schema, "allOf": [*rest, {"anyOf": _branches(name, chosen, known, document)}]}


def _case(part: Schema, document: Document) -> _Case | None:
    if not isinstance(part, dict) or "if" not in part or part.keys() & ASSERTIONS != {"if"}:
        return None
    asked = document.resolved(part["if"])
    if not isinstance(asked, dict) or not {"properties"} <= asked.keys() & ASSERTIONS <= {"properties", "required"}:
        return None
    names = list(asked["properties"])
    if len(names) != 1 or asked.get("required", names) != names:
        return None
    one = asked["properties"][names[0]]
    values = values_of(one, document.draft) if isinstance(one, dict) else None
    if values is None or one.keys() & ASSERTIONS not in ({"const"}, {"enum"}):
        return None
    return _Case(names[0], values, "required" in asked, part.get("then", True), part.get("else", True))


def _branches(name: str, cases: list[_Case], known: Schema, document: Document) -> list[Schema]:
    values = {key_of(value): value for case in cases for value in case.values}
    meant = [{key_of(value) for value in case.values} for case in cases]
    branches: list[Schema] = []
    document.spend(len(values) * len(cases))
    for key, value in values.items():
        parts = [case.then if key in keys else case.otherwise for case, keys in zip(cases, meant, strict=True)]
        branches.append({"properties": {name: {"enum": [value]}}, "required": [name], "allOf": parts})
    possible = values_of(known, document.draft) if isinstance(known, dict) else None
    if possible is None or not {key_of(value) for value in possible} <= values.keys():
        other = {"properties": {name: {"not": {"enum": list(values.values())}}}, "required": [name]}
        branches.append({**other, "allOf": [case.otherwise for case in cases]})
    absent = [case.otherwise if case.is_required else case.then for case in cases]
    return [*branches, {"properties": {name: False}, "allOf": absent}]


Lowering = Callable[[Mapping[str, Any], Document, Kinds], Schema]

LOWERINGS: dict[str, Lowering] = {
    "oneOf": one_of,
    "not": negation,
    "if": condition,
    "dependencies": _dependent("dependencies"),
    "dependentRequired": _dependent("dependentRequired"),
    "dependentSchemas": _dependent("dependentSchemas"),
    "propertyNames": property_names,
    "unevaluatedProperties": unevaluated_properties,
    "contains": contains,
    "uniqueItems": unique_items,
    "unevaluatedItems": unevaluated_items,
}
