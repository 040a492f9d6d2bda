"""Which names the properties of an object may have: propertyNames, and patterns in the library's syntax."""

import re
from collections.abc import Mapping
from typing import Any

from proxy_inference_engine.state_machine.json_schema.budget import StepBudget
from proxy_inference_engine.state_machine.json_schema.document import Document
from proxy_inference_engine.state_machine.json_schema.errors import NotEnforceable
from proxy_inference_engine.state_machine.json_schema.keywords import (
    ASSERTIONS,
    MAX_DEPTH,
    Kinds,
    Schema,
    kind_of,
    lengths,
)
from proxy_inference_engine.state_machine.json_schema.languages import RegularLanguage, language_of
from proxy_inference_engine.state_machine.json_schema.overlaps import apart
from proxy_inference_engine.state_machine.json_schema.patterns import is_universal
from proxy_inference_engine.state_machine.json_schema.plain import supported_pattern
from proxy_inference_engine.state_machine.json_schema.regexes import RegexError, as_set_text
from proxy_inference_engine.state_machine.json_schema.values import admits

_MANY = re.compile(r"[*+]|,\}|^[^^]|[^$]$")  # in most patterns that more names have than anybody lists
_MAX_LISTED = 200
_WRITABLE = 32  # characters below are written as something else in JSON


def property_names(schema: Mapping[str, Any], document: Document, kinds: Kinds) -> Schema:
    """A pattern for the names that are allowed, or patterns for those that are not."""
    names = document.resolved(schema["propertyNames"])
    if names is True or names == {}:
        return True
    if names is False:
        return {"additionalProperties": False}
    binding = names.keys() & ASSERTIONS
    inner = document.resolved(names["not"]) if binding == {"not"} else None
    if isinstance(inner, dict) and inner.keys() & ASSERTIONS == {"pattern"}:
        return {"patternProperties": {inner["pattern"]: False}}
    try:
        pattern = name_pattern(names, document)
    except RegexError as error:
        raise NotEnforceable(f"The names cannot be described: {error}.") from None
    if pattern is None:
        return {"additionalProperties": False}
    if schema.get("patternProperties"):
        return _within(pattern, schema["patternProperties"], document)
    return {"patternProperties": {pattern: True}, "additionalProperties": False}


def _within(pattern: str, patterns: Mapping[str, Schema], document: Document) -> Schema:
    """Names outside the pattern, and outside the other patterns of the schema, which have their own entry."""
    think = document.budget.think
    try:
        outside = language_of(pattern).complement()
        forbidden: dict[str, Schema] = {}
        for other in patterns:
            language = language_of(other)
            if not language.and_(outside).is_empty(think):
                raise NotEnforceable("It cannot be enforced beside patterns that allow other names.")
            outside = outside.and_(language.complement())
        if not outside.is_empty(think):
            forbidden[outside.pattern(think)] = False
    except RegexError as error:
        raise NotEnforceable(f"The names cannot be described: {error}.") from None
    return {"patternProperties": forbidden}


def name_pattern(names: Mapping[str, Any], document: Document) -> str | None:
    """One pattern for all names that a schema allows; None where there are none."""
    binding = names.keys() & ASSERTIONS
    if (
        binding <= {"pattern", "type"}
        and "pattern" in binding
        and admits("", {"type": names.get("type", "string")}, document)
    ):
        return str(names["pattern"])
    values = names.get("enum", [names["const"]] if "const" in names else None)
    if values is not None:
        allowed = [value for value in values if kind_of(value) == "string" and admits(value, names, document)]
        undecided = [value for value in values if admits(value, names, document) is None]
        if undecided:
            raise RegexError("it is not clear which of the values are allowed")
        return literal_pattern(allowed) if allowed else None
    return _described(names, document)


def literal_pattern(words: list[str]) -> str:
    """A pattern for these strings alone."""
    quoted = ["".join(as_set_text(((ord(char), ord(char)),)) for char in word) for word in words]
    return "^(?:" + "|".join(quoted) + ")$"


def _described(names: Mapping[str, Any], document: Document) -> str | None:
    language = _language(names, document, 0)
    if language.is_empty(document.budget.think):
        return None
    binding = names.keys() & ASSERTIONS
    if binding <= {"minLength", "maxLength", "type"}:
        least, most = lengths(names)
        return rf"^[\s\S]{{{least},{'' if most is None else most}}}$"
    return language.pattern(document.budget.think)


def _language(names: Schema, document: Document, depth: int) -> RegularLanguage:
    """The strings a schema allows."""
    everything = language_of("")
    names = document.resolved(names)
    if not isinstance(names, dict):
        return everything if names else everything.complement()
    if depth > MAX_DEPTH or names.keys() & ASSERTIONS - _ABOUT_NAMES:
        raise RegexError("a keyword says something else about them than pattern, length or value")
    if "type" in names and not admits("", {"type": names["type"]}, document):
        return everything.complement()
    language = everything.with_length(*lengths(names))
    if "pattern" in names:
        language = language.and_(language_of(names["pattern"]))
    for keyword in {"enum", "const"} & names.keys():
        values = names["enum"] if keyword == "enum" else [names["const"]]
        words = [value for value in values if isinstance(value, str)]
        language = language.and_(language_of(literal_pattern(words)) if words else everything.complement())
    for part in names.get("allOf", ()):
        language = language.and_(_language(part, document, depth + 1))
    if "not" in names:
        language = language.and_(_language(names["not"], document, depth + 1).complement())
    if "anyOf" in names:
        outside = everything
        for option in names["anyOf"]:
            outside = outside.and_(_language(option, document, depth + 1).complement())
        language = language.and_(outside.complement())
    return language


_ABOUT_NAMES = frozenset(
    {"type", "pattern", "minLength", "maxLength", "enum", "const", "allOf", "anyOf", "not", "$ref"}
)


def without_universal_patterns(schema: Mapping[str, Any], document: Document) -> Mapping[str, Any]:
    """An object's schema with patterns that every name has turned into conditions on all its properties."""
    patterns = schema["patternProperties"]
    universal = [pattern for pattern in patterns if is_universal(pattern, document.budget)]
    if not universal:
        return without_listed_patterns(schema, document)
    everywhere = [patterns[pattern] for pattern in universal]
    return {
        **schema,
        "properties": {name: _and(one, everywhere) for name, one in schema.get("properties", {}).items()},
        "patternProperties": {
            pattern: _and(one, everywhere) for pattern, one in patterns.items() if pattern not in universal
        },
        "additionalProperties": _and(True, everywhere),
    }


def without_listed_patterns(schema: Mapping[str, Any], document: Document) -> Mapping[str, Any]:
    """An object's schema with properties for patterns that have no other names than those that the document lists.

    The library fails where all names of a pattern stand in the object.
    """
    for pattern, one in schema["patternProperties"].items():
        names = _few_names(pattern, document)
        if names:
            given = schema.get("properties", {})
            named = {**given, **{name: _and(given.get(name, True), [one]) for name in names}}
            patterns = {key: other for key, other in schema["patternProperties"].items() if key != pattern}
            schema = {**schema, "properties": named, "patternProperties": patterns}
    return schema


def _few_names(pattern: str, document: Document) -> list[str]:
    """The names that have a pattern, where the document lists them all."""
    if _MANY.search(pattern) or len(document.listed_names) > _MAX_LISTED:
        return []
    try:
        names = [name for name in sorted(document.listed_names) if document.matches(pattern, name)]
        if not names:
            return []
        others = language_of(pattern).and_(language_of(literal_pattern(names)).complement())
        return names if others.is_empty(document.budget.think) else []
    except RegexError:
        return []


def _and(schema: Schema, others: list[Schema]) -> Schema:
    parts = [schema, *(other for other in others if other != schema)]
    parts = [part for part in parts if part is not True]
    return {"allOf": parts} if len(parts) > 1 else parts[0] if parts else True


def supported_patterns(patterns: Mapping[str, Schema], document: Document) -> dict[str, Schema]:
    """Patterns of properties in the library's syntax, of which no two match one name."""
    patterns = apart(patterns, document.budget) if len(patterns) > 1 else patterns
    written = [(supported_pattern(pattern, document.budget), one) for pattern, one in patterns.items()]
    return {pattern: one for pattern, one in written if pattern is not None}


def are_endless(schema: Mapping[str, Any], budget: StepBudget) -> bool:
    """Whether a rewritten object may have unnamed properties without end, however the name of one begins."""
    patterns = schema.get("patternProperties", {})
    is_open = schema.get("additionalProperties") is not False
    if not patterns:
        return is_open
    try:
        unnamed = outside = language_of("")
        for pattern, one in patterns.items():
            others = language_of(pattern).complement()
            unnamed = unnamed.and_(others)
            outside = outside if one is False else outside.and_(others)
        if is_open:
            outside = outside.and_(unnamed.complement())
        accepting, edges = outside.complement().automaton(budget.think)
    except RegexError:
        return False
    steps = {pair for pair, ranges in edges.items() if any(high >= _WRITABLE for _, high in ranges)}
    live = _leading_to({state for state, is_last in enumerate(accepting) if is_last}, steps)
    steps = {(before, after) for before, after in steps if after in live}
    return bool(live) and live == _going_on(live, steps)


def _leading_to(states: set[int], steps: set[tuple[int, int]]) -> set[int]:
    found: set[int] = set()
    while not states <= found:
        found |= states
        states = {before for before, after in steps if after in found}
    return found


def _going_on(states: set[int], steps: set[tuple[int, int]]) -> set[int]:
    """Those from which there are steps without end."""
    while True:
        left = {before for before, after in steps if before in states and after in states}
        if left == states:
            return states
        states = left
