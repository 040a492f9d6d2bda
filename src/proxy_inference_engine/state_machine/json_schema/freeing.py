"""Properties as patterns that match one name each: the library writes them in any order, after all that are named.

It lets them come twice; so this is for objects that are watched, and may always have another property instead.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any

# The library compares every pattern of an object with every other.
MAX_FREED = 20
_PLAIN = re.compile("[A-Za-z0-9_ ]")
_ONE_NAME = re.compile(r"\^(?:[A-Za-z0-9_ ]|\\x\{[0-9A-F]{2,6}\})*\$")
_CLOSING = frozenset({"patternProperties", "additionalProperties", "minProperties", "maxProperties"})


def is_one_name(pattern: str) -> bool:
    """Whether it is surely a pattern that stands for one name."""
    return _ONE_NAME.fullmatch(pattern) is not None


def may_be_freed(schema: Mapping[str, Any]) -> bool:
    """Whether an object that the schema describes may have any other property too, as far as it says."""
    is_open = schema.get("additionalProperties", {}) == {}
    return schema.keys().isdisjoint(_CLOSING - {"additionalProperties"}) and is_open


def freed(schema: Mapping[str, Any], needed: Collection[str]) -> dict[str, Any] | None:
    """An object's schema with all properties as patterns but those needed, which come first, in their order.

    None where that changes nothing, or is too much.
    """
    given = schema.get("properties", {})
    free = {name: one for name, one in given.items() if one is not False and name not in needed}
    if not free or len(free) > MAX_FREED:
        return None
    named = [name for name in needed if name in given] + [name for name, one in given.items() if one is False]
    result = {key: one for key, one in schema.items() if key != "properties"}
    if named:
        result["properties"] = {name: given[name] for name in named}
    return {**result, "patternProperties": {_pattern(name): one for name, one in free.items()}}


def _pattern(name: str) -> str:
    return "^" + "".join(char if _PLAIN.fullmatch(char) else f"\\x{{{ord(char):02X}}}" for char in name) + "$"
