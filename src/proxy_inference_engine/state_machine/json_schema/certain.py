"""Whether a rewritten schema surely has a value: the library leaves out an optional property that it finds impossible,
and then a watch that counts on it would lead where nothing can follow.
"""

from collections.abc import Mapping
from typing import Any

from proxy_inference_engine.state_machine.json_schema.budget import StepBudget
from proxy_inference_engine.state_machine.json_schema.keywords import Schema
from proxy_inference_engine.state_machine.json_schema.result import DEFINITIONS, property_of

MAX_DEPTH = 24
# What each leaves some value, but two of them together may not.
_OF_TEXT = frozenset({"pattern", "format", "minLength", "maxLength"})
_OF_NUMBERS = frozenset({"multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})


class Certainty:
    """Of the schemas of one document. What a definition says of itself does not count against it."""

    def __init__(self, definitions: Mapping[str, Any], budget: StepBudget) -> None:
        self._definitions = definitions
        self._budget = budget
        self._known: dict[str, bool] = {}

    def has_value(self, schema: Schema, depth: int = 0) -> bool:
        self._budget.spend()
        if not isinstance(schema, Mapping):
            return schema is not False
        if "$ref" in schema:
            return self._is_certain(schema["$ref"], depth)
        if depth > MAX_DEPTH or len(schema.get("allOf", ())) > 1:
            return False
        if len(schema.keys() & _OF_TEXT - {"minLength", "maxLength"}) and len(schema.keys() & _OF_TEXT) > 1:
            return False
        if "multipleOf" in schema and len(schema.keys() & _OF_NUMBERS) > 1:
            return False
        if "anyOf" in schema:
            is_alone = schema.keys() <= {"anyOf", "$defs", "x-guidance"}
            return is_alone and any(self.has_value(option, depth + 1) for option in schema["anyOf"])
        needed = [property_of(schema, name) for name in schema.get("required", ())]
        if schema.get("required") and schema.get("patternProperties"):
            return False
        prefix = schema.get("prefixItems", ())
        least = schema.get("minItems", 0)
        needed += [*prefix[:least], *([schema.get("items", True)] if least > len(prefix) else [])]
        return all(self.has_value(one, depth + 1) for one in needed)

    def _is_certain(self, reference: str, depth: int) -> bool:
        if reference not in self._known:
            self._known[reference] = False  # one that needs itself has no end by that way
            found = self.has_value(self._definitions[reference.removeprefix(DEFINITIONS)], depth + 1)
            self._known[reference] = found
        return self._known[reference]
