"""A client's JSON Schema, written anew with the keywords that llguidance takes with its strict options.

Walks the schema; what its keywords mean is elsewhere, and compiling the result is not done here.
"""

import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from proxy_inference_engine.state_machine.json_schema.arrays import is_every_arrangement_written, told_apart
from proxy_inference_engine.state_machine.json_schema.bounds import counted, is_counted
from proxy_inference_engine.state_machine.json_schema.discriminators import tagged
from proxy_inference_engine.state_machine.json_schema.disjointness import conjuncts, kinds_of_properties, settled_values
from proxy_inference_engine.state_machine.json_schema.document import Document, references_beside
from proxy_inference_engine.state_machine.json_schema.errors import (
    ImpossibleSchema,
    NotEnforceable,
    UnenforceableSchema,
)
from proxy_inference_engine.state_machine.json_schema.item_texts import DIFFERENT
from proxy_inference_engine.state_machine.json_schema.keywords import (
    APPLIED,
    ASSERTIONS,
    BRANCHING,
    CONCERNED,
    KINDS,
    MAX_DEPTH,
    OF_ARRAYS,
    OF_NUMBERS,
    OF_OBJECTS,
    OF_STRINGS,
    PLAIN,
    UNSUPPORTED,
    Kinds,
    Schema,
    kinds_of,
    pointer,
)
from proxy_inference_engine.state_machine.json_schema.names import (
    are_endless,
    supported_patterns,
    without_universal_patterns,
)
from proxy_inference_engine.state_machine.json_schema.paraphrase import LOWERINGS, switched
from proxy_inference_engine.state_machine.json_schema.plain import is_expressible, numbers, strings
from proxy_inference_engine.state_machine.json_schema.result import (
    DEFINITIONS,
    Result,
    check_multiples,
    depth_of,
    property_of,
    type_names,
    unproductive,
)
from proxy_inference_engine.state_machine.json_schema.values import admits

TOO_MUCH = "The schema is too large, or its alternatives are too many."
MAX_PASSES = 8
# The library reads references by recursion, some kilobytes of stack for each schema on the way.
MAX_NESTING = 600
_IMPOSSIBLE = "No value satisfies the schema."
_NOTHING_LEFT = "No value satisfies what can be enforced of the schema."
_TOO_MANY = NotEnforceable("Together with its neighbours it has too many alternatives.")


@dataclass(frozen=True, slots=True)
class Spot:
    """The client's schema that is being rewritten, how deep it stands, which kinds of values can be there, whether
    references in it are opened, and the keyword of it that another schema stands for."""

    owner: Schema
    depth: int = 0
    kinds: Kinds = KINDS
    is_opened: bool = False
    lowered: str = ""

    def inside(self) -> "Spot":
        """The place of a subschema that concerns another value."""
        return Spot(self.owner, self.depth + 1, lowered=self.lowered)

    def beside(self, kinds: Kinds) -> "Spot":
        """The place of a subschema that concerns the same value."""
        return Spot(self.owner, self.depth + 1, kinds, self.is_opened, self.lowered)


class _Pending(NamedTuple):
    name: str
    schema: Schema
    spot: Spot


class Rewriter:
    """One rewriting of one document."""

    def __init__(self, document: Document, is_strict: bool, unwatched: set[str] | None = None) -> None:
        """`unwatched`: paths of uniqueItems that no watch can keep; None: there is no watch."""
        self.relaxed: dict[str, None] = {}
        self.is_marked = self.has_bounds = False  # something is left to a watch; numbers have bounds
        self._document = document
        self._unwatched = unwatched
        self._is_strict = is_strict
        self._names: dict[str, str] = {}
        self._pending: deque[_Pending] = deque()
        self._impossible: set[str] = set()
        self._at: tuple[Spot, str] = (Spot(document.root), "")  # where it stands, to be named if it never gets further

    @property
    def place(self) -> tuple[str, str]:
        """The path and the keyword it works on."""
        spot, keyword = self._at
        return self._document.path_of(spot.owner), spot.lowered or keyword

    def result(self) -> dict[str, Any]:
        """The whole document rewritten, with the definitions it needs."""
        for _ in range(MAX_PASSES):
            self.relaxed.clear()
            self._names.clear()
            root = self.rewrite(self._document.root, Spot(self._document.root))
            definitions: dict[str, Schema] = {}
            while self._pending:
                name, schema, spot = self._pending.popleft()
                definitions[name] = self.rewrite(schema, spot)
            empty = unproductive(definitions, self._document.budget) if definitions else set()
            impossible = {key for key, name in self._names.items() if name in empty}
            if root is False:
                is_narrowed = self._document.is_narrowed
                raise ImpossibleSchema("", "", _IMPOSSIBLE if not is_narrowed else _NOTHING_LEFT)
            if impossible <= self._impossible:
                schema = {**root, "$defs": definitions} if definitions else dict(root)
                if depth_of(schema, self._document.budget) > MAX_NESTING:
                    raise UnenforceableSchema("", "$ref", "The references of the schema lead too deep.")
                check_multiples(schema, self._document.budget)
                return schema
            self._impossible |= impossible
        raise UnenforceableSchema("", "$ref", "Too many definitions that nothing satisfies depend on each other.")

    def rewrite(self, schema: Schema, spot: Spot) -> Any:
        """A schema for the library: an object, or False where nothing satisfies it."""
        self._document.spend()
        if spot.depth > MAX_DEPTH:
            raise UnenforceableSchema(self._document.path_of(spot.owner)[:200], "", "The schema is nested too deeply.")
        if not isinstance(schema, dict):
            return {} if schema else False
        if self._document.has(schema):
            spot = Spot(schema, spot.depth, spot.kinds, spot.is_opened)
        self._at = spot, ""
        kinds = self._kinds(schema, spot)
        if not kinds:
            return False
        if self._must_be_named(schema, spot):
            key = json.dumps([sorted(kinds), schema])
            self._document.spend(len(key) // 64)
            return self._defined(key, schema, Spot(spot.owner, 0, kinds, True))
        if kinds == {"object"} and "allOf" in schema:
            schema = switched(schema, self._document)
        may_settle = not schema.keys().isdisjoint({"allOf", "const", "enum"})
        settled = settled_values(schema, self._document) if may_settle else None
        if settled is not None:
            return {"enum": settled} if settled else False
        return self._written(schema, spot, kinds)

    def _written(self, schema: Mapping[str, Any], spot: Spot, kinds: Kinds) -> Any:
        """A schema written anew, keyword by keyword in the client's order."""
        known = partial(kinds_of_properties, schema, self._document) if kinds == {"object"} else None
        result = Result(self._document.budget, known)
        first_plain = "properties" if "properties" in schema else next((key for key in schema if key in PLAIN), None)
        # What is left of a value is told last: the order of properties is for those who name them to say.
        for keyword in sorted(schema, key=lambda name: name.startswith("unevaluated")):
            if keyword == first_plain:
                result.add_plain(self._plain(schema, spot, kinds))
            elif keyword in {"enum", "const"}:
                result.add_values(self._values(keyword, schema, spot))
            elif keyword in UNSUPPORTED:
                self._refuse(spot, keyword, NotEnforceable("This keyword is not supported."))
            elif keyword in APPLIED:
                self._apply(keyword, schema, spot, kinds, result)
        try:
            return result.schema()
        except NotEnforceable as failure:
            self._refuse(spot, "minProperties", failure)
            return result.without_counts()

    def _apply(self, keyword: str, schema: Mapping[str, Any], spot: Spot, kinds: Kinds, result: Result) -> None:
        """Add what holds beside the plain keywords, as far as all combinations of alternatives stay few."""
        parts: list[Any]
        if keyword == "anyOf":
            is_told = "discriminator" in schema
            options = tagged(schema[keyword], schema, self._document) if is_told else schema[keyword]
            result.add_options(self._options(options, spot.beside(kinds)))
            return
        if keyword == "allOf":
            parts = [self.rewrite(self._document.opened(one), spot.beside(kinds)) for one in schema[keyword]]
        elif keyword == "$ref":
            parts = [self._reference(schema["$ref"], schema, spot, kinds)]
        else:
            parts = [self._lowered(keyword, schema, spot, kinds)]
        for part in parts:
            if not result.takes(part):
                self._refuse(spot, keyword, _TOO_MANY)

    def _options(self, options: list[Schema], spot: Spot) -> list[Any]:
        """Each rewritten, without those that cannot be said for a `not`, as long as others are left."""
        parts: list[Any] = []
        failures: list[UnenforceableSchema] = []
        for one in options:
            try:
                parts.append(self.rewrite(one, spot))
            except UnenforceableSchema as failure:
                if failure.keyword != "not":
                    raise
                failures.append(failure)
        if failures and all(part is False for part in parts):
            raise failures[0]
        self._document.is_narrowed |= bool(failures)
        return parts

    def _kinds(self, schema: Mapping[str, Any], spot: Spot) -> Kinds:
        """Kinds that the place and all parts of the schema allow."""
        if "allOf" not in schema:
            return spot.kinds & kinds_of(schema)
        parts = conjuncts(schema, self._document)
        return frozenset.intersection(spot.kinds, *map(kinds_of, parts)) if parts is not None else frozenset()

    def _must_be_named(self, schema: Mapping[str, Any], spot: Spot) -> bool:
        """Whether a recursive reference stands beside other conditions: the library opens it, which must end."""
        if spot.is_opened or not (schema.keys() & BRANCHING):
            return False
        if len(schema.keys() & ASSERTIONS) == 1 and len(schema.get("allOf", (0,))) == 1:
            return False
        beside = references_beside(schema, self._document.budget)
        return any(self._document.is_recursive(reference) for reference in beside)

    def _refuse(self, spot: Spot, keyword: str, failure: NotEnforceable) -> Schema:
        """Refuse a keyword when strict; otherwise note that it does not bind, and go on with what is weaker."""
        path = self._document.path_of(spot.owner)
        if spot.lowered and keyword not in spot.owner:
            keyword = spot.lowered
        if self._is_strict:
            raise UnenforceableSchema(path + pointer((keyword,)), keyword, failure.reason)
        self.relaxed[f"{path}:{keyword}"] = None
        return failure.weaker

    def _lowered(self, keyword: str, schema: Mapping[str, Any], spot: Spot, kinds: Kinds) -> Any:
        if not CONCERNED.get(keyword, KINDS) & kinds:
            return {}
        self._at = spot, keyword
        is_watched = keyword == "uniqueItems" and self._is_watched(spot)
        if is_watched and not is_every_arrangement_written(schema, self._document):
            self.is_marked = True
            return {DIFFERENT: self._document.path_of(spot.owner) + pointer((keyword,))}
        try:
            lowered = LOWERINGS[keyword](schema, self._document, kinds)
        except NotEnforceable as failure:
            lowered = self._refuse(spot, keyword, failure)
        return self.rewrite(lowered, replace(spot.beside(kinds), lowered=spot.lowered or keyword))

    def _is_watched(self, spot: Spot) -> bool:
        """Whether a watch keeps the items of an array apart."""
        unwatched = self._unwatched
        return unwatched is not None and f"{self._document.path_of(spot.owner)}/uniqueItems" not in unwatched

    def _values(self, keyword: str, schema: Mapping[str, Any], spot: Spot) -> list[Any] | None:
        """The values of enum or const that can be compared and are not refused by what stands beside them."""
        values = schema["enum"] if keyword == "enum" else [schema["const"]]
        allowed = [value for value in values if admits(value, schema, self._document) is not False]
        exact = [value for value in allowed if is_expressible(value)]
        if allowed and not exact:
            self._refuse(spot, keyword, NotEnforceable("The values cannot be written or compared exactly."))
            return None
        return exact

    def _reference(self, reference: str, schema: Mapping[str, Any], spot: Spot, kinds: Kinds) -> Any:
        """A reference alone stays one. What stands beside it binds as well, also in drafts that ignore it."""
        target, address = self._document.final_target(reference, spot.owner)
        is_alone = not any(key in ASSERTIONS for key in schema if key != "$ref")
        if spot.is_opened or not is_alone:
            opened = spot.is_opened and self._document.is_recursive(reference)
            return self.rewrite(target, Spot(target, spot.depth + 1, kinds, opened))
        return self._defined("#" + pointer(address), target, Spot(target))

    def _defined(self, key: str, schema: Schema, spot: Spot) -> Any:
        if key in self._impossible:
            return False
        name = self._names.get(key)
        if name is None:
            name = self._names[key] = f"d{len(self._names)}"
            self._pending.append(_Pending(name, schema, spot))
        return {"$ref": DEFINITIONS + name}

    def _plain(self, schema: Mapping[str, Any], spot: Spot, kinds: Kinds) -> Any:
        """Keywords about one kind each; a kind of which nothing is left is no longer allowed."""
        result: dict[str, Any] = {}
        left = set(kinds)

        def report(keyword: str, failure: NotEnforceable) -> None:
            self._refuse(spot, keyword, failure)

        parts: list[tuple[str, frozenset[str], Any]] = [
            ("number", OF_NUMBERS, lambda: numbers(schema, report)),
            ("string", OF_STRINGS, lambda: strings(schema, report, self._document.budget)),
            ("array", OF_ARRAYS, lambda: self._arrays(schema, spot)),
            ("object", OF_OBJECTS, lambda: self._objects(schema, spot)),
        ]
        for kind, keywords, part in parts:
            if kind in kinds and not keywords.isdisjoint(schema):
                written = part()
                self.has_bounds |= kind == "number"
                if written is None:
                    left.discard(kind)
                else:
                    result |= written
        if not left:
            return False
        if "anyOf" in result:
            others = [{"type": type_names(schema, left - {"object"})}] if left != {"object"} else []
            result["anyOf"] = [{"type": "object", **option} for option in result["anyOf"]] + others
        if ("type" in schema or left != kinds) and not (result.keys() == {"anyOf"} and left == {"object"}):
            result = {"type": type_names(schema, left), **result}
        return result

    def _arrays(self, schema: Mapping[str, Any], spot: Spot) -> dict[str, Any] | None:
        least = int(schema.get("minItems", 0))
        most = int(schema["maxItems"]) if "maxItems" in schema else None
        items = schema.get("items", True)
        if isinstance(items, list):
            prefix, rest = items, schema.get("additionalItems", True)
        else:
            is_tuple = self._document.draft >= 2020
            prefix, rest = schema.get("prefixItems", []) if is_tuple else [], items
        written = [self.rewrite(one, spot.inside()) for one in prefix]
        told = told_apart(schema, rest, self._document) if self._is_watched(spot) else None
        rest = self.rewrite(told or rest, replace(spot.inside(), owner=rest if told else spot.owner))
        ends = [index for index, one in enumerate(written) if one is False]
        if ends or rest is False:
            end = ends[0] if ends else len(written)
            most = end if most is None else min(most, end)
            written = written[:end]
        if most is not None and least > most:
            return None
        result: dict[str, Any] = {"prefixItems": written} if written else {}
        if rest != {} and (most is None or most > len(written)):
            result["items"] = rest
        bounds = {"minItems": least or None, "maxItems": most}
        return result | {key: bound for key, bound in bounds.items() if bound is not None}

    def _objects(self, schema: Mapping[str, Any], spot: Spot) -> dict[str, Any] | None:
        schema = without_universal_patterns(schema, self._document) if "patternProperties" in schema else schema
        required = schema.get("required", [])
        self._document.spend(len(required) // 8 if isinstance(required, list) else 0)
        required = list(dict.fromkeys(required)) if isinstance(required, list) else []
        result: dict[str, Any] = {}
        if schema.get("properties"):
            result["properties"] = {
                name: self.rewrite(one, spot.inside()) for name, one in schema["properties"].items()
            }
        if schema.get("patternProperties"):
            result["patternProperties"] = self._patterns(schema["patternProperties"], spot)
        if "additionalProperties" in schema:
            additional = self.rewrite(schema["additionalProperties"], spot.inside())
            if additional != {}:
                result["additionalProperties"] = additional
        if required:
            result["required"] = required
        if any(property_of(result, name) is False for name in required):
            return None
        result |= {key: int(schema[key]) for key in ("minProperties", "maxProperties") if key in schema}
        return self._counted(result, schema, spot)

    def _patterns(self, patterns: Mapping[str, Schema], spot: Spot) -> dict[str, Any]:
        try:
            supported = supported_patterns(patterns, self._document)
        except NotEnforceable as failure:
            self._refuse(spot, "patternProperties", failure)
            return {}
        return {pattern: self.rewrite(one, spot.inside()) for pattern, one in supported.items()}

    def _counted(self, result: dict[str, Any], schema: Mapping[str, Any], spot: Spot) -> dict[str, Any] | None:
        if "minProperties" not in result and "maxProperties" not in result:
            return result
        # Whether a watch keeps the names apart, and there is always another.
        is_watched = self._unwatched is not None and "minProperties" not in self._unwatched
        is_remembered = is_watched and are_endless(result, self._document.budget)
        try:
            bounded = counted(result, self._document.budget, is_remembered=is_remembered)
        except NotEnforceable as failure:
            keyword = "minProperties" if "minProperties" in schema else "maxProperties"
            bounded = self._refuse(spot, keyword, failure)
        self.is_marked |= bounded is not False and is_counted(bounded)
        return None if bounded is False else bounded
