"""Objects whose properties come in any order because a watch keeps what the grammar then cannot say.

Which have to be there, and, where no others may be, which are left. The properties are patterns that list them, and a
mark says what the watch has to know. There must always be a way to finish: what is still missing can be written, and
where keys run out the watch ends the object before they have.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from proxy_inference_engine.state_machine.json_schema.budget import OutOfSteps, StepBudget
from proxy_inference_engine.state_machine.json_schema.free_order import MAX_PATTERNS, is_part, listing, parts_referred
from proxy_inference_engine.state_machine.json_schema.item_texts import DIFFERENT
from proxy_inference_engine.state_machine.json_schema.keywords import (
    OF_NUMBERS,
    OF_OBJECTS,
    children,
    kinds_of,
    lengths,
    mapped,
)
from proxy_inference_engine.state_machine.json_schema.languages import language_of
from proxy_inference_engine.state_machine.json_schema.names import are_endless
from proxy_inference_engine.state_machine.json_schema.patterns import Membership
from proxy_inference_engine.state_machine.json_schema.plain import UNWRITABLE
from proxy_inference_engine.state_machine.json_schema.regexes import RegexError
from proxy_inference_engine.state_machine.json_schema.result import DEFINITIONS

# Stands in a rewritten object for what a watch keeps of it; never in what the library is given.
KEPT = "x-kept"
MIN_NAMES = 4  # of fewer every order is written down
MAX_NAMES = 400  # of a document
MAX_FOLLOWED = 8  # schemas within schemas of one value
MAX_STEPS = 30_000
_COUNTS = ("minLength", "maxLength", "format")


def with_kept(schema: dict[str, Any], unkept: frozenset[int]) -> tuple[dict[str, Any], frozenset[int]]:
    """A rewritten schema with the objects marked that a watch may keep, and their numbers.

    `unkept`: numbers of those that it cannot.
    """
    keeping = _Keeping(unkept)
    try:
        return keeping.document(schema), frozenset(keeping.kept)
    except OutOfSteps:
        return schema, frozenset()


class Kept(NamedTuple):
    """What a watch has to know of an object: which keys are needed, and of which it is certain that they can come."""

    number: int
    needed: tuple[str, ...]
    certain: tuple[str, ...]
    is_closed: bool
    is_endless: bool  # there is always another one, by the client's patterns


class _Keeping:
    def __init__(self, unkept: frozenset[int]) -> None:
        self.kept: set[int] = set()
        self._given: Mapping[str, Any] = {}
        self._unkept = unkept
        self._num_found = 0
        self._num_names = 0
        self._budget = StepBudget(MAX_STEPS)

    def document(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        parts = parts_referred(schema, self._budget)
        self._given = schema.get("$defs", {})
        changed: dict[str, Any] = self._changed({key: one for key, one in schema.items() if key != "$defs"}, False)
        definitions = {name: self._changed(one, name in parts) for name, one in self._given.items()}
        return {**changed, "$defs": definitions} if definitions else changed

    def _changed(self, schema: Any, is_a_part: bool) -> Any:
        self._budget.spend()
        if not isinstance(schema, dict):
            return schema
        result = mapped(schema, lambda below, one: self._changed(one, is_part(below[0], is_a_part)))
        if is_a_part:
            return result
        return {"allOf": self._together(result["allOf"])} if result.keys() == {"allOf"} else self._kept(result)

    def _together(self, parts: list[Any]) -> list[Any]:
        """Parts that hold together, with what only one of them says something of in any order."""
        result: list[Any] = []
        for index, part in enumerate(parts):
            named = [self._named(one) for other, one in enumerate(parts) if other != index]
            known = [one for one in named if one is not None]
            is_known = isinstance(part, dict) and len(known) == len(named)
            result.append(self._kept(part, frozenset().union(*known)) if is_known else part)
        return result

    def _named(self, part: Any, depth: int = 0) -> frozenset[str] | None:
        """The names that a part says something of; None where it may say something of others too."""
        self._budget.spend()
        if not isinstance(part, dict) or depth > MAX_FOLLOWED or not part.keys() <= _SELECTIVE:
            return None
        below = [*part.get("allOf", ()), *part.get("anyOf", ())]
        below += [self._target(part)] if "$ref" in part else []
        found = [self._named(one, depth + 1) for one in below]
        known = [one for one in found if one is not None]
        own = frozenset([*part.get("properties", ()), *part.get("required", ())])
        return own.union(*known) if len(known) == len(found) else None

    def _kept(self, schema: dict[str, Any], elsewhere: frozenset[str] = frozenset()) -> dict[str, Any]:
        """`elsewhere`: names that other parts say something of, which stay as they are."""
        listed = schema.get("properties", {})
        rest, patterns = schema.get("additionalProperties", {}), schema.get("patternProperties", {})
        needed = tuple(name for name in dict.fromkeys(schema.get("required", ())) if name not in elsewhere)
        properties = {name: one for name, one in listed.items() if one is not False and name not in elsewhere}
        if len(properties) < MIN_NAMES or not (needed or rest is False or patterns):
            return schema
        properties |= {name: rest for name in needed if name not in listed}
        certain = tuple(name for name, one in properties.items() if self._is_certain(one))
        is_endless = bool(patterns) and are_endless(schema, self._budget)
        if not (
            schema.keys() <= _PLAIN_OBJECT
            and all(map(_is_writable, properties))
            and set(needed) <= set(certain)
            and (rest is False or self._is_certain(rest))
            and self._are_apart(patterns, properties)
        ):
            return schema
        return self._marked(schema, properties, Kept(0, needed, certain, rest is False, is_endless))

    def _marked(self, schema: dict[str, Any], properties: Mapping[str, Any], kept: Kept) -> dict[str, Any]:
        groups: dict[str, list[str]] = {}
        for name, one in properties.items():
            self._budget.spend(_size(one) // 8)
            groups.setdefault(json.dumps(one), []).append(name)
        patterns = schema.get("patternProperties", {})
        if len(groups) + len(patterns) > MAX_PATTERNS:
            return schema
        self._num_found += 1
        if self._num_found in self._unkept or self._num_names + len(properties) > MAX_NAMES:
            return schema
        self._num_names += len(properties)
        self.kept.add(self._num_found)
        left: dict[str, Any] = {
            "properties": {name: one for name, one in schema["properties"].items() if name not in properties},
            "required": [name for name in schema.get("required", ()) if name not in properties],
        }
        ours = {listing(names): properties[names[0]] for names in groups.values()}
        mark = {KEPT: kept._replace(number=self._num_found)}
        rest = {key: one for key, one in schema.items() if key not in left}
        free = {
            **rest,
            **{key: one for key, one in left.items() if one},
            "patternProperties": {**ours, **patterns},
            **mark,
        }
        # What is left comes before the rest, so that the schema's own order needs an alternative of its own.
        return (
            {"anyOf": [{**schema, **mark}, free]}
            if any(one is not False for one in left["properties"].values())
            else free
        )

    def _are_apart(self, patterns: Mapping[str, Any], names: Iterable[str]) -> bool:
        """Whether no pattern of the client's has one of the names."""
        try:
            read = [Membership(language_of(pattern)) for pattern in patterns]
            return not any(one.contains(name, self._budget.think) for one in read for name in names)
        except RegexError:
            return False

    # Whether some value surely satisfies a rewritten schema: the library leaves out a property that none does.

    def _is_certain(self, schema: Any) -> bool:
        self._budget.spend()
        if not isinstance(schema, dict):
            return schema is not False
        if "allOf" in schema:
            if self._takes_empty(schema, "object") or self._takes_empty(schema, "array"):
                return True
            return schema.keys() == {"allOf"} and self._are_certain(schema["allOf"])
        if "anyOf" in schema:
            return schema.keys() == {"anyOf"} and any(map(self._is_certain, schema["anyOf"]))
        least = int(schema.get("minItems", 0))
        prefix = schema.get("prefixItems", [])
        items = [*prefix[:least], *([schema.get("items", True)] if least > len(prefix) else [])]
        named = schema.get("properties", {})
        needed = [named.get(name, schema.get("additionalProperties", True)) for name in schema.get("required", ())]
        has_patterns = bool(needed) and "patternProperties" in schema
        is_exact = not has_patterns and self._has_strings(schema) and _has_multiples(schema)
        return is_exact and all(map(self._is_certain, [*items, *needed]))

    def _takes_empty(self, schema: Any, kind: str, depth: int = 0) -> bool:
        """Whether an object or an array with nothing in it satisfies a schema."""
        self._budget.spend()
        if not isinstance(schema, dict) or depth > MAX_FOLLOWED or not _EMPTY[kind].isdisjoint(schema):
            return schema is True
        if kind not in kinds_of(schema):
            return False
        if "$ref" in schema and not self._takes_empty(self._target(schema), kind, depth + 1):
            return False
        every, some = schema.get("allOf", ()), schema.get("anyOf", (True,))
        return all(self._takes_empty(one, kind, depth + 1) for one in every) and any(
            self._takes_empty(one, kind, depth + 1) for one in some
        )

    def _target(self, schema: Mapping[str, Any]) -> Any:
        return self._given[schema["$ref"].removeprefix(DEFINITIONS)]

    def _are_certain(self, parts: list[Any]) -> bool:
        """Whether all parts but one say at most how many items there are."""
        loud = [part for part in parts if not (isinstance(part, dict) and part.keys() <= _QUIET)]
        least = max((part.get("minItems", 0) for part in parts if isinstance(part, dict)), default=0)
        most = min((part.get("maxItems", least) for part in parts if isinstance(part, dict)), default=least)
        whole = {**loud[0], "minItems": least} if loud and isinstance(loud[0], dict) else True
        is_any = all(isinstance(part, dict) for part in parts) and frozenset.intersection(*map(kinds_of, parts))
        return len(loud) == 1 and least <= most and bool(is_any) and self._is_certain(whole)

    def _has_strings(self, schema: Mapping[str, Any]) -> bool:
        if "pattern" not in schema or schema.keys().isdisjoint(_COUNTS):
            return True
        try:
            language = language_of(schema["pattern"]).with_length(*lengths(schema))
            return "format" not in schema and not language.is_empty(self._budget.think)
        except RegexError:
            return False


def _size(schema: Any) -> int:
    """How many schemas there are in a schema."""
    stack, size = [schema], 0
    while stack:
        size += 1
        one = stack.pop()
        stack += [below for _, below in children(one)] if isinstance(one, dict) else ()
    return size


def _has_multiples(schema: Mapping[str, Any]) -> bool:
    if "multipleOf" not in schema:
        return True
    bounds = [schema[key] for key in OF_NUMBERS - {"multipleOf"} if key in schema]
    return len(bounds) < 2 or max(bounds) - min(bounds) > 2 * schema["multipleOf"]


_EMPTY = {
    "object": frozenset({"required", "minProperties", "enum", "const"}),
    "array": frozenset({"minItems", "enum", "const"}),
}
_SELECTIVE = frozenset({"type", "properties", "required", "allOf", "anyOf", "$ref"})
_QUIET = frozenset({"type", "minItems", "maxItems", DIFFERENT})
_PLAIN_OBJECT = (OF_OBJECTS - {"minProperties", "maxProperties"}) | {"type"}


def _is_writable(name: str) -> bool:
    """Whether a key has one text."""
    return UNWRITABLE.isdisjoint(name) and not any("\ud800" <= char <= "\udfff" for char in name)
