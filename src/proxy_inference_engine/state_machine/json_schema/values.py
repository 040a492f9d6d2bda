"""Does a schema admit a value: yes, no, or not known. Never guesses, so that proofs may rest on the answer."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from fractions import Fraction
from typing import Any

from proxy_inference_engine.state_machine.json_schema.document import Document
from proxy_inference_engine.state_machine.json_schema.keywords import (
    ASSERTIONS,
    LATEST,
    Schema,
    is_known_to,
    is_number,
    is_whole,
    kind_of,
)
from proxy_inference_engine.state_machine.json_schema.regexes import RegexError

# Yes, no, or not known.
Verdict = bool | None
Check = Callable[[Any, Mapping[str, Any], Document], Verdict]


def key_of(value: Any) -> Hashable:
    """What two JSON values have in common exactly when they are equal: 1 is 1.0 but not true."""
    kind = kind_of(value)
    if isinstance(value, list):
        return kind, tuple(map(key_of, value))
    if isinstance(value, dict):
        return kind, frozenset((name, key_of(one)) for name, one in value.items())
    return kind, value


def _key(value: Any, document: Document) -> Hashable:
    """The key of a value, for a price: one that a client wrote may be as long as its whole schema."""
    if not isinstance(value, list | dict):
        return key_of(value)
    known = document.keys.get(id(value))
    if known is not None:
        document.spend(known[2] // 64)
        return known[1]
    weight, stack = 0, [value]
    while stack:
        one = stack.pop()
        weight += 1
        document.spend()
        stack += one if isinstance(one, list) else one.values() if isinstance(one, dict) else ()
    document.keys[id(value)] = (value, key_of(value), weight)
    return document.keys[id(value)][1]


def all_of(answers: Iterable[Verdict]) -> Verdict:
    """Whether every verdict is yes: no wins over not known, which wins over yes."""
    answer: Verdict = True
    for one in answers:
        if one is False:
            return False
        if one is None:
            answer = None
    return answer


def negated(answer: Verdict) -> Verdict:
    return None if answer is None else not answer


def any_of(answers: Iterable[Verdict]) -> Verdict:
    return negated(all_of(negated(answer) for answer in answers))


def admits(value: Any, schema: Schema, document: Document) -> Verdict:
    """Whether the schema holds for the value."""
    document.spend()
    if not isinstance(schema, dict):
        return bool(schema)
    if document.draft < 2019 and "$ref" in schema and schema.keys() & ASSERTIONS != {"$ref"}:
        return None
    return all_of(_admits_keyword(value, keyword, schema, document) for keyword in schema if keyword in ASSERTIONS)


def _admits_keyword(value: Any, keyword: str, schema: Mapping[str, Any], document: Document) -> Verdict:
    if not is_known_to(document.draft, keyword):
        return None
    if keyword == "if":
        return _condition(value, schema, document)
    general = _GENERAL.get(keyword)
    if general is not None:
        return general(value, schema[keyword], document)
    kind, check = _BY_KIND.get(keyword, (kind_of(value), _unknown))
    return check(value, schema, document) if kind == kind_of(value) else True


def _unknown(value: Any, schema: Mapping[str, Any], document: Document) -> Verdict:
    return None


def has_type(value: Any, names: Any) -> bool:
    """Whether a value is of one of the named types."""
    kind = kind_of(value)
    is_integer = kind == "number" and is_whole(value)
    names = names if isinstance(names, list) else [names]
    return kind in names or (is_integer and "integer" in names)


def _one_of(value: Any, options: list[Schema], document: Document) -> Verdict:
    answers = [admits(value, option, document) for option in options]
    if answers.count(True) > 1:
        return False
    if None in answers:
        return None
    return answers.count(True) == 1


def _reference(value: Any, reference: str, document: Document) -> Verdict:
    # A reference may lead back to itself without consuming any of the value: then the answer is not known.
    if document.is_recursive(reference):
        return None
    return admits(value, document.target(reference).schema, document)


def _keys(values: list[Any], document: Document) -> frozenset[Hashable]:
    """Keys of an enumeration, which is asked often."""
    known = document.enumerations.get(id(values))
    if known is None:
        known = document.enumerations[id(values)] = (values, frozenset(map(key_of, values)))
        document.spend(len(values) // 16)
    return known[1]


_GENERAL: dict[str, Callable[[Any, Any, Document], Verdict]] = {
    "type": lambda value, names, _: has_type(value, names),
    "const": lambda value, constant, document: _key(value, document) == _key(constant, document),
    "enum": lambda value, options, document: _key(value, document) in _keys(options, document),
    "allOf": lambda value, parts, document: all_of(admits(value, part, document) for part in parts),
    "anyOf": lambda value, options, document: any_of(admits(value, option, document) for option in options),
    "oneOf": _one_of,
    "not": lambda value, schema, document: negated(admits(value, schema, document)),
    "$ref": _reference,
}


def _within(value: Any, schema: Mapping[str, Any], document: Document) -> Verdict:
    """Whether a number is within its bounds, all of them together: in draft 4 they need each other."""
    low, high = schema.get("minimum"), schema.get("maximum")
    over, under = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    if document.draft == 4 and (is_number(over) or is_number(under)):
        return None
    return not (
        (low is not None and (value < low or (over is True and value == low)))
        or (high is not None and (value > high or (under is True and value == high)))
        or (is_number(over) and value <= over)
        or (is_number(under) and value >= under)
    )


def _is_multiple(value: Any, schema: Mapping[str, Any], document: Document) -> Verdict:
    return Fraction(str(value)) % Fraction(str(schema["multipleOf"])) == 0


def _matches(value: str, schema: Mapping[str, Any], document: Document) -> Verdict:
    try:
        return document.matches(schema["pattern"], value)
    except RegexError:
        return None


def _has_length(value: Any, schema: Mapping[str, Any], document: Document) -> Verdict:
    suffix = {"string": "Length", "array": "Items"}.get(kind_of(value), "Properties")
    return bool(schema.get("min" + suffix, 0) <= len(value) <= schema.get("max" + suffix, len(value)))


def _has_required(value: Any, schema: Mapping[str, Any], document: Document) -> Verdict:
    return isinstance(schema["required"], bool) or all(name in value for name in schema["required"])


def _matching(name: str, patterns: Mapping[str, Schema], document: Document) -> list[Schema] | None:
    """The schemas of all patterns found in a name; None where that is not known."""
    try:
        return [one for pattern, one in patterns.items() if document.matches(pattern, name)]
    except RegexError:
        return None


def property_schemas(name: str, schema: Mapping[str, Any], document: Document) -> list[Schema] | None:
    """All schemas that an object's schema has for a property; None where that is not known."""
    found = _matching(name, schema.get("patternProperties", {}), document)
    if found is None:
        return None
    if name in schema.get("properties", {}):
        return [schema["properties"][name], *found]
    return found or [schema.get("additionalProperties", True)]


def _properties(value: Any, schema: Mapping[str, Any], document: Document) -> Verdict:
    """Whether all properties of an object are admitted: named, matched and others."""
    answers: list[Verdict] = []
    for name, one in value.items():
        schemas = property_schemas(name, schema, document)
        answers.append(None if schemas is None else all_of(admits(one, part, document) for part in schemas))
    return all_of(answers)


def _names(value: Any, schema: Mapping[str, Any], document: Document) -> Verdict:
    return all_of(admits(name, schema["propertyNames"], document) for name in value)


def _items(value: Any, schema: Mapping[str, Any], document: Document) -> Verdict:
    """Whether all items of an array are admitted: those of a tuple and those after it."""
    items = schema.get("items", True)
    if isinstance(items, list):
        prefix, rest = items, schema.get("additionalItems", True)
    else:
        prefix, rest = schema.get("prefixItems", []) if document.draft >= LATEST else [], items
    schemas = [*prefix[: len(value)], *[rest] * (len(value) - len(prefix))]
    return all_of(admits(item, one, document) for item, one in zip(value, schemas, strict=True))


def _contains(value: Any, schema: Mapping[str, Any], document: Document) -> Verdict:
    if "minContains" in schema or "maxContains" in schema:
        return None
    return any_of(admits(item, schema["contains"], document) for item in value)


def _differ(value: Any, schema: Mapping[str, Any], document: Document) -> Verdict:
    return schema["uniqueItems"] is False or len({_key(item, document) for item in value}) == len(value)


def _condition(value: Any, schema: Mapping[str, Any], document: Document) -> Verdict:
    asked = admits(value, schema["if"], document)
    if asked is None:
        return None
    return admits(value, schema.get("then" if asked else "else", True), document)


def _depends(keyword: str) -> Check:
    def check(value: Any, schema: Mapping[str, Any], document: Document) -> Verdict:
        needed = [one for name, one in schema[keyword].items() if name in value]
        parts = [{"required": one} if isinstance(one, list) else one for one in needed]
        return all_of(admits(value, part, document) for part in parts)

    return check


_BY_KIND: dict[str, tuple[str, Check]] = {
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), ("number", _within)),
    "multipleOf": ("number", _is_multiple),
    **dict.fromkeys(("minLength", "maxLength"), ("string", _has_length)),
    "pattern": ("string", _matches),
    "format": ("string", _unknown),
    **dict.fromkeys(("minItems", "maxItems"), ("array", _has_length)),
    **dict.fromkeys(("items", "prefixItems", "additionalItems"), ("array", _items)),
    "contains": ("array", _contains),
    "uniqueItems": ("array", _differ),
    "unevaluatedItems": ("array", _unknown),
    **dict.fromkeys(("minProperties", "maxProperties"), ("object", _has_length)),
    "required": ("object", _has_required),
    **dict.fromkeys(("properties", "patternProperties", "additionalProperties"), ("object", _properties)),
    "propertyNames": ("object", _names),
    "unevaluatedProperties": ("object", _unknown),
    **{name: ("object", _depends(name)) for name in ("dependencies", "dependentRequired", "dependentSchemas")},
}
