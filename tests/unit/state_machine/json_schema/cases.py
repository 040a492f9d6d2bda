"""What a case is: a schema with values it allows and values it forbids. The tables are in the files beside this one."""

from typing import Any, NamedTuple


class Case(NamedTuple):
    """A schema, instances that satisfy it, instances that do not."""

    schema: Any
    valid: list[Any]
    invalid: list[Any]


def obj(properties: dict[str, Any], **keywords: Any) -> dict[str, Any]:
    """An object's schema."""
    return {"type": "object", "properties": properties, **keywords}


STRING = {"type": "string"}
INTEGER = {"type": "integer"}
ONE_OF_EACH = [None, True, 3, 1.5, "text", [1, "a"], {"k": 1}]


def all_but(*excluded: Any) -> list[Any]:
    """A value of each kind, except some."""
    return [value for value in ONE_OF_EACH if not any(value is one or value == one for one in excluded)]
