"""Alternatives that together say what a schema forbids. They may say less than its exact negation, never more."""

from collections.abc import Callable, Mapping
from itertools import combinations, pairwise
from typing import Any, NamedTuple

from proxy_inference_engine.state_machine.json_schema.disjointness import are_disjoint
from proxy_inference_engine.state_machine.json_schema.document import Document
from proxy_inference_engine.state_machine.json_schema.keywords import (
    ASSERTIONS,
    CONCERNED,
    KINDS,
    LATEST,
    Kinds,
    Schema,
    is_integral,
    is_known_to,
    is_number,
    kind_of,
    kinds_of,
)
from proxy_inference_engine.state_machine.json_schema.languages import literal_complement
from proxy_inference_engine.state_machine.json_schema.patterns import complement_of
from proxy_inference_engine.state_machine.json_schema.regexes import RegexError

MAX_NEGATION_DEPTH = 12
MAX_PAIRED = 8


class Negation(NamedTuple):
    """Schemas of which one must hold, and whether they are all there is."""

    branches: list[Schema]
    is_exact: bool


IMPOSSIBLE = Negation([], True)
UNKNOWN = Negation([], False)


def negate(schema: Schema, document: Document, kinds: Kinds = KINDS, depth: int = 0) -> Negation:
    """The negation of a schema, for values of some kinds."""
    document.spend()
    if not isinstance(schema, dict):
        return IMPOSSIBLE if schema else Negation([True], True)
    if depth > MAX_NEGATION_DEPTH:
        return UNKNOWN
    branches: list[Schema] = []
    is_exact = True
    for keyword in schema:
        if keyword not in ASSERTIONS or not CONCERNED.get(keyword, KINDS) & kinds:
            continue
        negator = _NEGATORS.get(keyword)
        # In drafts that ignore what stands beside a reference, only the negation of the reference is certain.
        is_ignored = document.draft < 2019 and "$ref" in schema and keyword != "$ref"
        if negator is None or is_ignored or not is_known_to(document.draft, keyword):
            is_exact = False
            continue
        part = negator(schema, document, depth)
        branches += part.branches
        is_exact = is_exact and part.is_exact
    return Negation([branch for branch in branches if kinds_of(branch) & kinds], is_exact)


def alternatives(negation: Negation) -> Schema | None:
    """The negation as one schema; nothing where all that is left is unknown."""
    if negation.branches:
        return negation.branches[0] if len(negation.branches) == 1 else {"anyOf": negation.branches}
    return False if negation.is_exact else None


def _types(kinds: Kinds) -> Schema:
    return {"type": sorted(kinds)}


def _type(schema: Mapping[str, Any], document: Document, depth: int) -> Negation:
    rest = KINDS - kinds_of({"type": schema["type"]})
    # Numbers that are not whole cannot be distinguished by keywords, so they are left out.
    return Negation([_types(rest)] if rest else [], not is_integral(schema))


def _const(schema: Mapping[str, Any], document: Document, depth: int) -> Negation:
    return not_values([schema["const"]], document, depth)


def _enum(schema: Mapping[str, Any], document: Document, depth: int) -> Negation:
    return not_values(schema["enum"], document, depth)


def not_values(values: list[Any], document: Document, depth: int) -> Negation:
    """The negation of an enumeration: everything but its values."""
    by_kind: dict[str, list[Any]] = {}
    for value in values:
        by_kind.setdefault(kind_of(value), []).append(value)
    branches: list[Schema] = []
    rest = KINDS - by_kind.keys()
    if rest:
        branches.append(_types(rest))
    if len(booleans := by_kind.get("boolean", [])) == 1:
        branches.append({"enum": [not booleans[0]]})
    branches += _gaps(sorted(set(by_kind.get("number", []))))
    if strings := by_kind.get("string"):
        branches.append({"type": "string", "pattern": literal_complement(strings, document.budget.think)})
    is_exact = True
    for kind in ("array", "object"):
        part = _not_composites(kind, by_kind.get(kind, []), document, depth)
        branches += part.branches
        is_exact = is_exact and part.is_exact
    return Negation(branches, is_exact)


def _gaps(numbers: list[Any]) -> list[Schema]:
    if not numbers:
        return []
    between = [{"type": "number", "exclusiveMinimum": low, "exclusiveMaximum": high} for low, high in pairwise(numbers)]
    below = {"type": "number", "exclusiveMaximum": numbers[0]}
    above = {"type": "number", "exclusiveMinimum": numbers[-1]}
    return [below, *between, above]


def _not_composites(kind: str, values: list[Any], document: Document, depth: int) -> Negation:
    if not values:
        return IMPOSSIBLE
    parts = [negate(described(value), document, frozenset({kind}), depth + 1) for value in values]
    if any(not part.branches for part in parts):
        return UNKNOWN
    combined = {"type": kind, "allOf": [{"anyOf": part.branches} for part in parts]}
    return Negation([combined], all(part.is_exact for part in parts))


def described(value: Any) -> Schema:
    """An array or object that is a constant, said with other keywords."""
    if isinstance(value, list):
        size = len(value)
        return {"type": "array", "items": [{"enum": [item]} for item in value], "minItems": size, "maxItems": size}
    return {
        "type": "object",
        "properties": {name: {"enum": [one]} for name, one in value.items()},
        "required": list(value),
        "maxProperties": len(value),
    }


def _bound(keyword: str, opposite: str, opened: str) -> Callable[[Mapping[str, Any], Document, int], Negation]:
    def negator(schema: Mapping[str, Any], document: Document, depth: int) -> Negation:
        name = opposite if schema.get(opened) is True else "exclusive" + opposite.capitalize()
        return Negation([{"type": "number", name: schema[keyword]}], True)

    return negator


def _open_bound(keyword: str, opposite: str) -> Callable[[Mapping[str, Any], Document, int], Negation]:
    def negator(schema: Mapping[str, Any], document: Document, depth: int) -> Negation:
        bound = schema[keyword]
        if not is_number(bound):
            return IMPOSSIBLE
        # In draft 4 this keyword is a boolean, and nothing is certain of a number.
        return Negation([{"type": "number", opposite: bound}], True) if document.draft > 4 else UNKNOWN

    return negator


def _least(keyword: str, kind: str) -> Callable[[Mapping[str, Any], Document, int], Negation]:
    def negator(schema: Mapping[str, Any], document: Document, depth: int) -> Negation:
        size = int(schema[keyword])
        opposite = {"type": kind, keyword.replace("min", "max", 1): size - 1}
        return Negation([opposite], True) if size > 0 else IMPOSSIBLE

    return negator


def _most(keyword: str, kind: str) -> Callable[[Mapping[str, Any], Document, int], Negation]:
    def negator(schema: Mapping[str, Any], document: Document, depth: int) -> Negation:
        return Negation([{"type": kind, keyword.replace("max", "min", 1): int(schema[keyword]) + 1}], True)

    return negator


def _pattern(schema: Mapping[str, Any], document: Document, depth: int) -> Negation:
    try:
        others = complement_of(schema["pattern"], document.budget)
    except RegexError:
        return UNKNOWN
    return IMPOSSIBLE if others is None else Negation([{"type": "string", "pattern": others}], True)


def _required(schema: Mapping[str, Any], document: Document, depth: int) -> Negation:
    names = schema["required"]
    if isinstance(names, bool):
        return IMPOSSIBLE
    return Negation([{"type": "object", "properties": {name: False}} for name in dict.fromkeys(names)], True)


def _properties(schema: Mapping[str, Any], document: Document, depth: int) -> Negation:
    branches: list[Schema] = []
    is_exact = True
    for name, one in schema["properties"].items():
        part = negate(one, document, KINDS, depth + 2)
        is_exact = is_exact and part.is_exact
        if part.branches:
            branches.append({"type": "object", "properties": {name: alternatives(part)}, "required": [name]})
    return Negation(branches, is_exact)


def _items(schema: Mapping[str, Any], document: Document, depth: int) -> Negation:
    items = schema["items"]
    if isinstance(items, list):
        return _prefix(items, document, depth)
    if "prefixItems" in schema and document.draft >= LATEST:
        return UNKNOWN
    part = negate(items, document, KINDS, depth + 5)
    if not part.branches:
        return part
    return Negation([{"type": "array", "contains": alternatives(part)}], part.is_exact)


def _prefix(items: list[Schema], document: Document, depth: int) -> Negation:
    """Some item of a tuple is not what it should be; what comes after the tuple is left out."""
    branches: list[Schema] = []
    for index, one in enumerate(items):
        part = negate(one, document, KINDS, depth + 5)
        if part.branches:
            document.budget.think(index)
            broken = {"type": "array", "items": [True] * index + [alternatives(part)], "minItems": index + 1}
            branches.append(broken)
    return Negation(branches, False)


def _contains(schema: Mapping[str, Any], document: Document, depth: int) -> Negation:
    if "minContains" in schema or "maxContains" in schema:
        return UNKNOWN
    part = negate(schema["contains"], document, KINDS, depth + 1)
    without = alternatives(part)
    return Negation([{"type": "array", "items": False if without is None else without}], part.is_exact)


def _property_names(schema: Mapping[str, Any], document: Document, depth: int) -> Negation:
    """Some name is one of those that are forbidden, where these are few; otherwise all names that there are."""
    names = document.resolved(schema["propertyNames"])
    inner = (
        document.resolved(names["not"]) if isinstance(names, dict) and names.keys() & ASSERTIONS == {"not"} else None
    )
    if not isinstance(inner, dict) or inner.keys() & ASSERTIONS not in ({"enum"}, {"const"}):
        others = {"propertyNames": {"not": names}, "minProperties": 1}
        return Negation([{"type": "object", **others}], False) if isinstance(names, dict) else UNKNOWN
    words = [value for value in inner.get("enum", [inner.get("const")]) if isinstance(value, str)]
    return Negation([{"type": "object", "required": [word]} for word in words], True)


def _all_of(schema: Mapping[str, Any], document: Document, depth: int) -> Negation:
    parts = [negate(part, document, KINDS, depth + 1) for part in schema["allOf"]]
    return Negation([branch for part in parts for branch in part.branches], all(part.is_exact for part in parts))


def _any_of(schema: Mapping[str, Any], document: Document, depth: int) -> Negation:
    return _none_of(schema["anyOf"], document, depth)


def _none_of(options: list[Schema], document: Document, depth: int) -> Negation:
    parts = [negate(option, document, KINDS, depth + 1) for option in options]
    if any(not part.branches for part in parts):
        return Negation([], any(part == IMPOSSIBLE for part in parts))
    combined = {"allOf": [alternatives(part) for part in parts]} if len(parts) > 1 else alternatives(parts[0])
    return Negation([combined], all(part.is_exact for part in parts))


def _one_of(schema: Mapping[str, Any], document: Document, depth: int) -> Negation:
    """None of the options holds, or two of them do."""
    options = schema["oneOf"]
    none = _none_of(options, document, depth)
    if len(options) > MAX_PAIRED:
        return Negation(none.branches, False)
    pairs = [
        {"allOf": [left, right]} for left, right in combinations(options, 2) if not are_disjoint(left, right, document)
    ]
    return Negation([*none.branches, *pairs], none.is_exact)


def _not(schema: Mapping[str, Any], document: Document, depth: int) -> Negation:
    return Negation([schema["not"]], True)


def _reference(schema: Mapping[str, Any], document: Document, depth: int) -> Negation:
    return negate(document.target(schema["$ref"]).schema, document, KINDS, depth + 1)


def _condition(schema: Mapping[str, Any], document: Document, depth: int) -> Negation:
    """The condition holds and its consequence does not, or neither does what stands for the other case."""
    branches: list[Schema] = []
    consequence = negate(schema.get("then", True), document, KINDS, depth + 1)
    if consequence.branches:
        branches.append({"allOf": [schema["if"], alternatives(consequence)]})
    otherwise = negate(schema.get("else", True), document, KINDS, depth + 1)
    unless = negate(schema["if"], document, KINDS, depth + 1)
    if otherwise.branches and unless.branches:
        branches.append({"allOf": [alternatives(unless), alternatives(otherwise)]})
    return Negation(branches, consequence.is_exact and otherwise.is_exact and unless.is_exact)


def _dependencies(keyword: str) -> Callable[[Mapping[str, Any], Document, int], Negation]:
    def negator(schema: Mapping[str, Any], document: Document, depth: int) -> Negation:
        branches: list[Schema] = []
        is_exact = True
        for name, needed in schema[keyword].items():
            broken = negate({"required": needed} if isinstance(needed, list) else needed, document, KINDS, depth + 1)
            is_exact = is_exact and broken.is_exact
            if broken.branches:
                branches.append({"type": "object", "required": [name], "allOf": [alternatives(broken)]})
        return Negation(branches, is_exact)

    return negator


_NEGATORS: dict[str, Callable[[Mapping[str, Any], Document, int], Negation]] = {
    "type": _type,
    "const": _const,
    "enum": _enum,
    "minimum": _bound("minimum", "maximum", "exclusiveMinimum"),
    "maximum": _bound("maximum", "minimum", "exclusiveMaximum"),
    "exclusiveMinimum": _open_bound("exclusiveMinimum", "maximum"),
    "exclusiveMaximum": _open_bound("exclusiveMaximum", "minimum"),
    **{"min" + end: _least("min" + end, kind) for end, kind in (("Length", "string"), ("Items", "array"))},
    **{"max" + end: _most("max" + end, kind) for end, kind in (("Length", "string"), ("Items", "array"))},
    "minProperties": _least("minProperties", "object"),
    "maxProperties": _most("maxProperties", "object"),
    "pattern": _pattern,
    "required": _required,
    "properties": _properties,
    "items": _items,
    "prefixItems": lambda schema, document, depth: _prefix(schema["prefixItems"], document, depth),
    "contains": _contains,
    "propertyNames": _property_names,
    "allOf": _all_of,
    "anyOf": _any_of,
    "oneOf": _one_of,
    "not": _not,
    "$ref": _reference,
    "if": _condition,
    **{name: _dependencies(name) for name in ("dependencies", "dependentRequired", "dependentSchemas")},
}
