"""A schema document: its limits, its draft, and what a reference in it points to. Rewrites nothing but references."""

from collections.abc import Hashable, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote, urldefrag, urljoin

from proxy_inference_engine.state_machine.json_schema.budget import StepBudget
from proxy_inference_engine.state_machine.json_schema.errors import UnenforceableSchema
from proxy_inference_engine.state_machine.json_schema.keywords import (
    ASSERTIONS,
    BRANCHING,
    LISTS,
    MAPS,
    SHAPES,
    SINGLE,
    Schema,
    draft_of,
    kinds_of,
)
from proxy_inference_engine.state_machine.json_schema.languages import language_of
from proxy_inference_engine.state_machine.json_schema.patterns import Membership
from proxy_inference_engine.state_machine.json_schema.regexes import MalformedRegex, RegexError, read

MAX_DEPTH = 48
_READING = 64  # parts of terms: what it costs to make a language of a pattern

Address = tuple[str, ...]


class SchemaPlace(NamedTuple):
    """A schema of a document, and where in it the schema stands."""

    schema: Schema
    address: Address


def pointer(address: Address) -> str:
    """An address as a JSON pointer."""
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in address)


def children(schema: Mapping[str, Any]) -> Iterator[tuple[Address, Schema]]:
    """Every subschema that stands at a place where the specification puts one."""
    for keyword, value in schema.items():
        if isinstance(value, list) and (keyword in LISTS or keyword == "items"):
            yield from (((keyword, str(index)), one) for index, one in enumerate(value))
        elif isinstance(value, dict) and (keyword in MAPS or keyword == "dependencies"):
            yield from (((keyword, name), one) for name, one in value.items())
        elif keyword in SINGLE or keyword == "items":
            yield (keyword,), value


def leaves_open(value: Any) -> bool:
    """Whether an object of a schema lists its properties, and may not say whether others may come."""
    stack = [value]
    while stack:
        one = stack.pop()
        if isinstance(one, Mapping):
            if "properties" in one and "additionalProperties" not in one:
                return True
            stack += one.values()
        elif isinstance(one, list | tuple):
            stack += one
    return False


def admits_other_keys(schema: Schema) -> bool:
    """Whether an object of a rewritten schema may have keys that the schema does not name."""
    stack = [schema]
    while stack:
        one = stack.pop()
        if one is True or one == {}:
            return True
        if not isinstance(one, dict) or "enum" in one or "const" in one:
            continue
        stack += [below for _, below in children(one)]
        kinds = kinds_of(one) if "type" in one or not one.keys() & BRANCHING else frozenset()
        is_open = "object" in kinds and one.get("additionalProperties") is not False
        if is_open or one.get("patternProperties") or ("array" in kinds and "items" not in one):
            return True
    return False


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


def check_shape(schema: Mapping[str, Any], address: Address, budget: StepBudget) -> None:
    """Refuse keywords whose values are malformed, and options that are not the client's to set."""
    for keyword, value in schema.items():
        rule = SHAPES.get(keyword)
        if rule is not None and not rule[0](value):
            raise UnenforceableSchema(pointer((*address, keyword)), keyword, f"It must be {rule[1]}.")
    if "x-guidance" in schema:
        raise UnenforceableSchema(pointer((*address, "x-guidance")), "x-guidance", "This keyword is reserved.")
    for pattern in (*schema.get("patternProperties", ()), *((schema["pattern"],) if "pattern" in schema else ())):
        _check_pattern(pattern, address, budget)


def _check_pattern(pattern: str, address: Address, budget: StepBudget) -> None:
    budget.think(len(pattern))
    try:
        read(pattern)
    except MalformedRegex as error:
        raise UnenforceableSchema(pointer(address), "pattern", f"{pattern!r} is no pattern: {error}.") from None
    except RegexError:
        return


def places(schema: Schema, budget: StepBudget, start: Address = ()) -> Iterator[SchemaPlace]:
    """Every schema of a document, each well-formed by itself; refuses what is nested too deeply."""
    stack = [SchemaPlace(schema, start)]
    while stack:
        place = stack.pop()
        if not isinstance(place.schema, dict):
            continue
        budget.spend()
        if len(place.address) > 2 * MAX_DEPTH:
            raise UnenforceableSchema(pointer(place.address[:8]), "", "The schema is nested too deeply.")
        check_shape(place.schema, place.address, budget)
        yield place
        stack += [SchemaPlace(one, (*place.address, *below)) for below, one in children(place.schema)]


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
        identified = [place for place in found if place.address and isinstance(_own_id(place.schema, self.draft), str)]
        if identified or any(_is_named(place.schema.get("$ref")) for place in found):
            self.root = _with_local_references(root, found, self.draft)
            found = list(places(self.root, budget))
        self._addresses = {id(place.schema): place.address for place in found}
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
        schema: Any = self.root
        address: list[str] = []
        for part in reference[2:].split("/") if len(reference) > 2 else ():
            name = unquote(part).replace("~1", "/").replace("~0", "~")
            address.append(name)
            if isinstance(schema, dict) and name in schema:
                schema = schema[name]
            elif isinstance(schema, list) and name.isdecimal() and int(name) < len(schema):
                schema = schema[int(name)]
            else:
                raise LookupError(f"The reference {reference!r} points to nothing.")
        if not isinstance(schema, dict | bool):
            raise LookupError(f"The reference {reference!r} points to something else than a schema.")
        place = SchemaPlace(schema, tuple(address))
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


def _is_named(reference: Any) -> bool:
    return isinstance(reference, str) and reference != "#" and not reference.startswith("#/")


def _own_id(schema: Mapping[str, Any], draft: int) -> Any:
    return schema.get("id" if draft == 4 else "$id")


def _with_local_references(root: Schema, found: list[SchemaPlace], draft: int) -> Schema:
    """The document with every reference that is relative to an identifier, or names an anchor, written as a pointer."""
    bases = _bases(found, draft)
    names: dict[str, str] = {}
    for schema, address in found:
        local = "#" + pointer(address) if address else "#"
        if isinstance(own := _own_id(schema, draft), str):
            names.setdefault(urljoin(bases[address[:-1]] if address else "", own), local)
        if isinstance(anchor := schema.get("$anchor"), str):
            names.setdefault(bases[address] + "#" + anchor, local)
        if not address or bases[address] not in names:
            names.setdefault(bases[address], local)
    addresses = {id(schema): address for schema, address in found}
    return _localised(root, addresses, bases, names)


def _bases(found: list[SchemaPlace], draft: int) -> dict[Address, str]:
    """The base address of every schema: its own identifier, or that of the nearest schema around it."""
    bases: dict[Address, str] = {}
    for schema, address in sorted(found, key=lambda place: len(place.address)):
        above = next((bases[address[:end]] for end in range(len(address) - 1, -1, -1) if address[:end] in bases), "")
        own = _own_id(schema, draft)
        is_base = isinstance(own, str) and not own.startswith("#")
        bases[address] = urldefrag(urljoin(above, own)).url if is_base else above
        for end in range(1, len(address)):
            bases.setdefault(address[:end], above)
    return bases


def _localised(value: Any, addresses: dict[int, Address], bases: dict[Address, str], names: dict[str, str]) -> Any:
    if isinstance(value, list):
        return [_localised(one, addresses, bases, names) for one in value]
    if not isinstance(value, dict):
        return value
    copy = {key: _localised(one, addresses, bases, names) for key, one in value.items()}
    address = addresses.get(id(value))
    reference = value.get("$ref")
    if address is not None and isinstance(reference, str):
        copy["$ref"] = _local(reference, bases[address], names)
    return copy


def _local(reference: str, base: str, names: dict[str, str]) -> str:
    absolute = urljoin(base, reference) if reference != "#" else base
    url, fragment = urldefrag(absolute)
    for name in (absolute, absolute.removesuffix("#"), reference):
        if name in names and not fragment.startswith("/"):
            return names[name]
    if fragment.startswith("/") and url in names:
        return "#" + names[url].removeprefix("#") + fragment
    return reference
