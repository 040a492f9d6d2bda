"""Which definitions of a rewritten schema some finite value satisfies. One that needs itself forever has none."""

from collections.abc import Mapping
from typing import Any

from proxy_inference_engine.state_machine.json_schema.result import DEFINITIONS, property_of


def unproductive(definitions: Mapping[str, Any]) -> set[str]:
    """The names of definitions that nothing satisfies."""
    unknown = dict(definitions)
    while True:
        # Definitions stand before those they need, so that backwards most are settled in one go.
        found = [name for name in reversed(list(unknown)) if _settle(name, unknown)]
        if not found:
            return set(unknown)


def _settle(name: str, unknown: dict[str, Any]) -> bool:
    if not _has_value(unknown[name], unknown):
        return False
    del unknown[name]
    return True


def _has_value(schema: Any, unknown: Mapping[str, Any]) -> bool:
    """Whether there is a value, given the definitions of which that is not known."""
    if not isinstance(schema, dict):
        return schema is not False
    if "$ref" in schema and schema["$ref"].removeprefix(DEFINITIONS) in unknown:
        return False
    if "anyOf" in schema and not any(_has_value(option, unknown) for option in schema["anyOf"]):
        return False
    if not all(_has_value(part, unknown) for part in schema.get("allOf", ())):
        return False
    kind = schema.get("type")
    if kind == "object":
        return all(_has_value(property_of(schema, name), unknown) for name in schema.get("required", ()))
    if kind == "array":
        least = schema.get("minItems", 0)
        prefix = schema.get("prefixItems", [])[:least]
        rest = [schema.get("items", True)] if least > len(prefix) else []
        return all(_has_value(item, unknown) for item in (*prefix, *rest))
    return True
