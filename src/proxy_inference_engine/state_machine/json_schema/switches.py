"""Conditions in a row that all ask for the value of one property, as one choice among its values."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from proxy_inference_engine.state_machine.json_schema.disjointness import property_of, values_of
from proxy_inference_engine.state_machine.json_schema.document import Document
from proxy_inference_engine.state_machine.json_schema.keywords import ASSERTIONS, Schema, is_known_to
from proxy_inference_engine.state_machine.json_schema.values import key_of

MAX_CASES = 64


class _Case(NamedTuple):
    """What holds when a property has one of some values, and what holds otherwise."""

    name: str
    values: list[Any]
    is_required: bool
    then: Schema
    otherwise: Schema


def switched(schema: Mapping[str, Any], document: Document) -> Mapping[str, Any]:
    """An object's schema with such conditions in its allOf as one choice; one by one they double the alternatives."""
    if not is_known_to(document.draft, "if"):
        return schema
    cases = [_case(part, document) for part in schema["allOf"]]
    names = [case.name for case in cases if case is not None]
    name = max(names, key=names.count, default=None)
    if name is None or names.count(name) < 2:
        return schema
    chosen = [case for case in cases if case is not None and case.name == name]
    if sum(len(case.values) for case in chosen) > MAX_CASES:
        return schema
    rest = [part for part, case in zip(schema["allOf"], cases, strict=True) if case not in chosen]
    return {**schema, "allOf": [*rest, {"anyOf": _branches(name, chosen, property_of(schema, name), document)}]}


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
    values = values_of(one, document) if isinstance(one, dict) else None
    if values is None or one.keys() & ASSERTIONS not in ({"const"}, {"enum"}):
        return None
    return _Case(names[0], values, "required" in asked, part.get("then", True), part.get("else", True))


def _branches(name: str, cases: list[_Case], known: Schema, document: Document) -> list[Schema]:
    values = {key_of(value): value for case in cases for value in case.values}
    meant = [{key_of(value) for value in case.values} for case in cases]
    branches: list[Schema] = []
    for key, value in values.items():
        parts = [case.then if key in keys else case.otherwise for case, keys in zip(cases, meant, strict=True)]
        branches.append({"properties": {name: {"enum": [value]}}, "required": [name], "allOf": parts})
    possible = values_of(known, document) if isinstance(known, dict) else None
    if possible is None or not {key_of(value) for value in possible} <= values.keys():
        other = {"properties": {name: {"not": {"enum": list(values.values())}}}, "required": [name]}
        branches.append({**other, "allOf": [case.otherwise for case in cases]})
    absent = [case.otherwise if case.is_required else case.then for case in cases]
    return [*branches, {"properties": {name: False}, "allOf": absent}]
