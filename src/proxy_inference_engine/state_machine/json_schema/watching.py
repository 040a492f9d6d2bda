"""A rewritten schema as the library is given it where a watch stands beside the grammar, and what the watch has to know.

The library writes properties in the order of a schema, but those that match patterns in any order and any number of
times. So an object whose keys are names without more gets a pattern for each of them, and the watch sees to the rest.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from proxy_inference_engine.state_machine.json_schema.budget import OutOfSteps, StepBudget
from proxy_inference_engine.state_machine.json_schema.certain import Certainty
from proxy_inference_engine.state_machine.json_schema.differing import DIFFERENT, Unwatchable, other_keys
from proxy_inference_engine.state_machine.json_schema.keywords import Schema, children, mapped
from proxy_inference_engine.state_machine.json_schema.patterns import do_meet
from proxy_inference_engine.state_machine.json_schema.regexes import RegexError
from proxy_inference_engine.state_machine.json_schema.result import DEFINITIONS
from proxy_inference_engine.state_machine.json_schema.shaping import Shaper
from proxy_inference_engine.state_machine.shapes import Shape

# The library compares each pattern with each.
MAX_NAMES = 64
MAX_ALL_NAMES = 400
MAX_TRIES = 4
_FREE = frozenset({"type", "properties", "required", "additionalProperties", "patternProperties", "$defs"})
_WORD = re.compile(r"\w")


class Watched(NamedTuple):
    """`unplaced`: paths of uniqueItems that a watch could not keep; where there are any, the rest means nothing."""

    schema: dict[str, Any]
    shape: Shape | None
    unplaced: frozenset[str]


def watched(rewritten: dict[str, Any], *, any_order: bool) -> Watched:
    """Raises OutOfSteps only where the schema could not be written without a watch either."""
    free = _Free(rewritten).found if any_order else set()
    for _ in range(MAX_TRIES):
        shaper = Shaper(rewritten, free, StepBudget())
        shape = shaper.shape()
        if shaper.unplaced or not shaper.ambiguous:
            break
        free = free - shaper.ambiguous
    else:
        shaper = Shaper(rewritten, set(), StepBudget())
        free, shape = set(), shaper.shape()
    return Watched(_without_marks(rewritten, free), shape, frozenset(shaper.unplaced))


class _Free:
    """Objects whose order may be free: no parts of others, with few names that are written in one way."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._definitions: Mapping[str, Any] = document.get("$defs", {})
        self.found: set[int] = set()
        self._parts: set[int] = set()
        self._budget = StepBudget()
        self._certainty = Certainty(self._definitions, self._budget)
        self._num_left = MAX_ALL_NAMES
        try:
            self._look(document)
        except OutOfSteps:
            self.found.clear()
        self.found -= self._parts

    def _look(self, root: Schema) -> None:
        stack: list[tuple[Schema, bool]] = [(root, False)]
        seen: set[tuple[int, bool]] = set()
        while stack:
            self._budget.spend()
            schema, is_part = stack.pop()
            if not isinstance(schema, Mapping) or (id(schema), is_part) in seen:
                continue
            seen.add((id(schema), is_part))
            if is_part:
                self._parts.add(id(schema))
            elif self._num_left >= len(schema.get("properties", ())) and self._may_be_free(schema):
                self._num_left -= len(schema["properties"])
                self.found.add(id(schema))
            for below, one in children(schema):
                stack.append((one, _is_beside(below) and (is_part or below[0] == "allOf")))
            if "$ref" in schema:
                stack.append((self._definitions[schema["$ref"].removeprefix(DEFINITIONS)], is_part))

    def _may_be_free(self, schema: Mapping[str, Any]) -> bool:
        if not _is_plain(schema, self._budget):
            return False
        below = [*schema.get("properties", {}).values(), *schema.get("patternProperties", {}).values()]
        below.append(schema.get("additionalProperties", False))
        return all(one is False or self._certainty.has_value(one) for one in below)


def _is_beside(below: tuple[str, ...]) -> bool:
    """Whether a subschema is about the same value."""
    return below[0] in {"allOf", "anyOf"}


def _is_plain(schema: Mapping[str, Any], budget: StepBudget) -> bool:
    """Whether an object has few names, each written in one way, that are no others' too."""
    properties, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    names = dict.fromkeys((*properties, *schema.get("required", ())))
    if not schema.keys() <= _FREE or not (1 if patterns else 2) <= len(names) <= MAX_NAMES:
        return False
    if False in properties.values() and (patterns or schema.get("additionalProperties") is not False):
        return False
    if not all(json.dumps(name, ensure_ascii=False)[1:-1] == name and name.isprintable() for name in names):
        return False
    try:
        other_keys(schema, budget)
        return not any(do_meet(_pattern(name), pattern, budget) for name in names for pattern in patterns)
    except (Unwatchable, RegexError):
        return False


def _without_marks(schema: Schema, free: set[int]) -> Any:
    """A copy without what is the watch's alone."""
    if not isinstance(schema, Mapping):
        return schema
    copy = mapped(schema, lambda below, one: _without_marks(one, free))
    copy.pop(DIFFERENT, None)
    if "allOf" in copy:
        copy["allOf"] = [part for part in copy["allOf"] if part != {}]
        if copy.keys() == {"allOf"} and len(copy["allOf"]) <= 1:
            copy = copy["allOf"][0] if copy["allOf"] else {}
        elif not copy["allOf"]:
            del copy["allOf"]
    return _in_free_order(copy) if id(schema) in free else copy


def _in_free_order(schema: dict[str, Any]) -> dict[str, Any]:
    properties, others = schema.get("properties", {}), schema.get("additionalProperties", {})
    names = {**properties, **{name: others for name in schema.get("required", ()) if name not in properties}}
    patterns = {_pattern(name): one for name, one in names.items() if one is not False}
    kept = {keyword: one for keyword, one in schema.items() if keyword not in {"properties", "required"}}
    return {**kept, "patternProperties": {**patterns, **schema.get("patternProperties", {})}}


def _pattern(name: str) -> str:
    """The pattern of one name."""
    return f"^{_literal(name)}$"


def _literal(name: str) -> str:
    return "".join(char if _WORD.match(char) or not char.isascii() or char == " " else "\\" + char for char in name)


def is_literal(pattern: str) -> bool:
    """Whether a pattern is one name, as they are written here."""
    return re.fullmatch(r"\^(?:\w|[^\x00-\x7f]| |\\[^\w])*\$", pattern) is not None
