"""Does a schema admit a value: yes, no, or not known. Never guesses, so that proofs may rest on the answer."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from fractions import Fraction
from itertools import combinations
from typing import Any

from proxy_inference_engine.state_machine.json_schema.document import Document
from proxy_inference_engine.state_machine.json_schema.keywords import (
    ASSERTIONS,
    LATEST,
    Schema,
    is_known_to,
    is_number,
    kind_of,
)
from proxy_inference_engine.state_machine.json_schema.languages import language_of
from proxy_inference_engine.state_machine.json_schema.regexes import RegexError

Answer = bool | None
Check = Callable[[Any, Mapping[str, Any], Document], Answer]


def key_of(value: Any) -> Hashable:
    """What two JSON values have in common exactly when they are equal: 1 is 1.0 but not true."""
    kind = kind_of(value)
    if isinstance(value, list):
        return kind, tuple(map(key_of, value))
    if isinstance(value, dict):
        return kind, frozenset((name, key_of(one)) for name, one in value.items())
    return kind, value


def same(left: Any, right: Any) -> bool:
    """Equality of JSON values."""
    return key_of(left) == key_of(right)


def all_of(answers: Iterable[Answer]) -> Answer:
    """No wins over not known, which wins over yes."""
    answer: Answer = True
    for one in answers:
        if one is False:
            return False
        if one is None:
            answer = None
    return answer


def negated(answer: Answer) -> Answer:
    return None if answer is None else not answer


def any_of(answers: Iterable[Answer]) -> Answer:
    return negated(all_of(negated(answer) for answer in answers))


def admits(value: Any, schema: Schema, document: Document) -> Answer:
    """Whether the schema holds for the value."""
    document.spend()
    if not isinstance(schema, dict):
        return bool(schema)
    if document.draft < 2019 and "$ref" in schema and schema.keys() & ASSERTIONS != {"$ref"}:
        return None
    return all_of(_admits_keyword(value, keyword, schema, document) for keyword in schema if keyword in ASSERTIONS)


def _admits_keyword(value: Any, keyword: str, schema: Mapping[str, Any], document: Document) -> Answer:
    if not is_known_to(document.draft, keyword):
        return None
    if keyword == "if":
        return _condition(value, schema, document)
    general = _GENERAL.get(keyword)
    if general is not None:
        return general(value, schema[keyword], document)
    kind, check = _BY_KIND.get(keyword, (kind_of(value), _unknown))
    return check(value, schema, document) if kind == kind_of(value) else True


def _unknown(value: Any, schema: Mapping[str, Any], document: Document) -> Answer:
    return None


def has_type(value: Any, names: Any) -> bool:
    """Whether a value is of one of the named types."""
    kind = kind_of(value)
    is_integer = kind == "number" and float(value).is_integer()
    names = names if isinstance(names, list) else [names]
    return kind in names or (is_integer and "integer" in names)


def _one_of(value: Any, options: list[Schema], document: Document) -> Answer:
    answers = [admits(value, option, document) for option in options]
    if answers.count(True) > 1:
        return False
    if None in answers:
        return None
    return answers.count(True) == 1


def _reference(value: Any, reference: str, document: Document) -> Answer:
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


_GENERAL: dict[str, Callable[[Any, Any, Document], Answer]] = {
    "type": lambda value, names, _: has_type(value, names),
    "const": lambda value, constant, _: same(value, constant),
    "enum": lambda value, options, document: key_of(value) in _keys(options, document),
    "allOf": lambda value, parts, document: all_of(admits(value, part, document) for part in parts),
    "anyOf": lambda value, options, document: any_of(admits(value, option, document) for option in options),
    "oneOf": _one_of,
    "not": lambda value, schema, document: negated(admits(value, schema, document)),
    "$ref": _reference,
}


def _within(value: Any, schema: Mapping[str, Any], document: Document) -> Answer:
    """All bounds of a number at once: in draft 4 they need each other."""
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


def _is_multiple(value: Any, schema: Mapping[str, Any], document: Document) -> Answer:
    return Fraction(str(value)) % Fraction(str(schema["multipleOf"])) == 0


def _matches(value: str, schema: Mapping[str, Any], document: Document) -> Answer:
    try:
        return language_of(schema["pattern"]).contains(value)
    except RegexError:
        return None


def _has_length(value: Any, schema: Mapping[str, Any], document: Document) -> Answer:
    suffix = {"string": "Length", "array": "Items"}.get(kind_of(value), "Properties")
    return bool(schema.get("min" + suffix, 0) <= len(value) <= schema.get("max" + suffix, len(value)))


def _has_required(value: Any, schema: Mapping[str, Any], document: Document) -> Answer:
    return isinstance(schema["required"], bool) or all(name in value for name in schema["required"])


def _matching(name: str, patterns: Mapping[str, Schema]) -> list[Schema] | None:
    """The schemas of all patterns found in a name; None where that cannot be told."""
    try:
        return [one for pattern, one in patterns.items() if language_of(pattern).contains(name)]
    except RegexError:
        return None


def property_schemas(name: str, schema: Mapping[str, Any]) -> list[Schema] | None:
    """All schemas that an object's schema has for a property; None where that cannot be told."""
    found = _matching(name, schema.get("patternProperties", {}))
    if found is None:
        return None
    if name in schema.get("properties", {}):
        return [schema["properties"][name], *found]
    return found or [schema.get("additionalProperties", True)]


def _properties(value: Any, schema: Mapping[str, Any], document: Document) -> Answer:
    """Named, matched and other properties at once."""
    answers: list[Answer] = []
    for name, one in value.items():
        schemas = property_schemas(name, schema)
        answers.append(None if schemas is None else all_of(admits(one, part, document) for part in schemas))
    return all_of(answers)


def _names(value: Any, schema: Mapping[str, Any], document: Document) -> Answer:
    return all_of(admits(name, schema["propertyNames"], document) for name in value)


def _items(value: Any, schema: Mapping[str, Any], document: Document) -> Answer:
    """The items of a tuple and those after it at once."""
    items = schema.get("items", True)
    if isinstance(items, list):
        prefix, rest = items, schema.get("additionalItems", True)
    else:
        prefix, rest = schema.get("prefixItems", []) if document.draft >= LATEST else [], items
    schemas = [*prefix[: len(value)], *[rest] * (len(value) - len(prefix))]
    return all_of(admits(item, one, document) for item, one in zip(value, schemas, strict=True))


def _contains(value: Any, schema: Mapping[str, Any], document: Document) -> Answer:
    if "minContains" in schema or "maxContains" in schema:
        return None
    return any_of(admits(item, schema["contains"], document) for item in value)


def _differ(value: Any, schema: Mapping[str, Any], document: Document) -> Answer:
    document.spend(len(value) ** 2)
    pairs = combinations(value, 2)
    return schema["uniqueItems"] is False or not any(same(left, right) for left, right in pairs)


def _condition(value: Any, schema: Mapping[str, Any], document: Document) -> Answer:
    asked = admits(value, schema["if"], document)
    if asked is None:
        return None
    return admits(value, schema.get("then" if asked else "else", True), document)


def _depends(keyword: str) -> Check:
    def check(value: Any, schema: Mapping[str, Any], document: Document) -> Answer:
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
