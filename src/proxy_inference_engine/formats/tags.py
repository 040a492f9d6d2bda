"""Which values the style of tags writes raw and which as JSON: one rule for the prompt, the mask and the parser."""

from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any] | bool | None


def is_raw(schema: Schema) -> bool:
    """True when the top level of the schema (`type`, `enum`, `const`; nothing is followed) allows only strings."""
    if not isinstance(schema, Mapping):
        return False
    kind, values = schema.get("type"), schema.get("enum")
    if kind == "string" or (isinstance(kind, list | tuple) and list(kind) == ["string"]):
        return True
    if isinstance(values, list | tuple) and values and all(isinstance(value, str) for value in values):
        return True
    return isinstance(schema.get("const"), str)


def parameter_schema(parameters: Schema, key: str) -> Schema:
    """The schema of one argument: its own in `properties`, else the one of `additionalProperties`."""
    if not isinstance(parameters, Mapping):
        return None
    properties = parameters.get("properties")
    if isinstance(properties, Mapping) and key in properties:
        own: Schema = properties[key]
        return own
    rest: Schema = parameters.get("additionalProperties")
    return rest
