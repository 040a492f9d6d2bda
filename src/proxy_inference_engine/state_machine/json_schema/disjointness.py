"""Proofs that no value satisfies two schemas. A proof that is not found says nothing."""

from collections.abc import Mapping
from typing import Any

from proxy_inference_engine.state_machine.json_schema.document import Document
from proxy_inference_engine.state_machine.json_schema.keywords import (
    KINDS,
    Kinds,
    Schema,
    is_known_to,
    is_number,
    kind_of,
    kinds_of,
    lengths,
    values_of,
)
from proxy_inference_engine.state_machine.json_schema.languages import RegularLanguage, language_of
from proxy_inference_engine.state_machine.json_schema.patterns import do_meet
from proxy_inference_engine.state_machine.json_schema.plain import is_expressible
from proxy_inference_engine.state_machine.json_schema.regexes import RegexError
from proxy_inference_engine.state_machine.json_schema.values import admits, property_schemas

MAX_PROOF_DEPTH = 12


def settled_values(schema: Mapping[str, Any], document: Document) -> list[Any] | None:
    """The only values a schema has, where it names some and all else it says is decided for each of them."""
    parts = conjuncts(schema, document) if "allOf" in schema else [schema]
    named = [one for part in parts or () if (one := values_of(part, document.draft)) is not None]
    if not named:
        return None
    answers = [(value, admits(value, schema, document)) for value in min(named, key=len)]
    if any(answer is None for _, answer in answers):
        return None
    allowed = [value for value, answer in answers if answer]
    return allowed if all(map(is_expressible, allowed)) else None


def are_disjoint(left: Schema, right: Schema, document: Document, depth: int = 0) -> bool:
    """Whether it is certain that no value satisfies both."""
    document.spend()
    if depth > MAX_PROOF_DEPTH:
        return False
    ours, theirs = conjuncts(left, document), conjuncts(right, document)
    if ours is None or theirs is None:
        return True
    kinds = frozenset.intersection(KINDS, *(certain_kinds(part, document) for part in ours + theirs))
    return (
        _splits(ours, right, document, depth)
        or _splits(theirs, left, document, depth)
        or any(_values_are_outside(one, right, document) for one in ours)
        or any(_values_are_outside(one, left, document) for one in theirs)
        or all(_differ(kind, ours, theirs, document, depth) for kind in kinds)
    )


def certain_kinds(schema: Schema, document: Document) -> Kinds:
    """Kinds a schema allows by its own keywords, as far as its draft knows them."""
    if isinstance(schema, dict) and "const" in schema and not is_known_to(document.draft, "const"):
        return kinds_of({keyword: schema[keyword] for keyword in ("type", "enum") if keyword in schema})
    return kinds_of(schema)


def kinds_of_properties(schema: Mapping[str, Any], document: Document) -> dict[str, Kinds]:
    """Kinds that the properties of an object can only be."""
    listed = schema.get("properties", {})
    document.spend(len(listed) // 8)
    return {name: certain_kinds(document.resolved(one), document) for name, one in listed.items()}


def conjuncts(schema: Schema, document: Document) -> list[Mapping[str, Any]] | None:
    """All schemas that hold where this one does, by allOf and references; None where one of them is false."""
    found: list[Mapping[str, Any]] = []
    seen: set[str] = set()
    stack = [schema]
    while stack:
        document.spend()
        one = stack.pop()
        if one is False:
            return None
        if not isinstance(one, dict):
            continue
        # In drafts that ignore what stands beside a reference, nothing else there is certain.
        if "$ref" not in one or document.draft >= 2019:
            found.append(one)
            stack += one.get("allOf", ())
        if "$ref" in one and one["$ref"] not in seen:
            seen.add(one["$ref"])
            stack.append(document.target(one["$ref"]).schema)
    return found


def _splits(ours: list[Mapping[str, Any]], other: Schema, document: Document, depth: int) -> bool:
    """Whether all alternatives of one part exclude the other schema."""
    for part in ours:
        for keyword in ("anyOf", "oneOf"):
            if keyword in part and all(are_disjoint(option, other, document, depth + 1) for option in part[keyword]):
                return True
    return False


def _values_are_outside(left: Mapping[str, Any], right: Mapping[str, Any], document: Document) -> bool:
    values = values_of(left, document.draft)
    if values is None:
        return False
    return all(admits(value, right, document) is False or admits(value, left, document) is False for value in values)


Parts = list[Mapping[str, Any]]


def _differ(kind: str, ours: Parts, theirs: Parts, document: Document, depth: int) -> bool:
    """Whether no value of one kind satisfies both."""
    if any(_has_no_value(kind, schema, document) for schema in ours + theirs):
        return True
    if kind == "object" and _properties_differ(ours, theirs, document, depth):
        return True
    return any(_parts_differ(kind, left, right, document, depth) for left in ours for right in theirs)


def _parts_differ(kind: str, left: Mapping[str, Any], right: Mapping[str, Any], document: Document, depth: int) -> bool:
    document.spend()
    if kind == "number":
        return document.draft > 4 and (_lies_below(left, right) or _lies_below(right, left))
    if kind == "string":
        return _lengths_differ(left, right, "Length") or _patterns_differ(left, right, document)
    if kind == "array":
        return _lengths_differ(left, right, "Items") or _items_differ(left, right, document, depth)
    return kind == "object" and _lengths_differ(left, right, "Properties")


def _has_no_value(kind: str, schema: Mapping[str, Any], document: Document) -> bool:
    values = values_of(schema, document.draft)
    return values is not None and all(kind_of(value) != kind for value in values)


def _lengths_differ(left: Mapping[str, Any], right: Mapping[str, Any], suffix: str) -> bool:
    low, high = "min" + suffix, "max" + suffix
    return any(high in one and other.get(low, 0) > one[high] for one, other in ((left, right), (right, left)))


def _lies_below(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    """Whether the left range ends before the right one begins."""
    for top, is_open_top in _ends(left, "maximum", "exclusiveMaximum"):
        for bottom, is_open_bottom in _ends(right, "minimum", "exclusiveMinimum"):
            if top < bottom or (top == bottom and (is_open_top or is_open_bottom)):
                return True
    return False


def _ends(schema: Mapping[str, Any], closed: str, opened: str) -> list[tuple[float, bool]]:
    ends = []
    if closed in schema:
        ends.append((schema[closed], schema.get(opened) is True))
    if is_number(schema.get(opened)):
        ends.append((schema[opened], True))
    return ends


def _patterns_differ(left: Mapping[str, Any], right: Mapping[str, Any], document: Document) -> bool:
    if "pattern" not in left and "pattern" not in right:
        return False
    budget = document.budget
    try:
        if "pattern" in left and "pattern" in right and not do_meet(left["pattern"], right["pattern"], budget):
            return True
        return _language(left).and_(_language(right)).is_empty(budget.think)
    except RegexError:
        return False


def _language(schema: Mapping[str, Any]) -> RegularLanguage:
    return language_of(schema.get("pattern", "")).with_length(*lengths(schema))


def _items_differ(left: Mapping[str, Any], right: Mapping[str, Any], document: Document, depth: int) -> bool:
    if max(left.get("minItems", 0), right.get("minItems", 0)) < 1:
        return False
    return are_disjoint(_first_item(left), _first_item(right), document, depth + 1)


def _first_item(schema: Mapping[str, Any]) -> Schema:
    items = schema.get("items", True)
    if isinstance(items, list) or "prefixItems" in schema:
        return items[0] if isinstance(items, list) and items else True
    return items


def _properties_differ(ours: Parts, theirs: Parts, document: Document, depth: int) -> bool:
    needed = set().union(*map(_required, ours + theirs))
    return any(
        are_disjoint(property_in(ours, name, document), property_in(theirs, name, document), document, depth + 1)
        for name in sorted(needed)
    )


def property_in(parts: Parts, name: str, document: Document) -> Schema:
    """A schema that holds for a property of an object that satisfies all parts."""
    document.spend(len(parts))
    found = [one for one in (property_of(part, name, document) for part in parts) if one is not True]
    return found[0] if len(found) == 1 else {"allOf": found} if found else True


def _required(schema: Mapping[str, Any]) -> set[Any]:
    required = schema.get("required", ())
    return set(required) if isinstance(required, list) else set()


def property_of(schema: Mapping[str, Any], name: str, document: Document) -> Schema:
    """A schema that holds for a property of an object, at least; True where nothing is certain."""
    schemas = property_schemas(name, schema, document)
    if schemas is None:
        return schema.get("properties", {}).get(name, True)
    return schemas[0] if len(schemas) == 1 else {"allOf": schemas}
