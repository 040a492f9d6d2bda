"""The keywords of JSON Schema: which kinds of values they concern, where subschemas stand, what is well-formed.

Knows nothing of what a reference leads to.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from math import isfinite
from typing import Any, NamedTuple

from proxy_inference_engine.state_machine.json_schema.budget import CHARS_PER_STEP, StepBudget
from proxy_inference_engine.state_machine.json_schema.errors import UnenforceableSchema
from proxy_inference_engine.state_machine.json_schema.regexes import MalformedRegex, RegexError, read

# A schema as the client wrote it: an object or a boolean. What is malformed is found when it is visited.
Schema = Any
Kinds = frozenset[str]
Address = tuple[str, ...]  # of a schema in its document

MAX_DEPTH = 48  # of schemas in a document
MAX_LENGTH = 2**32 - 1  # of a string, as far as the library counts; no answer is as long
_INDEX = re.compile("0|[1-9][0-9]{0,8}")  # of an item; Python refuses to read a number of thousands of digits

KINDS: Kinds = frozenset({"null", "boolean", "number", "string", "array", "object"})
TYPES = KINDS | {"integer"}

SINGLE = frozenset(
    [
        "additionalItems",
        "additionalProperties",
        "contains",
        "contentSchema",
        "else",
        "if",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    ]
)
LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
MAPS = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"})

OF_NUMBERS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
OF_STRINGS = frozenset({"minLength", "maxLength", "pattern", "format"})
OF_ARRAYS = frozenset({"items", "prefixItems", "additionalItems", "minItems", "maxItems"})
OF_OBJECTS = frozenset(
    {"properties", "patternProperties", "additionalProperties", "required", "minProperties", "maxProperties"}
)
PLAIN = OF_NUMBERS | OF_STRINGS | OF_ARRAYS | OF_OBJECTS | {"type"}
# Kinds that a keyword says something of, where it is not all of them.
CONCERNED: dict[str, Kinds] = {
    **dict.fromkeys(OF_NUMBERS, frozenset({"number"})),
    **dict.fromkeys(OF_STRINGS, frozenset({"string"})),
    **dict.fromkeys(OF_ARRAYS | {"contains", "uniqueItems", "unevaluatedItems"}, frozenset({"array"})),
    **dict.fromkeys(OF_OBJECTS | {"propertyNames", "unevaluatedProperties"}, frozenset({"object"})),
    **dict.fromkeys(("dependencies", "dependentRequired", "dependentSchemas"), frozenset({"object"})),
}
LOWERED = frozenset(
    [
        "oneOf",
        "not",
        "if",
        "dependencies",
        "dependentRequired",
        "dependentSchemas",
        "propertyNames",
        "contains",
        "uniqueItems",
        "unevaluatedItems",
        "unevaluatedProperties",
    ]
)
IN_PLACE = frozenset({"allOf", "anyOf", "$ref", "const", "enum"})
# Keywords that hold beside the plain ones.
APPLIED = LOWERED | {"allOf", "anyOf", "$ref"}
# Where references to the same value may stand.
BRANCHING = frozenset({"$ref", "allOf", "anyOf", "oneOf", "if", "dependencies", "dependentSchemas"})
UNSUPPORTED = frozenset({"$dynamicRef", "$recursiveRef"})
ASSERTIONS = PLAIN | LOWERED | IN_PLACE | UNSUPPORTED

# Drafts that know a keyword only from some point on; a proof must not rest on a keyword that its draft ignores.
_SINCE = {
    **dict.fromkeys(("const", "contains", "propertyNames"), 6),
    **dict.fromkeys(("if", "then", "else"), 7),
    **dict.fromkeys(
        [
            "dependentRequired",
            "dependentSchemas",
            "minContains",
            "maxContains",
            "unevaluatedItems",
            "unevaluatedProperties",
        ],
        2019,
    ),
    "prefixItems": 2020,
}
_UNTIL = {"dependencies": 2018, "additionalItems": 2019}
LATEST = 2020


def is_known_to(draft: int, keyword: str) -> bool:
    """Whether a draft gives the keyword a meaning."""
    return _SINCE.get(keyword, 0) <= draft <= _UNTIL.get(keyword, LATEST)


def draft_of(schema: Schema) -> int:
    """The draft a document declares, by its number or its year; the latest where it says nothing we know."""
    declared = schema.get("$schema") if isinstance(schema, dict) else None
    if not isinstance(declared, str):
        return LATEST
    for marker, draft in (("draft-03", 4), ("draft-04", 4), ("draft-06", 6), ("draft-07", 7), ("2019-09", 2019)):
        if marker in declared:
            return draft
    return LATEST


def is_named(reference: Any) -> bool:
    """Whether a reference is by name: no pointer into its own document."""
    return isinstance(reference, str) and reference != "#" and not reference.startswith("#/")


def own_id(schema: Mapping[str, Any], draft: int) -> Any:
    """What a schema calls itself; beside a reference, drafts before 2019-09 know no other keyword."""
    if draft < 2019 and "$ref" in schema:
        return None
    return schema.get("id" if draft == 4 else "$id")


def lengths(schema: Mapping[str, Any]) -> tuple[int, int | None]:
    """How long a string has to be, and may be; None: as long as it likes."""
    least, most = schema.get("minLength", 0), schema.get("maxLength")
    return int(min(least, MAX_LENGTH)), None if most is None else int(min(most, MAX_LENGTH))


def is_number(value: Any) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, int) or (isinstance(value, float) and isfinite(value))


def is_whole(value: int | float) -> bool:
    """Whether a number has no fraction; an integer may be larger than any float."""
    return isinstance(value, int) or value.is_integer()


def kind_of(value: Any) -> str:
    """The kind of a JSON value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def kinds_of(schema: Schema) -> Kinds:
    """Kinds a schema allows, judged by its own type, const and enum alone."""
    if not isinstance(schema, dict):
        return KINDS if schema else frozenset()
    kinds = KINDS
    if "type" in schema:
        names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        kinds = frozenset("number" if name == "integer" else name for name in names)
    if "const" in schema:
        kinds &= {kind_of(schema["const"])}
    if "enum" in schema:
        kinds &= {kind_of(value) for value in schema["enum"]}
    return kinds


def values_of(schema: Mapping[str, Any], draft: int) -> list[Any] | None:
    """The finitely many values a schema may have, judged by const and enum; None where neither names any."""
    if "const" in schema and is_known_to(draft, "const"):
        return [schema["const"]]
    values: list[Any] | None = schema.get("enum")
    return values


def is_integral(schema: Mapping[str, Any]) -> bool:
    """Whether only integers are allowed among numbers."""
    names = schema.get("type", ())
    names = names if isinstance(names, list) else [names]
    return "integer" in names and "number" not in names


def _is_schema(value: Any) -> bool:
    return isinstance(value, dict | bool)


def _is_size(value: Any) -> bool:
    return is_number(value) and value >= 0 and is_whole(value)


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _is_type(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(isinstance(name, str) and name in TYPES for name in value)
    return isinstance(value, str) and value in TYPES


def _is_map(value: Any) -> bool:
    return isinstance(value, dict) and all(_is_schema(one) for one in value.values())


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and all(_is_schema(one) for one in value)


def _is_bound(value: Any) -> bool:
    return isinstance(value, bool) or is_number(value)


def _is_items(value: Any) -> bool:
    return _is_schema(value) or _is_list(value)


def _is_dependencies(value: Any) -> bool:
    return isinstance(value, dict) and all(_is_schema(one) or _is_names(one) for one in value.values())


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


Rule = tuple[Callable[[Any], bool], str]

SHAPES: dict[str, Rule] = {
    **dict.fromkeys(SINGLE - {"contentSchema"}, (_is_schema, "a schema")),
    **dict.fromkeys(("allOf", "anyOf", "oneOf"), (lambda value: bool(value) and _is_list(value), "a list of schemas")),
    "prefixItems": (_is_list, "a list of schemas"),
    **dict.fromkeys(("dependentSchemas", "patternProperties", "properties"), (_is_map, "an object of schemas")),
    **dict.fromkeys(
        [
            "minLength",
            "maxLength",
            "minItems",
            "maxItems",
            "minProperties",
            "maxProperties",
            "minContains",
            "maxContains",
        ],
        (_is_size, "a number of things, zero or more"),
    ),
    **dict.fromkeys(("minimum", "maximum"), (is_number, "a number")),
    **dict.fromkeys(("exclusiveMinimum", "exclusiveMaximum"), (_is_bound, "a number")),
    "multipleOf": (lambda value: is_number(value) and value > 0, "a number above zero"),
    **dict.fromkeys(("pattern", "format", "$ref"), (_is_text, "a string")),
    "items": (_is_items, "a schema or a list of schemas"),
    "enum": (lambda value: isinstance(value, list), "a list"),
    "required": (lambda value: _is_names(value) or isinstance(value, bool), "a list of names"),
    "type": (_is_type, "the name of a type or a list of such names"),
    "uniqueItems": (lambda value: isinstance(value, bool), "a boolean"),
    "dependencies": (_is_dependencies, "an object of schemas or lists of names"),
    "dependentRequired": (
        lambda value: isinstance(value, dict) and all(map(_is_names, value.values())),
        "an object of lists of names",
    ),
}


class SchemaPlace(NamedTuple):
    """A schema of a document, and where in it the schema stands."""

    schema: Schema
    address: Address


def pointer(address: Address) -> str:
    """An address as a JSON pointer."""
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in address)


def at(root: Schema, address: Address) -> Any:
    """What stands at an address of a document; None where nothing does."""
    found = root
    for part in address:
        if isinstance(found, list):
            found = found[int(part)] if _INDEX.fullmatch(part) and int(part) < len(found) else None
        else:
            found = found.get(part) if isinstance(found, Mapping) else None
    return found


def children(schema: Mapping[str, Any]) -> Iterator[tuple[Address, Schema]]:
    """Every subschema that stands at a place where the specification puts one."""
    for keyword, value in schema.items():
        if isinstance(value, list) and (keyword in LISTS or keyword == "items"):
            yield from (((keyword, str(index)), one) for index, one in enumerate(value))
        elif isinstance(value, dict) and (keyword in MAPS or keyword == "dependencies"):
            yield from (((keyword, name), one) for name, one in value.items())
        elif keyword in SINGLE or keyword == "items":
            yield (keyword,), value


def mapped(schema: Mapping[str, Any], change: Callable[[Address, Schema], Schema]) -> dict[str, Any]:
    """A copy of a schema with every subschema changed."""
    result: dict[str, Any] = {}
    for keyword, value in schema.items():
        if isinstance(value, list) and (keyword in LISTS or keyword == "items"):
            result[keyword] = [change((keyword, str(index)), one) for index, one in enumerate(value)]
        elif isinstance(value, dict) and (keyword in MAPS or keyword == "dependencies"):
            result[keyword] = {name: change((keyword, name), one) for name, one in value.items()}
        else:
            result[keyword] = change((keyword,), value) if keyword in SINGLE or keyword == "items" else value
    return result


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
        budget.spend(1 + sum(map(len, place.address)) // CHARS_PER_STEP)
        if len(place.address) > 2 * MAX_DEPTH:
            raise UnenforceableSchema(pointer(place.address[:8]), "", "The schema is nested too deeply.")
        check_shape(place.schema, place.address, budget)
        yield place
        stack += [SchemaPlace(one, (*place.address, *below)) for below, one in children(place.schema)]
