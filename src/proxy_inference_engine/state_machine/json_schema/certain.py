"""Whether a rewritten schema surely has a value: the library leaves out an optional property that it finds impossible,
and then a watch that counts on it would lead where nothing can follow.

Looks for the smallest value of each kind. Where two parts speak of one text or number, nobody is sure.
"""

from collections.abc import Mapping
from typing import Any

from proxy_inference_engine.state_machine.json_schema.budget import StepBudget
from proxy_inference_engine.state_machine.json_schema.keywords import (
    KINDS,
    OF_NUMBERS,
    OF_STRINGS,
    Schema,
    kind_of,
    kinds_of,
)
from proxy_inference_engine.state_machine.json_schema.result import DEFINITIONS

MAX_DEPTH = 24
MAX_ITEMS = 8
_LENGTHS = frozenset({"minLength", "maxLength"})
_ABOUT = {"string": OF_STRINGS, "number": OF_NUMBERS}


class Certainty:
    """Of the schemas of one document."""

    def __init__(self, definitions: Mapping[str, Any], budget: StepBudget) -> None:
        self._definitions = definitions
        self._budget = budget
        self._known: dict[str, bool] = {}

    def has_value(self, schema: Schema) -> bool:
        reference = schema.get("$ref") if isinstance(schema, Mapping) else None
        if reference is None:
            return self._have_value([schema], [], 0)
        if reference not in self._known:
            self._known[reference] = self._have_value([schema], [], 0)
        return self._known[reference]

    def _have_value(self, open_parts: list[Schema], parts: list[Mapping[str, Any]], depth: int) -> bool:
        """Whether one value satisfies all parts: those that are yet to be opened, and those that say it themselves."""
        open_parts, parts = list(open_parts), list(parts)
        while open_parts:
            self._budget.spend()
            one = open_parts.pop()
            if one is False or depth > MAX_DEPTH:
                return False
            if not isinstance(one, Mapping) or not one:
                continue
            if "$ref" in one:
                return self._have_value([*open_parts, self._target(one["$ref"])], parts, depth + 1)
            open_parts += one.get("allOf", ())
            parts.append(one)
            if "anyOf" in one:
                return any(self._have_value([*open_parts, option], parts, depth + 1) for option in one["anyOf"])
        kinds = KINDS.intersection(*map(kinds_of, parts))
        return any(self._has_kind(kind, parts, depth) for kind in sorted(kinds))

    def _target(self, reference: str) -> Schema:
        return self._definitions[reference.removeprefix(DEFINITIONS)]

    def _has_kind(self, kind: str, parts: list[Mapping[str, Any]], depth: int) -> bool:
        listing = [
            part["enum"] if "enum" in part else [part["const"]] for part in parts if {"enum", "const"} & part.keys()
        ]
        if listing:
            speaking = [part for part in parts if not part.keys() <= {"type", "enum", "const", "anyOf", "allOf"}]
            return not speaking and len(listing) == 1 and any(kind_of(value) == kind for value in listing[0])
        if kind == "object":
            return self._has_object(parts, depth)
        if kind == "array":
            return self._has_array(parts, depth)
        about = [part.keys() & _ABOUT.get(kind, frozenset()) for part in parts]
        said = [keywords for keywords in about if keywords]
        if not said:
            return True
        is_one = len(said) == 1 and len(said[0] - _LENGTHS) <= 1 and not (said[0] & _LENGTHS and said[0] - _LENGTHS)
        return is_one or (len(said) == 1 and kind == "number" and "multipleOf" not in said[0])

    def _has_object(self, parts: list[Mapping[str, Any]], depth: int) -> bool:
        needed = dict.fromkeys(name for part in parts for name in part.get("required", ()))
        if any(part.get("minProperties", 0) > len(needed) or "maxProperties" in part for part in parts):
            return False
        if needed and any(part.get("patternProperties") for part in parts):
            return False
        return all(self._have_value([_property(part, name) for part in parts], [], depth + 1) for name in needed)

    def _has_array(self, parts: list[Mapping[str, Any]], depth: int) -> bool:
        least = max((part.get("minItems", 0) for part in parts), default=0)
        if least > MAX_ITEMS or any(part.get("maxItems", least) < least for part in parts):
            return False
        return all(self._have_value([_item(part, at) for part in parts], [], depth + 1) for at in range(least))


def _property(part: Mapping[str, Any], name: str) -> Schema:
    given: Mapping[str, Any] = part.get("properties", {})
    return given[name] if name in given else part.get("additionalProperties", True)


def _item(part: Mapping[str, Any], index: int) -> Schema:
    prefix = part.get("prefixItems", ())
    return prefix[index] if index < len(prefix) else part.get("items", True)
