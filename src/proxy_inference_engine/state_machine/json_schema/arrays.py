"""Keywords about the items of an array as a whole, said item by item where their number allows it."""

from collections.abc import Iterator, Mapping
from itertools import combinations, islice, permutations
from typing import Any

from proxy_inference_engine.state_machine.json_schema.disjointness import are_disjoint
from proxy_inference_engine.state_machine.json_schema.document import Document
from proxy_inference_engine.state_machine.json_schema.errors import NotEnforceable
from proxy_inference_engine.state_machine.json_schema.keywords import (
    ASSERTIONS,
    OF_OBJECTS,
    Kinds,
    Schema,
    children,
    is_known_to,
    kinds_of,
)
from proxy_inference_engine.state_machine.json_schema.negation import alternatives, negate
from proxy_inference_engine.state_machine.json_schema.values import admits, key_of

# How far from the start a contained item is looked for when the array may be longer.
MAX_POSITIONS = 8
MAX_NESTED_POSITIONS = 3  # where items are arrays, in which something may be looked for in turn
MAX_LOOKED_AT = 64
MAX_ARRANGEMENTS = 330
MAX_VALUES = 18
MAX_IN_ORDER = 8
_OF_ITEMS = frozenset({"items", "prefixItems", "contains", "unevaluatedItems"})
_OF_OBJECTS = OF_OBJECTS | {"type"}
_FEW = ASSERTIONS - {"type", "minLength"}  # what there may be few of
_TOO_MANY = "There are too many ways to arrange the values of the items."


def _or_no_array(options: list[Schema], kinds: Kinds) -> Schema:
    rest: list[Schema] = [{"type": sorted(kinds - {"array"})}] if kinds - {"array"} else []
    return {"anyOf": [*options, *rest]}


def contains(schema: Mapping[str, Any], document: Document, kinds: Kinds) -> Schema:
    """The places where the contained items stand, one alternative for each."""
    counts = is_known_to(document.draft, "minContains")
    least = schema.get("minContains", 1) if counts else 1
    most = schema.get("maxContains") if counts else None
    if least == 0 and most is None:
        return True
    most_positions = MAX_NESTED_POSITIONS if _speaks_of_arrays(schema["contains"], document) else MAX_POSITIONS
    num_positions = int(min(schema.get("maxItems", most_positions), most_positions))
    if least > num_positions and least <= schema.get("maxItems", least):
        raise NotEnforceable(f"That an array contains more than {most_positions} such items cannot be enforced.")
    inside = schema["contains"]
    outside: Schema | None = True
    if most is not None:
        outside = alternatives(negate(inside, document))
        if outside is None:
            raise NotEnforceable("The negation of what an array contains cannot be expressed.")
    options: list[Schema] = []
    # Never up to a number of the client's: beyond the places there are, there is nothing to arrange.
    first, last = min(least, num_positions + 1), min(least if most is None else most, num_positions)
    for count in range(int(first), int(last) + 1):
        for positions in combinations(range(num_positions), count):
            options.append(_with_items_at(positions, inside, outside))
            if len(options) > MAX_ARRANGEMENTS:
                raise NotEnforceable("There are too many ways to arrange what an array contains.")
    return _or_no_array(options, kinds)


def _speaks_of_arrays(schema: Schema, document: Document) -> bool:
    """Whether a schema says something about items, its own or those of a value inside; yes if it is not seen soon."""
    stack = [schema]
    for _ in range(MAX_LOOKED_AT):
        if not stack:
            return False
        document.spend()
        one = stack.pop()
        if not isinstance(one, dict):
            continue
        if not _OF_ITEMS.isdisjoint(one):
            return True
        stack += [below for _, below in children(one)]
        stack += [document.target(one["$ref"]).schema] if "$ref" in one else []
    return True


def _with_items_at(positions: tuple[int, ...], inside: Schema, outside: Schema) -> Schema:
    length = positions[-1] + 1 if positions else 0
    items = [inside if index in positions else outside for index in range(length)]
    return {"type": "array", "items": items, "additionalItems": outside, "minItems": length}


def unique_items(schema: Mapping[str, Any], document: Document, kinds: Kinds) -> Schema:
    """Every arrangement of the few values there are; nothing where there can be no two equal items."""
    if _are_different(schema, document):
        return True
    values = _item_values(schema, document)
    if values is None:
        raise NotEnforceable("It cannot be enforced that these items differ.")
    least, most = _lengths(schema, values)
    arrangements = list(islice(_arrangements(values, least, most), MAX_ARRANGEMENTS + 1))
    if len(arrangements) > MAX_ARRANGEMENTS:
        document.is_narrowed = True
        arrangements = _sets(values, least, most)
    options: list[Schema] = []
    for arrangement in arrangements:
        items = [{"enum": [value]} for value in arrangement]
        options.append({"type": "array", "items": items, "minItems": len(items), "maxItems": len(items)})
    return _or_no_array(options, kinds)


def told_apart(schema: Mapping[str, Any], items: Schema, document: Document) -> Schema | None:
    """The items of an array whose objects need a property by which they differ; None: they have one, or cannot."""
    target = document.resolved(items) if schema.get("uniqueItems") is True and schema.get("maxItems", 2) > 1 else None
    if (
        not isinstance(target, dict)
        or "object" not in kinds_of(target)
        or not target.keys() & ASSERTIONS <= _OF_OBJECTS
    ):
        return None
    document.spend(len(target.get("properties", ())))
    given = {name: document.resolved(one) for name, one in target.get("properties", {}).items()}
    required = target.get("required", [])
    if any(_are_scalars(given.get(name)) for name in required):
        return None
    name = next((name for name, one in given.items() if _are_scalars(one) and one.keys().isdisjoint(_FEW)), None)
    if name is None:
        return None
    document.is_narrowed = True
    return {**target, "required": [*required, name]}


def _are_scalars(schema: Schema | None) -> bool:
    return isinstance(schema, dict) and schema.get("type") in ("string", "integer")


def is_every_arrangement_written(schema: Mapping[str, Any], document: Document) -> bool:
    """Whether `unique_items` leaves out none of them."""
    if _are_different(schema, document):
        return True
    try:
        values = _item_values(schema, document)
    except NotEnforceable:
        return False
    if values is None:
        return False
    found = _arrangements(values, *_lengths(schema, values))
    return sum(1 for _ in islice(found, MAX_ARRANGEMENTS + 1)) <= MAX_ARRANGEMENTS


def _are_different(schema: Mapping[str, Any], document: Document) -> bool:
    return schema["uniqueItems"] is False or schema.get("maxItems", 2) <= 1 or _differ_by_place(schema, document)


def _lengths(schema: Mapping[str, Any], values: list[Any]) -> tuple[int, int]:
    most = int(min(schema.get("maxItems", len(values)), len(values)))
    return int(min(schema.get("minItems", 0), most + 1)), most


def _arrangements(values: list[Any], least: int, most: int) -> Iterator[tuple[Any, ...]]:
    for length in range(least, most + 1):
        yield from permutations(values, length)


def _sets(values: list[Any], least: int, most: int) -> list[tuple[Any, ...]]:
    """Every set of the values, in the order in which they are listed; two values in any order."""
    if len(values) > MAX_IN_ORDER:
        raise NotEnforceable(_TOO_MANY)
    turned = [pair[::-1] for pair in combinations(values, 2)] if least <= 2 <= most else []
    return [*(one for length in range(least, most + 1) for one in combinations(values, length)), *turned]


def _item_values(schema: Mapping[str, Any], document: Document) -> list[Any] | None:
    items = document.resolved(schema.get("items"))
    if not isinstance(items, dict) or "prefixItems" in schema:
        return None
    values: list[Any] | None = items.get("enum", [items["const"]] if "const" in items else None)
    if values is None:
        few: dict[str, list[Any]] = {"boolean": [True, False], "null": [None]}
        values = few.get(str(items.get("type")))
    if values is None:
        return None
    if len(values) > MAX_VALUES:
        raise NotEnforceable(_TOO_MANY)
    return list({key_of(value): value for value in values if admits(value, items, document) is not False}.values())


def _differ_by_place(schema: Mapping[str, Any], document: Document) -> bool:
    """Whether an array is a tuple whose items have nothing in common."""
    items = schema.get("items")
    prefix = items if isinstance(items, list) else schema.get("prefixItems", [])
    rest = schema.get("additionalItems") if isinstance(items, list) else items
    if not prefix or not (rest is False or schema.get("maxItems", len(prefix) + 1) <= len(prefix)):
        return False
    return all(are_disjoint(left, right, document) for left, right in combinations(prefix, 2))
