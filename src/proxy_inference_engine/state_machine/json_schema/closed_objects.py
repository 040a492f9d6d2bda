"""Objects that list their properties and do not say whether others may come: no others may.

Weak models wander off into keys that nobody declared, and most people who write no `additionalProperties` expect none.
A schema is only ever narrowed: what the closed one admits, the client's own admits too.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from proxy_inference_engine.state_machine.json_schema.budget import StepBudget
from proxy_inference_engine.state_machine.json_schema.keywords import (
    ASSERTIONS,
    MAPS,
    Address,
    Schema,
    children,
    places,
    pointer,
)

# Subschemas about the same value as the schema around them.
_IN_PLACE = frozenset({"allOf", "anyOf", "oneOf", "if", "then", "else", "dependentSchemas", "dependencies", "not"})
_UNIONS = ("anyOf", "oneOf")
# Who says one of these has said whether others may come.
_SAYING = frozenset({"additionalProperties", "unevaluatedProperties", "$dynamicRef", "$recursiveRef"})


def closed(schema: Any, whole: StepBudget | None = None) -> Any:
    """A well-formed schema with its objects closed, every subschema at the place where it was. Raises OutOfSteps."""
    if not isinstance(schema, dict):
        return schema
    parts = frozenset(_parts_by_reference(schema))
    if not all(map(_is_local, parts)):
        return schema  # one that is named could be any of the definitions
    budget = StepBudget(whole=whole)
    known = frozenset("#" + pointer(place.address) for place in places(schema, budget))
    return _Closing(schema, parts, known, budget).value(schema, ())


def _is_local(reference: Any) -> bool:
    return isinstance(reference, str) and (reference == "#" or reference.startswith("#/"))


def _parts_by_reference(schema: Mapping[str, Any], is_part: bool = False) -> Iterator[Any]:
    """References to what is only a part of an object's description, and must not be closed by itself."""
    if "$ref" in schema and (is_part or len(schema.keys() & ASSERTIONS) > 1):
        yield schema["$ref"]
    is_union = _is_union(schema)
    for address, below in children(schema):
        if isinstance(below, dict):
            yield from _parts_by_reference(below, address[0] in _IN_PLACE and not is_union)


def _is_union(schema: Mapping[str, Any]) -> bool:
    """Whether all that a schema says is that one of several schemas holds."""
    said = schema.keys() & ASSERTIONS
    return len(said) == 1 and said <= {*_UNIONS}


@dataclass(slots=True)
class _Declared:
    """What the parts of an object's description list."""

    names: dict[str, None] = field(default_factory=dict)
    patterns: dict[str, None] = field(default_factory=dict)
    has_properties: bool = False
    is_said: bool = False  # whether others may come, or it cannot be known what is listed


@dataclass(frozen=True, slots=True)
class _Closing:
    root: Mapping[str, Any]
    parts: frozenset[str]  # references to what must stay open where it stands
    known: frozenset[str]  # references to every schema that stands where one is expected
    budget: StepBudget  # many objects may have the same large part

    def value(self, schema: Schema, address: Address) -> Schema:
        """A schema that describes a value by itself."""
        if not isinstance(schema, dict):
            return schema
        if "#" + pointer(address) in self.parts:
            return self._part(schema, address)
        if _is_union(schema):
            return self._union(schema, address)
        inside = self._part(schema, address)
        if schema.keys() & ASSERTIONS == {"$ref"} and schema["$ref"] in self.known - self.parts:
            return inside  # what it leads to is closed
        return self._shut(inside, schema)

    def _part(self, schema: Mapping[str, Any], address: Address) -> dict[str, Any]:
        """A schema whose own object stays as it is; the values inside of it are closed."""
        changed = dict(schema)
        kept = set(self._kept(schema))
        for below, one in children(schema):
            keyword, place = below[0], (*address, *below)
            if isinstance(one, dict) and keyword not in kept:
                closes = self._part if keyword in _IN_PLACE else self.value
                _put(changed, schema, below, closes(one, place))
        return changed

    def _kept(self, schema: Mapping[str, Any]) -> Iterator[str]:
        """Keywords that would admit more if what stands below them admitted less."""
        yield from ("not", "if")
        if "maxContains" in schema:
            yield "contains"
        if not self._exclude_each_other(schema.get("oneOf", [])):
            yield "oneOf"

    def _union(self, schema: Mapping[str, Any], address: Address) -> Schema:
        """Branches of `anyOf` are closed each for itself; those of `oneOf` where they exclude each other anyway."""
        keyword = next(name for name in _UNIONS if name in schema)
        branches = schema[keyword]
        if keyword == "oneOf" and not self._exclude_each_other(branches):
            return self._shut(self._part(schema, address), schema)
        return {**schema, keyword: [self.value(one, (*address, keyword, str(i))) for i, one in enumerate(branches)]}

    def _shut(self, inside: Mapping[str, Any], schema: Mapping[str, Any]) -> Schema:
        declared = _Declared()
        self._gather(schema, declared, set())
        num_least = schema.get("minProperties", 0)
        if not declared.has_properties or declared.is_said:
            return dict(inside)
        if not declared.patterns and isinstance(num_least, int) and num_least > len(declared.names):
            return dict(inside)
        own, patterns = inside.get("properties", {}), inside.get("patternProperties", {})
        self.budget.spend(len(declared.names))
        names = {**own, **{name: True for name in declared.names if name not in own}}
        result = {**inside, "properties": names, "additionalProperties": False}
        if declared.patterns:
            result["patternProperties"] = {**dict.fromkeys(declared.patterns, True), **patterns}
        return result

    def _gather(self, schema: Schema, declared: _Declared, seen: set[str]) -> None:
        if not isinstance(schema, dict):
            return
        self.budget.spend(len(schema.get("properties", ())) + 1)
        declared.is_said = declared.is_said or bool(schema.keys() & _SAYING)
        declared.has_properties = declared.has_properties or "properties" in schema
        declared.names |= dict.fromkeys(schema.get("properties", ()))
        declared.patterns |= dict.fromkeys(schema.get("patternProperties", ()))
        required = schema.get("required")
        declared.names |= dict.fromkeys(required if isinstance(required, list) else ())
        for names in schema.get("dependentRequired", {}).values():
            declared.names |= dict.fromkeys(names)
        if "$ref" in schema:
            self._gather_reference(schema["$ref"], declared, seen)
        for below, one in children(schema):
            if below[0] in _IN_PLACE and below[0] != "not":
                self._gather(one, declared, seen)

    def _gather_reference(self, reference: Any, declared: _Declared, seen: set[str]) -> None:
        target = self._target(reference)
        if target is None:
            declared.is_said = True
        elif reference not in seen:
            seen.add(reference)
            self._gather(target, declared, seen)

    def _exclude_each_other(self, branches: list[Schema]) -> bool:
        """Whether no object is valid for two of the branches, which a tag tells."""
        objects = [one for one in map(self._resolved, branches) if _may_be_object(one)]
        if len(objects) < 2:
            return True
        names = objects[0].get("properties", {}) if isinstance(objects[0], dict) else {}
        return any(self._is_tag(name, objects) for name in names)

    def _is_tag(self, name: str, branches: list[Schema]) -> bool:
        """Whether every branch demands other values of a property."""
        seen: list[Any] = []
        for branch in branches:
            described = branch.get("properties", {}).get(name) if isinstance(branch, dict) else None
            if not isinstance(described, dict) or name not in (branch.get("required") or ()):
                return False
            values = [described["const"]] if "const" in described else described.get("enum") or []
            self.budget.spend((len(seen) + 1) * len(values))
            if not values or any(value in seen for value in values):
                return False
            seen += values
        return True

    def _resolved(self, schema: Schema) -> Schema:
        seen: set[str] = set()
        while isinstance(schema, dict) and schema.keys() & ASSERTIONS == {"$ref"} and schema["$ref"] not in seen:
            seen.add(schema["$ref"])
            schema = self._target(schema["$ref"])
        return True if schema is None else schema

    def _target(self, reference: Any) -> Schema | None:
        """What a reference points to; None where that is not known."""
        if not _is_local(reference) or "%" in reference or "~" in reference:
            return None
        found: Any = self.root
        for name in reference.split("/")[1:]:
            found = found.get(name) if isinstance(found, dict) else None
        return found if isinstance(found, dict | bool) else None


def _put(changed: dict[str, Any], schema: Mapping[str, Any], below: Address, value: Schema) -> None:
    """Replace a subschema without touching the client's own."""
    keyword = below[0]
    if len(below) == 1:
        changed[keyword] = value
        return
    if changed[keyword] is schema[keyword]:
        changed[keyword] = dict(schema[keyword]) if isinstance(schema[keyword], dict) else list(schema[keyword])
    is_map = keyword in MAPS or keyword == "dependencies"
    changed[keyword][below[1] if is_map else int(below[1])] = value


def _may_be_object(schema: Schema) -> bool:
    if not isinstance(schema, dict):
        return bool(schema)
    types = schema.get("type", "object")
    return "object" in types if isinstance(types, list) else types == "object"
