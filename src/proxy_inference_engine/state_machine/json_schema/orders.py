"""Other orders of properties than the schema's own, for those who want a schema to the letter.

The library writes properties in the order in which a schema lists them, so each order is an alternative of its own: all
of them where the properties are few, otherwise one more, that of `required`. A schema gets only so many. Where a watch
keeps keys apart, what is not required comes in any order after what is.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, permutations
from math import factorial
from typing import Any, NamedTuple

from proxy_inference_engine.state_machine.json_schema.budget import OutOfSteps, StepBudget
from proxy_inference_engine.state_machine.json_schema.free_order import freed, is_part, may_be_freed, parts_referred
from proxy_inference_engine.state_machine.json_schema.keywords import KINDS, OF_OBJECTS, children, mapped
from proxy_inference_engine.state_machine.json_schema.result import DEFINITIONS, num_alternatives

# Of so many properties every order is written down.
MAX_PERMUTED = 3
# Alternatives of one object, with those that it has anyway; and of a whole document.
MAX_TOGETHER = 24
MAX_ORDERS = 120
# Schemas that are written again for the orders of one object.
MAX_COPIED = 600
MAX_STEPS = 30_000
MAX_FOLLOWED = 8  # references, one to the next

Names = tuple[str, ...]


def in_any_order(schema: dict[str, Any], *, is_watched: bool = False) -> dict[str, Any]:
    """A rewritten schema whose objects may have their properties in other orders too; itself where that is too much."""
    try:
        return _Orders(is_watched).document(schema)
    except OutOfSteps:
        return schema


class _Size(NamedTuple):
    """How many schemas there are in a schema, and whether something of it may turn out to be impossible."""

    num_schemas: int
    is_certain: bool

    @property
    def is_shared(self) -> bool:
        # The library refuses a document with a definition that is impossible, and an optional property it leaves out.
        return self.is_certain and self.num_schemas > 1


class _Orders:
    def __init__(self, is_watched: bool) -> None:
        self._is_watched = is_watched
        self._budget = StepBudget(MAX_STEPS)
        self._num_left = MAX_ORDERS
        self._given: Mapping[str, Any] = {}
        self._definitions: dict[str, Any] = {}

    def document(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        parts = parts_referred(schema, self._budget)
        self._given = schema.get("$defs", {})
        definitions = {name: self._changed(one, name in parts) for name, one in self._given.items()}
        root: dict[str, Any] = self._changed({keyword: one for keyword, one in schema.items() if keyword != "$defs"})
        definitions |= self._definitions
        return {**root, "$defs": definitions} if definitions else root

    def _changed(self, schema: Any, is_a_part: bool = False) -> Any:
        self._budget.spend()
        if not isinstance(schema, dict):
            return schema
        # What holds together with others is put in order together with them.
        result = mapped(schema, lambda below, one: self._changed(one, is_part(below[0], is_a_part)))
        if is_a_part:
            return result
        return self._together(result) if result.keys() == {"allOf"} else self._alone(result)

    def _alone(self, schema: dict[str, Any]) -> dict[str, Any]:
        """An object whose schema says nothing of other values but that they may be there."""
        types = schema.get("type", sorted(KINDS))
        types = types if isinstance(types, list) else [types]
        names = [name for name, one in schema.get("properties", {}).items() if one is not False]
        if len(names) < 2 or "object" not in types or not schema.keys() <= OF_OBJECTS | {"type"}:
            return schema
        sizes = {name: self._size(one) for name, one in schema["properties"].items()}
        weight = 1 + sum(1 if size.is_shared else size.num_schemas for size in sizes.values())
        others = [name for name in types if name != "object"]
        rest: list[Any] = [{"type": others}] if others else []
        required = schema.get("required", [])
        if len(names) > MAX_PERMUTED and self._is_watched and may_be_freed(schema) and _freed(schema, tuple(required)):
            needed = self._needed(names, required, weight, 1)
            if needed:
                # Where there are alternatives, what is large stands once.
                properties = self._once(schema, sizes) if needed[0] else schema["properties"]
                return _either([*_loose({**schema, "type": "object", "properties": properties}, needed), *rest])
        orders = self._orders(names, required, weight, 1)
        if not orders:
            return schema
        properties = self._once(schema, sizes)
        options: list[Any] = [
            {**schema, "type": "object", "properties": {name: properties[name] for name in (*order, *properties)}}
            for order in orders
        ]
        return {"anyOf": [*options, *rest]}

    def _once(self, schema: Mapping[str, Any], sizes: Mapping[str, _Size]) -> dict[str, Any]:
        """An object's properties, for several alternatives: the large ones are referred to."""
        given = schema["properties"]
        return {name: self._shared(one) if sizes[name].is_shared else one for name, one in given.items()}

    def _needed(self, names: list[str], required: Sequence[str], weight: int, num_ways: int) -> list[Names]:
        """The orders in which what is required comes first: the schema's own, and its list's; none without room."""
        known, asked = set(names), set(required)
        orders = (tuple(name for name in names if name in asked), tuple(name for name in required if name in known))
        found = list(dict.fromkeys(orders))
        self._budget.spend(len(found) * len(names))
        if not found[0]:
            return found
        most = min(self._num_left, MAX_TOGETHER // num_ways, MAX_COPIED // weight)
        if 1 + len(found) > most:
            return []
        self._num_left -= 1 + len(found)
        return found

    def _together(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Parts that hold together come in the order that a first part lists, which says nothing else."""
        names: dict[str, None] = {}
        required: dict[str, None] = {}
        if not all(self._gather(part, names, required) for part in schema["allOf"]) or len(names) < 2:
            return schema
        num_ways, weight = num_alternatives(schema, self._budget), self._size(schema).num_schemas
        if len(names) > MAX_PERMUTED and self._is_watched and self._is_open(schema):
            is_freed = _freed(schema, tuple(required)) is not None
            needed = self._needed(list(names), list(required), weight, num_ways) if is_freed else []
            if needed:
                return _either(_loose(schema, needed))
        orders = self._orders(list(names), list(required), weight, num_ways)
        listed: list[Any] = [{"properties": {name: {} for name in order}} for order in orders[1:]]
        return {"anyOf": [schema, *({"allOf": [one, *schema["allOf"]]} for one in listed)]} if listed else schema

    def _is_open(self, schema: Any, depth: int = 0) -> bool:
        """Whether no part says anything of properties that are not named."""
        self._budget.spend()
        if not isinstance(schema, dict) or depth > MAX_FOLLOWED or not may_be_freed(schema):
            return False
        below = [*schema.get("allOf", ()), *schema.get("anyOf", ())]
        if "$ref" in schema:
            below.append(self._given[schema["$ref"].removeprefix(DEFINITIONS)])
        return all(self._is_open(one, depth + 1) for one in below)

    def _gather(self, part: Any, names: dict[str, None], required: dict[str, None], depth: int = 0) -> bool:
        """Note the names in a part; whether all of them are known."""
        self._budget.spend()
        if not isinstance(part, dict) or depth > MAX_FOLLOWED:
            return False
        if "$ref" in part:
            target = self._given[part["$ref"].removeprefix(DEFINITIONS)]
            is_plain = num_alternatives(target, self._budget) == 1
            return is_plain and self._gather(target, names, required, depth + 1)
        names |= dict.fromkeys(name for name, one in part.get("properties", {}).items() if one is not False)
        required |= dict.fromkeys(part.get("required", ()))
        below = (*part.get("allOf", ()), *part.get("anyOf", ()))
        return all(self._gather(one, names, required, depth) for one in below)

    def _orders(self, names: list[str], required: list[str], weight: int, num_ways: int) -> list[Names]:
        """The schema's own order first; none where there is no other, or no room for it."""
        most = min(self._num_left, MAX_TOGETHER // num_ways, MAX_COPIED // weight)
        if len(names) <= MAX_PERMUTED and factorial(len(names)) <= most:
            orders = list(permutations(names))
        else:
            known = set(names)
            orders = list(islice(_likely(names, [name for name in required if name in known]), most))
        if len(orders) < 2:
            return []
        self._num_left -= len(orders)
        self._budget.spend(len(orders) * len(names))
        return orders

    def _size(self, schema: Any) -> _Size:
        num_schemas, is_certain = 0, True
        stack = [schema]
        while stack and num_schemas <= MAX_COPIED:
            self._budget.spend()
            num_schemas += 1
            one = stack.pop()
            if isinstance(one, dict):
                is_certain = is_certain and "allOf" not in one
                stack += [below for _, below in children(one)]
        return _Size(num_schemas, is_certain)

    def _shared(self, schema: Any) -> Any:
        name = f"o{len(self._definitions)}"
        self._definitions[name] = schema
        return {"$ref": DEFINITIONS + name}


def _either(options: list[Any]) -> dict[str, Any]:
    return {"anyOf": options} if len(options) > 1 else options[0]


def _loose(schema: dict[str, Any], needed: list[Names]) -> list[Any]:
    """The schema's own order, where something is required, and all else in any order after that."""
    own = [schema] if needed[0] else []
    return [*own, *(one for one in (_freed(schema, order) for order in needed) if one is not None)]


def _freed(schema: dict[str, Any], needed: Names) -> dict[str, Any] | None:
    """A schema with the needed properties first; None where that changes nothing, or is too much."""
    if "allOf" not in schema:
        return freed(schema, needed)
    parts = [freed(part, needed) for part in schema["allOf"]]
    if not any(parts):
        return None
    first: list[Any] = [{"properties": {name: {} for name in needed}}] if needed else []
    return {"allOf": [*first, *(one or part for one, part in zip(parts, schema["allOf"], strict=True))]}


def _likely(names: list[str], needed: list[str]) -> Iterator[Names]:
    """The order of the schema, and that of what is required before the rest."""
    own = tuple(names)
    yield own
    other = tuple(dict.fromkeys((*needed, *names)))
    if other != own:
        yield other
