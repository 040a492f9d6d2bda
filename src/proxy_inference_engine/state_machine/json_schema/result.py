"""What a rewritten schema is put together from, in the order in which the client wrote it. Decides nothing else."""

import math
from collections.abc import Mapping
from typing import Any

from proxy_inference_engine.state_machine.json_schema.counts import gathered
from proxy_inference_engine.state_machine.json_schema.document import children
from proxy_inference_engine.state_machine.json_schema.keywords import KINDS, Schema

DEFINITIONS = "#/$defs/"
# The library follows all alternatives at once, each with the properties that may come next, up to 2,000 items or so;
# a property is two or three of them.
MAX_ROW = 800
MIN_WIDTH = 8


class Result:
    """A schema under construction: the parts that hold together, in order, or nothing once one is impossible.

    The library fixes the order of properties by the order of parts in allOf, and of nothing else.
    """

    def __init__(self) -> None:
        self._parts: list[Any] = []
        self._is_possible = True
        self._num_alternatives = 1

    def add_plain(self, keywords: Any) -> None:
        """Keywords about one kind of value each, and alternatives that the number of properties leaves."""
        options = keywords.pop("anyOf", None) if isinstance(keywords, dict) else None
        self.add_part(keywords)
        if options is not None:
            self.add_options(options)

    def add_values(self, values: list[Any] | None) -> None:
        """The only values there are; None where they do not bind."""
        if values is not None:
            self.add_part({"enum": values} if values else False)

    def add_options(self, options: list[Any]) -> None:
        """Schemas of which one holds."""
        options = [option for option in options if option is not False]
        if not options:
            self.add_part(False)
        elif {} not in options:
            self.add_part({"anyOf": options} if len(options) > 1 else options[0])

    def add_part(self, part: Any) -> None:
        """A schema that holds as well."""
        if part is False:
            self._is_possible = False
            return
        for one in part["allOf"] if part.keys() == {"allOf"} else (part,):
            if one != {} and one not in self._parts:
                self._num_alternatives *= num_alternatives(one)
                self._parts.append(one)

    def is_too_wide_with(self, part: Any) -> bool:
        """Whether a part would make too many combinations with the alternatives there are; alone it may have many."""
        factor = num_alternatives(part)
        if factor == 1 or not self._parts:
            return False
        least = MIN_WIDTH if self._num_alternatives > 1 else 1
        width = max(least, *map(num_openings, self._parts))
        return factor * self._num_alternatives * width > MAX_ROW

    def without_counts(self) -> Any:
        """All parts as one schema, without bounds that stand alone."""
        self._parts = [part for part in self._parts if not part.keys() <= {"type", "minProperties", "maxProperties"}]
        return self.schema()

    def schema(self) -> Any:
        """All parts as one schema; raises NotEnforceable where bounds on properties have too many ways to be met."""
        parts = gathered(self._parts) if len(self._parts) > 1 else self._parts
        if not self._is_possible or False in parts:
            return False
        if len(parts) > 1:
            return {"allOf": parts}
        return parts[0] if parts else {}


def num_openings(schema: Mapping[str, Any]) -> int:
    """How many properties may be the first one of an object."""
    names = list(schema.get("properties", ()))
    required = set(schema.get("required", ()))
    return next((index + 1 for index, name in enumerate(names) if name in required), len(names))


def num_alternatives(schema: Any) -> int:
    """How many ways a rewritten schema has to be satisfied, by the alternatives written in it."""
    if not isinstance(schema, dict):
        return 1
    options = sum(map(num_alternatives, schema.get("anyOf", ()))) or 1
    return options * math.prod(map(num_alternatives, schema.get("allOf", ())))


def type_names(schema: Mapping[str, Any], kinds: set[str]) -> str | list[str]:
    """The value of "type" for some kinds, whole numbers where the client asks for them."""
    given = schema.get("type", sorted(KINDS))
    given = given if isinstance(given, list) else [given]
    names = [name for name in dict.fromkeys(given) if ("number" if name == "integer" else name) in kinds]
    if "number" in names and "integer" in names:
        names.remove("integer")
    return names[0] if len(names) == 1 else names


def property_of(schema: Mapping[str, Any], name: str) -> Schema:
    """What a rewritten object says of a property; True where a pattern may say more."""
    if name in schema.get("properties", {}):
        return schema["properties"][name]
    return True if schema.get("patternProperties") else schema.get("additionalProperties", True)


def depth_of(schema: Mapping[str, Any]) -> int:
    """How many schemas the library has open at once when it reads a document, following references when first met."""
    definitions = schema.get("$defs", {})
    root = {keyword: one for keyword, one in schema.items() if keyword != "$defs"}
    deepest = 0
    seen: set[str] = set()
    stack: list[tuple[Any, int]] = [(root, 1)]
    while stack:
        one, depth = stack.pop()
        deepest = max(deepest, depth)
        if not isinstance(one, dict):
            continue
        below = [child for _, child in children(one)]
        if "$ref" in one and one["$ref"] not in seen:
            seen.add(one["$ref"])
            below.append(definitions[one["$ref"].removeprefix(DEFINITIONS)])
        stack += [(child, depth + 1) for child in reversed(below)]
    return deepest
