"""Random schemas with huge and odd numbers wherever a keyword takes one, also in references."""

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

LARGE = [4_300, 99_991, 10**6, 2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64, 10**30, 10**400]
FRACTIONS = [0.0, -0.0, 0.1, 0.07, 1.5, 1e-9, 5e-324, 1e300, -1e300, 1.7976931348623157e308, 2.0**31, 1e15]
NUMBERS = [0, 1, 2, 7, 9, -1, -7, True, False, *LARGE, *(-one for one in LARGE), *FRACTIONS]
SIZES = [0, 1, 2, 8, 9, 330, 10**5, 2**31, 3 * 10**8, 2**63, 10**12, 10**400, 0.0, 7.0, 1e15, 1e300]
TYPES = ["integer", "number", "string", "array", "object", ["array", "null"]]
NAMES = ["a", "b", "ab", ""]
PATTERNS = ["^a", "b$", "^[a-z]{1,99}$", "(a?){50}", "^.{300000000}$", "^(?!a).{0,9999999999}$"]
VALUES = [*NUMBERS, None, "", "a", "b" * 300, [], [1, [2]], ["a"] * 9, {"a": 1e300}]
ITEMS = [
    f"#/{keyword}/{index}" for keyword in ("allOf", "anyOf", "prefixItems") for index in (0, "-1", "00", "9" * 5_000)
]
REFERENCES = ["#", "#/", "#/properties/a", "#/items", "#a", "x#/a", *ITEMS]
FORMATS = ["date-time", "uri", "email", "ipv6", "regex", "uuid", "a" * 5_000]
DRAFTS = [f"http://json-schema.org/draft-0{number}/schema#" for number in (4, 6, 7)] + [
    "https://json-schema.org/draft/2019-09/schema"
]
OF_SIZES = [end + kind for end in ("min", "max") for kind in ("Items", "Contains", "Length", "Properties")]
OF_NUMBERS = ["multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"]
OF_SCHEMAS = ["not", "if", "then", "else", "items", "contains", "additionalProperties", "propertyNames"]
OF_SCHEMAS += ["unevaluatedItems", "unevaluatedProperties", "additionalItems"]
CHOICES: dict[str, list[Any]] = {
    "type": TYPES,
    "pattern": PATTERNS,
    "uniqueItems": [True, False],
    "const": VALUES,
    "format": FORMATS,
    "$schema": DRAFTS,
    **dict.fromkeys(["$ref", "$dynamicRef", "$recursiveRef"], REFERENCES),
    **dict.fromkeys(OF_SIZES, SIZES),
    **dict.fromkeys(OF_NUMBERS, NUMBERS),
}
LISTS = ["allOf", "anyOf", "oneOf", "prefixItems"]
MAPS = {"properties": NAMES, "dependentSchemas": NAMES, "$defs": NAMES, "patternProperties": PATTERNS}
KEYWORDS = [*CHOICES, *OF_SCHEMAS, *LISTS, *MAPS, "required", "enum"]


Pick = Callable[[int, int], int]  # a number from the first to the second


def odd_schema(pick: Pick, depth: int = 0) -> Any:
    def one_of(choices: list[Any]) -> Any:
        return choices[pick(0, len(choices) - 1)]

    def some(choices: list[Any]) -> list[Any]:
        return [one_of(choices) for _ in range(pick(1, 3))]

    def value_of(keyword: str) -> Any:
        if keyword in CHOICES:
            return one_of(CHOICES[keyword])
        if keyword in LISTS:
            return [odd_schema(pick, depth + 1) for _ in range(pick(1, 3))]
        if keyword in MAPS:
            return {name: odd_schema(pick, depth + 1) for name in some(MAPS[keyword])}
        if keyword in OF_SCHEMAS:
            return odd_schema(pick, depth + 1)
        return some(NAMES if keyword == "required" else VALUES)

    if depth > 3 or pick(0, 9) == 0:
        return bool(pick(0, 1))
    return {keyword: value_of(keyword) for keyword in (one_of(KEYWORDS) for _ in range(pick(1, 4)))}


@st.composite
def schemas(draw: st.DrawFn) -> Any:
    return odd_schema(lambda least, most: draw(st.integers(least, most)))
