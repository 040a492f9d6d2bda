"""Which strings of a message or a tool a template has to recognise; all others are what people wrote."""

from enum import Enum, auto
from typing import Any


class Place(Enum):
    MESSAGE = auto()  # and its calls: every key is ours
    SCHEMA = auto()  # and the tool around it: keywords are recognised, other keys are people's
    NAMES = auto()  # of parameters or definitions: keys are people's, their values schemas
    DATA = auto()  # anything: all of it is people's


_STRUCTURE = frozenset({"id", "role", "tool_call_id", "type"})  # templates compare and count these
_TYPES = frozenset({"array", "boolean", "function", "integer", "null", "number", "object", "string"})
_NAMES = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"})
_DATA = frozenset({"arguments", "const", "default", "enum", "example", "examples"})
_KEYWORDS = """
$ref additionalProperties allOf anyOf description format function items maxItems maxLength maximum minItems minLength
minimum name nullable oneOf parameters pattern prefixItems required title type
"""
_OWN_KEYS = frozenset(_KEYWORDS.split()) | _NAMES | _DATA


def is_own_key(key: str, place: Place) -> bool:
    """Whether a template looks for this key, so that it must stay as it is."""
    return place is Place.MESSAGE or (place is Place.SCHEMA and key in _OWN_KEYS)


def is_kept(key: str, value: Any, place: Place) -> bool:
    """Whether the value under a key must stay as it is."""
    if place is Place.SCHEMA:
        types = value if isinstance(value, list) else [value]
        return key == "type" and all(isinstance(each, str) and each in _TYPES for each in types)
    return place is Place.MESSAGE and key in _STRUCTURE and isinstance(value, str)


def inside(key: str, place: Place) -> Place:
    """Where the value under a key is."""
    if place is Place.DATA or (place is not Place.NAMES and key in _DATA):
        return Place.DATA
    if place is Place.NAMES:
        return Place.SCHEMA
    return Place.NAMES if place is Place.SCHEMA and key in _NAMES else place
