"""A schema document: its limits, its draft, and what a reference in it points to. Rewrites nothing but references."""

from collections.abc import Hashable, Mapping
from functools import cached_property
from typing import Any
from urllib.parse import unquote

from proxy_inference_engine.state_machine.json_schema.budget import StepBudget
from proxy_inference_engine.state_machine.json_schema.errors import UnenforceableSchema
from proxy_inference_engine.state_machine.json_schema.identifiers import Identifiers
from proxy_inference_engine.state_machine.json_schema.keywords import (
    ASSERTIONS,
    MAX_DEPTH,
    Address,
    Schema,
    SchemaPlace,
    at,
    children,
    draft_of,
    is_named,
    mapped,
    own_id,
    places,
    pointer,
)
from proxy_inference_engine.state_machine.json_schema.languages import language_of
from proxy_inference_engine.state_machine.json_schema.metaschemas import with_metaschemas
from proxy_inference_engine.state_machine.json_schema.patterns import Membership
from proxy_inference_engine.state_machine.json_schema.scopes import DYNAMIC, in_scope

WHOLE = "whole"  # the definition that a document becomes in another
_READING = 64  # parts of terms: what it costs to make a language of a pattern


def references_beside(schema: Mapping[str, Any], budget: StepBudget) -> set[str]:
    """References in a schema that concern the same value as the schema itself."""
    found: set[str] = set()
    stack: list[Any] = [schema]
    while stack:
        budget.spend()
        one = stack.pop()
        if not isinstance(one, dict):
            continue
        found |= {one["$ref"]} if "$ref" in one else set()
        stack += [below for keyword in ("allOf", "anyOf", "oneOf") for below in one.get(keyword, ())]
        stack += [one[keyword] for keyword in ("if", "then", "else") if keyword in one]
        for keyword in ("dependencies", "dependentSchemas"):
            stack += one.get(keyword, {}).values()
    return found


class Document:
    """A client's schema, whose references all read "#" or "#/pointer" once it is built."""

    def __init__(self, root: Schema, budget: StepBudget) -> None:
        self.draft = draft_of(root)
        self.root = root
        self.budget = budget
        # By identity, with the list itself so that the identity stays its own.
        self.enumerations: dict[int, tuple[list[Any], frozenset[Hashable]]] = {}
        # The same of lists and objects among the values: their keys, and how many values they are.
        self.keys: dict[int, tuple[Any, Hashable, int]] = {}
        # Whether something was left out that a value might have had, for want of a way to say it.
        self.is_narrowed = False
        self._addresses: dict[int, Address] = {}
        self._memberships: dict[str, Membership] = {}
        self._targets: dict[str, SchemaPlace] = {}
        self._is_recursive: dict[str, bool] = {}
        found = list(places(root, budget))
        given = root
        if any(_leads_out(place) for place in found):
            root = with_metaschemas(root, found, self.draft)
        if found and "$schema" not in root and ("components" in root or any("nullable" in one.schema for one in found)):
            root = _with_nulls(root, budget)
        if root is not given:
            self.root, found = root, list(places(root, budget))
        originals: dict[int, Address] = {}
        if any(DYNAMIC.get(self.draft) in place.schema for place in found):
            self.root, originals = in_scope(root, Identifiers(found, self.draft, budget), budget)
            found = list(places(self.root, budget))
        elif any(_has_name(place, self.draft) for place in found):
            self.root = Identifiers(found, self.draft, budget).localised(root)
            found = list(places(self.root, budget))
        self._addresses = {id(place.schema): originals.get(id(place.schema), place.address) for place in found}
        for place in found:
            if "$ref" in place.schema:
                self._check_reference(place)

    def _check_reference(self, place: SchemaPlace) -> None:
        try:
            self.target(place.schema["$ref"])
        except LookupError as error:
            raise UnenforceableSchema(pointer((*place.address, "$ref")), "$ref", str(error.args[0])) from None

    def has(self, schema: Schema) -> bool:
        """Whether a schema is one the client wrote, not one that stands for something."""
        return id(schema) in self._addresses

    def path_of(self, schema: Schema) -> str:
        """Where a schema of the client stands, as a JSON pointer."""
        return pointer(self._addresses.get(id(schema), ()))

    @cached_property
    def listed_names(self) -> frozenset[str]:
        """Properties that a schema of the document names or needs."""
        found = [place.schema for place in places(self.root, self.budget)]
        named = {name for one in found for name in one.get("properties", ())}
        return frozenset(named.union(*(one["required"] for one in found if isinstance(one.get("required"), list))))

    def spend(self, steps: int = 1) -> None:
        """Count work, before it is done; raises OutOfSteps when a schema asks for more than is reasonable."""
        self.budget.spend(steps)

    def matches(self, pattern: str, text: str) -> bool:
        """Whether a pattern is found in a text; raises RegexError where that cannot be told."""
        membership = self._memberships.get(pattern)
        if membership is None:
            self.budget.think(_READING)
            membership = self._memberships[pattern] = Membership(language_of(pattern))
        return membership.contains(text, self.budget.think)

    def target(self, reference: str) -> SchemaPlace:
        """What a reference points to; raises LookupError when that is nothing, for a reference not yet checked."""
        if reference not in self._targets:
            self._targets[reference] = self._found(reference)
        return self._targets[reference]

    def resolved(self, schema: Schema) -> Schema:
        """The schema itself, or what it refers to when a reference is all it says."""
        seen = 0
        while isinstance(schema, dict) and "$ref" in schema and seen < MAX_DEPTH:
            self.spend()
            seen += 1
            schema = self.target(schema["$ref"]).schema
        return schema

    def final_target(self, reference: str, owner: Schema) -> SchemaPlace:
        """What a reference of a schema leads to, over others that stand alone."""
        place = self.target(reference)
        seen = {reference}
        while isinstance(place.schema, dict) and place.schema.keys() & ASSERTIONS == {"$ref"}:
            reference = place.schema["$ref"]
            if reference in seen:
                raise UnenforceableSchema(self.path_of(owner), "$ref", "The reference leads back to itself.")
            seen.add(reference)
            place = self.target(reference)
        return place

    def opened(self, part: Schema) -> Schema:
        """A part itself, or what it refers to where that has patterns, which other parts may have to know."""
        if not isinstance(part, dict) or part.keys() & ASSERTIONS != {"$ref"}:
            return part
        target = self.final_target(part["$ref"], part).schema
        has_patterns = isinstance(target, dict) and "patternProperties" in target
        return target if has_patterns and not self.is_recursive(part["$ref"]) else part

    def is_recursive(self, reference: str) -> bool:
        """Whether following the reference can lead back to it."""
        if reference not in self._is_recursive:
            self._is_recursive[reference] = reference in self._reached(reference)
        return self._is_recursive[reference]

    def _reached(self, reference: str) -> set[str]:
        reached: set[str] = set()
        stack = [self.target(reference).schema]
        while stack:
            schema = stack.pop()
            if not isinstance(schema, dict):
                continue
            self.spend()
            stack += [one for _, one in children(schema)]
            below = schema.get("$ref")
            if isinstance(below, str) and below not in reached:
                reached.add(below)
                stack.append(self.target(below).schema)
        return reached

    def _found(self, reference: str) -> SchemaPlace:
        if reference not in {"#", "#/"} and not reference.startswith("#/"):
            raise LookupError(f"The reference {reference!r} leads out of the schema.")
        parts = reference[2:].split("/") if len(reference) > 2 else ()
        address = tuple(unquote(part).replace("~1", "/").replace("~0", "~") for part in parts)
        schema = at(self.root, address)
        if schema is None:
            raise LookupError(f"The reference {reference!r} points to nothing.")
        if not isinstance(schema, dict | bool):
            raise LookupError(f"The reference {reference!r} points to something else than a schema.")
        place = SchemaPlace(schema, address)
        if isinstance(schema, dict) and not self.has(schema):
            self._adopt(place)
        return place

    def _adopt(self, place: SchemaPlace) -> None:
        """Take in schemas at a place where the specification puts none, but a reference leads."""
        found = list(places(place.schema, self.budget, place.address))
        self._addresses |= {id(one.schema): one.address for one in found}
        for one in found:
            if "$ref" in one.schema:
                self._check_reference(one)


def _leads_out(place: SchemaPlace) -> bool:
    """Whether a reference of a schema may name another document."""
    return any(is_named(place.schema.get(keyword)) for keyword in ("$ref", *DYNAMIC.values()))


def _has_name(place: SchemaPlace, draft: int) -> bool:
    """Whether a schema inside a document has an identifier, or refers to one."""
    return is_named(place.schema.get("$ref")) or (bool(place.address) and isinstance(own_id(place.schema, draft), str))


def rooted(value: Any) -> Any:
    """A document's value whose references still lead there once the document is the definition `WHOLE` of another."""
    if isinstance(value, Mapping):
        return {key: _moved(each) if key == "$ref" else rooted(each) for key, each in value.items()}
    return [rooted(each) for each in value] if isinstance(value, list | tuple) else value


def _moved(reference: Any) -> Any:
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        return reference
    return f"#/$defs/{WHOLE}{reference[1:]}"


def _with_nulls(schema: Schema, budget: StepBudget) -> Schema:
    """What OpenAPI 3.0 calls nullable has null as one more type; every subschema stays at the place where it was."""
    if not isinstance(schema, dict):
        return schema
    budget.spend()
    result = mapped(schema, lambda _, one: _with_nulls(one, budget))
    components = result.get("components")
    if isinstance(components, dict) and isinstance(components.get("schemas"), dict):
        named = {name: _with_nulls(one, budget) for name, one in components["schemas"].items()}
        result["components"] = {**components, "schemas": named}
    if _is_nullable(result):
        result["type"] = [result["type"], "null"]
    return result


def _is_nullable(schema: Mapping[str, Any]) -> bool:
    """Whether OpenAPI 3.0.3's keyword allows null: it says nothing without a type, and an enum has to list null too."""
    return schema.get("nullable") is True and isinstance(schema.get("type"), str) and schema["type"] != "null"
