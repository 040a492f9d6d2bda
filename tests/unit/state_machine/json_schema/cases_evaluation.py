"""Unevaluated properties and items beside branches: which were looked at depends on which of them hold."""

from tests.unit.state_machine.json_schema.cases import INTEGER, STRING, Case, obj

DRAFT_2019 = "https://json-schema.org/draft/2019-09/schema"
PAIR = [{"prefixItems": [True, STRING]}, {"prefixItems": [True, True, INTEGER]}]
NEEDS_A, NEEDS_B = obj({"a": INTEGER}, required=["a"]), obj({"b": INTEGER}, required=["b"])

PROPERTIES = [
    Case(
        {"anyOf": [NEEDS_A, NEEDS_B], "unevaluatedProperties": False},
        [{"a": 1}, {"b": 1}, {"a": 1, "b": 1}],
        [{}, {"a": 1, "c": 1}, {"b": 1, "a": "x"}, {"c": 1}],
    ),
    Case(
        obj({"k": STRING}, anyOf=[NEEDS_A, True], unevaluatedProperties=False),
        [{"k": "x"}, {"k": "x", "a": 1}, {}],
        [{"a": "x"}, {"b": 1}],
    ),
    Case(
        {"type": "object", "oneOf": [NEEDS_A, NEEDS_B], "unevaluatedProperties": STRING},
        [{"a": 1}, {"a": 1, "b": "x"}, {"b": 1, "c": "x"}],
        [{"a": 1, "b": 1}, {"a": 1, "c": 1}, {"c": "x"}],
    ),
    Case(
        {
            "type": "object",
            "if": {"properties": {"k": {"const": "t"}}, "required": ["k"]},
            "then": obj({"a": INTEGER}),
            "else": obj({"b": INTEGER}),
            "unevaluatedProperties": False,
        },
        [{"k": "t"}, {"k": "t", "a": 1}, {"b": 1}, {}],
        [{"k": "t", "b": 1}, {"k": "u"}, {"a": 1}, {"b": "x"}],
    ),
    Case(
        {"if": NEEDS_A, "unevaluatedProperties": False},
        [{"a": 1}, {}, "text"],
        [{"a": "x"}, {"b": 1}, {"a": 1, "b": 1}],
    ),
    Case(
        obj({"a": {}}, dependentSchemas={"a": obj({"b": INTEGER})}, unevaluatedProperties=False),
        [{"a": 1}, {"a": 1, "b": 1}, {}],
        [{"b": 1}, {"a": 1, "b": "x"}, {"c": 1}],
    ),
    Case(
        {
            "allOf": [{"$ref": "#/$defs/either"}],
            "unevaluatedProperties": False,
            "$defs": {"either": {"anyOf": [NEEDS_A, NEEDS_B]}},
        },
        [{"a": 1}, {"a": 1, "b": 1}],
        [{"a": 1, "c": 1}, {}],
    ),
    Case(
        {"type": "object", "anyOf": [NEEDS_A, {"additionalProperties": INTEGER}], "unevaluatedProperties": False},
        [{"a": 1}, {"z": 1}, {}],
        [{"a": 1, "z": "x"}, {"z": "x"}],
    ),
    Case(
        {"type": "object", "not": obj({"a": INTEGER}, required=["a"]), "unevaluatedProperties": False},
        [{}],
        [{"a": 1}, {"a": "x"}],
    ),
    Case(
        {"type": "object", "anyOf": [{"patternProperties": {"^x": INTEGER}}], "unevaluatedProperties": False},
        [{"x1": 1}, {}],
        [{"x1": "a"}, {"y": 1}],
    ),
]

ITEMS = [
    Case(
        {"type": "array", "anyOf": PAIR, "unevaluatedItems": False},
        [[], [1], [1, "a"], [1, 2, 3], [1, "a", 3]],
        [[1, "a", "b"], [1, 2, 3, 4]],
    ),
    Case(
        {
            "type": "array",
            "oneOf": [{"prefixItems": [{"const": 1}]}, {"prefixItems": [{"const": 2}, True]}],
            "minItems": 1,
            "unevaluatedItems": INTEGER,
        },
        [[1], [1, 5], [2, "a", 5]],
        [[1, "a"], [2, "a", "b"], [3]],
    ),
    Case(
        {"type": "array", "contains": STRING, "unevaluatedItems": INTEGER},
        [["a"], [1, "a", 2], ["a", "b"]],
        [[1], ["a", None]],
    ),
    Case(
        {"$schema": DRAFT_2019, "type": "array", "contains": STRING, "unevaluatedItems": STRING},
        [["a"], ["a", "b"]],
        [[1, "a"], []],
    ),
    Case(
        {"$schema": DRAFT_2019, "type": "array", "allOf": [{"items": [STRING]}], "unevaluatedItems": False},
        [["a"], []],
        [["a", 1], [1]],
    ),
    Case(
        {
            "type": "array",
            "if": {"prefixItems": [{"const": 7}], "minItems": 1},
            "then": {"items": INTEGER},
            "unevaluatedItems": False,
        },
        [[], [7], [7, 1]],
        [["y"], [1], [7, "x"]],
    ),
    Case({"allOf": [{"items": STRING}], "unevaluatedItems": False}, [["a"], [], 1], [[1]]),
]

EVALUATION = [*PROPERTIES, *ITEMS]
