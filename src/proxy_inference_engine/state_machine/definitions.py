"""What the references of a tool's parameters lead to.

Each parameter is a schema of its own, and has no more of the tool's than it needs: many parameters with all definitions
each would be the square of what the client wrote.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from proxy_inference_engine.state_machine.json_schema.budget import StepBudget
from proxy_inference_engine.state_machine.json_schema.document import WHOLE, rooted

_PLAIN = re.compile(r"#/(\$defs|definitions)/([^/~%#]+)")
# Beside these a reference may lead anywhere.
_NAMING = frozenset({"$id", "id", "$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveAnchor", "$recursiveRef"})


class _Name(NamedTuple):
    keyword: str
    name: str


class _Elsewhere(Exception):
    """A reference that is not plainly to a definition."""


class SharedDefinitions:
    def __init__(self, schema: Mapping[str, Any], budget: StepBudget) -> None:
        self._has_references = _has_references(schema)
        self._whole = rooted(schema)
        self._definitions: dict[_Name, Any] = {
            _Name(keyword, name): each
            for keyword in ("$defs", "definitions")
            if isinstance(listed := schema.get(keyword), Mapping)
            for name, each in listed.items()
        }
        self._is_plain = not _is_named(schema)
        self._leads: dict[_Name, set[_Name]] = {}
        self._budget = budget

    def of(self, value: Any) -> Mapping[str, Any]:
        """What stands beside a part of the schema that becomes a document. Raises OutOfSteps."""
        if not self._has_references:
            return {}
        try:
            names = self._reachable(value) if self._is_plain else None
        except _Elsewhere:
            names = None
        if names is None:
            return {"$defs": {WHOLE: self._whole}}
        kept: dict[str, dict[str, Any]] = {}
        for keyword, name in sorted(names):
            kept.setdefault(keyword, {})[name] = self._whole[keyword][name]
        return {"$defs": {WHOLE: kept}} if kept else {}

    def _reachable(self, value: Any) -> set[_Name]:
        """Raises _Elsewhere."""
        found, left = set[_Name](), list(_led_to(value))
        while left:
            name = left.pop()
            self._budget.spend()
            if name in found or name not in self._definitions:
                continue
            found.add(name)
            if name not in self._leads:
                self._leads[name] = _led_to(self._definitions[name])
            left += self._leads[name]
        return found


def _has_references(value: Any) -> bool:
    if isinstance(value, Mapping):
        return "$ref" in value or any(map(_has_references, value.values()))
    return isinstance(value, list | tuple) and any(map(_has_references, value))


def _is_named(schema: Mapping[str, Any]) -> bool:
    return any(isinstance(schema.get(keyword), str | bool) for keyword in _NAMING)  # not a property of that name


def _led_to(value: Any) -> set[_Name]:
    """The definitions that references in a value name. Raises _Elsewhere."""
    found = set[_Name]()
    if isinstance(value, Mapping):
        if _is_named(value):
            raise _Elsewhere
        if isinstance(reference := value.get("$ref"), str):
            plain = _PLAIN.fullmatch(reference)
            if plain is None:
                raise _Elsewhere
            found.add(_Name(*plain.groups()))
        for each in value.values():
            found |= _led_to(each)
    elif isinstance(value, list | tuple):
        for each in value:
            found |= _led_to(each)
    return found
