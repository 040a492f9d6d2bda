"""What the keywords of JSON Schema are: where subschemas stand, what is well-formed, which kinds they concern."""

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any

# A schema as the client wrote it: an object or a boolean. What is malformed is found when it is visited.
Schema = Any
Kinds = frozenset[str]

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
