"""Unevaluated properties and items: what is left of a value when all is known that the keywords beside look at.

Which that are depends on which branches hold, so there is an alternative for every way to hold. That more was looked at
never makes a value invalid, so a way may leave out what its branches look at, and need not say that others fail.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from proxy_inference_engine.state_machine.json_schema.document import Document
from proxy_inference_engine.state_machine.json_schema.errors import NotEnforceable
from proxy_inference_engine.state_machine.json_schema.keywords import MAX_DEPTH, Kinds, Schema, is_known_to

MAX_WAYS = 24
# Of more options than these, one is counted on at a time, or all.
MAX_TOGETHER = 4


@dataclass(frozen=True, slots=True)
class Way:
    """Schemas that hold, and what of a value is looked at then."""

    conditions: tuple[Schema, ...] = ()
    names: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    num_items: int = 0
    matching: tuple[Schema, ...] = ()  # items that satisfy one of these
    is_whole: bool = False

    def and_(self, other: "Way") -> "Way":
        return Way(
            _union(self.conditions, other.conditions),
            tuple(dict.fromkeys(self.names + other.names)),
            tuple(dict.fromkeys(self.patterns + other.patterns)),
            max(self.num_items, other.num_items),
            _union(self.matching, other.matching),
            self.is_whole or other.is_whole,
        )

    def on(self, condition: Schema) -> "Way":
        """This way where a schema holds too; one that looks at nothing needs no condition."""
        return Way((condition,)).and_(self) if self != NOTHING else self

    def covers(self, other: "Way") -> bool:
        """Whether the other way brings nothing: it asks for as much, and looks at no more."""
        sees_more = self.is_whole or (
            not other.is_whole
            and set(self.names) >= set(other.names)
            and set(self.patterns) >= set(other.patterns)
            and self.num_items >= other.num_items
            and all(_is_among(one, self.matching) for one in other.matching)
        )
        return sees_more and all(_is_among(one, other.conditions) for one in self.conditions)

    @property
    def weight(self) -> int:
        """What comparing this way with another costs, in steps."""
        return 1 + (len(self.names) + len(self.patterns)) // 8


def _union(left: tuple[Schema, ...], right: tuple[Schema, ...]) -> tuple[Schema, ...]:
    return left + tuple(one for one in right if not _is_among(one, left))


def _is_among(schema: Schema, others: tuple[Schema, ...]) -> bool:
    """Whether it is one of the others, and not only like one: comparing what a client wrote may take long."""
    return any(schema is other for other in others)


NOTHING = Way()
Look = Callable[[Mapping[str, Any]], Way]


def unevaluated_properties(schema: Mapping[str, Any], document: Document, kinds: Kinds) -> Schema:
    """A schema that says, for every way to hold, that the properties it does not look at are what the keyword says."""

    def look(part: Mapping[str, Any]) -> Way:
        if "additionalProperties" in part or (part is not schema and "unevaluatedProperties" in part):
            return Way(is_whole=True)
        return Way(names=tuple(part.get("properties", ())), patterns=tuple(part.get("patternProperties", ())))

    def rest(way: Way) -> Schema:
        listed = {"properties": dict.fromkeys(way.names, True)} if way.names else {}
        patterns = {"patternProperties": dict.fromkeys(way.patterns, True)} if way.patterns else {}
        return {**listed, **patterns, "additionalProperties": schema["unevaluatedProperties"]}

    return _told(_Ways(document, look).of(schema, 0), rest)


def unevaluated_items(schema: Mapping[str, Any], document: Document, kinds: Kinds) -> Schema:
    """A schema that says, for every way to hold, that the items it does not look at are what the keyword says."""

    def look(part: Mapping[str, Any]) -> Way:
        items = part.get("items")
        if isinstance(items, dict | bool) or (part is not schema and "unevaluatedItems" in part):
            return Way(is_whole=True)
        if isinstance(items, list) and "additionalItems" in part and is_known_to(document.draft, "additionalItems"):
            return Way(is_whole=True)
        counts = is_known_to(document.draft, "prefixItems")
        prefix = items if isinstance(items, list) else part.get("prefixItems", []) if counts else []
        return Way(num_items=len(prefix), matching=(part["contains"],) if counts and "contains" in part else ())

    def rest(way: Way) -> Schema:
        document.spend(way.num_items)
        unseen = schema["unevaluatedItems"]
        others = {"anyOf": [*way.matching, unseen]} if way.matching else unseen
        return {"items": [True] * way.num_items, "additionalItems": others}

    return _told(_Ways(document, look).of(schema, 0), rest)


def _told(ways: list[Way], rest: Callable[[Way], Schema]) -> Schema:
    """One schema for all ways. The conditions hold already where there is but one."""
    if len(ways) == 1:
        return True if ways[0].is_whole else rest(ways[0])
    return {"anyOf": [{"allOf": [*way.conditions, *([] if way.is_whole else [rest(way)])]} for way in ways]}


@dataclass(frozen=True, slots=True)
class _Ways:
    document: Document
    look: Look

    def of(self, schema: Schema, depth: int) -> list[Way]:
        """The ways in which a schema that holds can do so."""
        self.document.spend()
        if not isinstance(schema, dict):
            return [NOTHING]
        if depth > MAX_DEPTH:
            raise NotEnforceable("It cannot be enforced beside references that lead in a circle.")
        ways = [self.look(schema)]
        for choices in self._choices(schema, depth + 1):
            ways = self._few(way.and_(choice) for way in ways for choice in choices)
        return ways

    def _few(self, ways: Iterable[Way]) -> list[Way]:
        """The ways without those that others cover."""
        kept: list[Way] = []
        for way in ways:
            self.document.spend(way.weight * (1 + len(kept)))
            if not any(one.covers(way) for one in kept):
                kept = [one for one in kept if not way.covers(one)] + [way]
            if len(kept) > MAX_WAYS:
                raise NotEnforceable("Too many branches look at different parts of the value.")
        return kept

    def _choices(self, schema: Mapping[str, Any], depth: int) -> Iterator[list[Way]]:
        """The ways of each keyword that has branches, one of which must hold."""
        for part in schema.get("allOf", ()):
            yield self.of(part, depth)
        if "$ref" in schema:
            yield self.of(self.document.target(schema["$ref"]).schema, depth)
        if "anyOf" in schema:
            yield self._few(self._together([self._branch(one, depth) for one in schema["anyOf"]]))
        if "oneOf" in schema:
            yield self._few(way for one in schema["oneOf"] for way in self._branch(one, depth))
        if "if" in schema:
            yield self._condition(schema, depth)
        for name, needed in schema.get("dependentSchemas", {}).items():
            present = {"type": "object", "required": [name]}
            yield self._few([*(way.on(present) for way in self.of(needed, depth)), NOTHING])

    def _branch(self, schema: Schema, depth: int) -> list[Way]:
        return [way.on(schema) for way in self.of(schema, depth)] if schema is not False else []

    def _together(self, branches: list[list[Way]]) -> Iterator[Way]:
        """One option holds, or several do."""
        sizes = range(1, len(branches) + 1) if len(branches) <= MAX_TOGETHER else (1, len(branches))
        for size in sizes:
            for some in combinations(branches, size):
                ways = some[0]
                for branch in some[1:]:
                    ways = self._few(way.and_(other) for way in ways for other in branch)
                yield from ways

    def _condition(self, schema: Mapping[str, Any], depth: int) -> list[Way]:
        """What follows from a condition, or from its failing, holds by itself."""
        asked, then = self.of(schema["if"], depth), self.of(schema.get("then", True), depth)
        holds = [way.and_(other).on(schema["if"]) for way in asked for other in then]
        fails = [way.on({"not": schema["if"]}) for way in self.of(schema.get("else", True), depth)]
        return self._few([*holds, *fails])
