"""Keywords that the grammar library does not take, or takes only in part, and what stands for them."""

from tests.unit.state_machine.json_schema.cases import INTEGER, STRING, Case, all_but, obj
from tests.unit.state_machine.json_schema.cases_plain import DRAFT_4, DRAFT_7

A_OR_B = [{"required": ["a"]}, {"required": ["b"]}]


def tagged(tag: str, **properties: object) -> dict[str, object]:
    """An object that says by a constant what it is."""
    return obj({"kind": {"const": tag}, **properties}, required=["kind", *properties])


ONE_OF = [
    Case({"oneOf": [STRING, INTEGER]}, ["a", 1], [None, 1.5]),
    Case({"oneOf": [STRING, {"type": "null"}, {"type": "array", "items": STRING}]}, ["a", None, ["a"]], [1, [1]]),
    Case({"oneOf": [{"enum": ["a", "b"]}, {"enum": ["c"]}]}, ["a", "c"], ["d"]),
    Case({"oneOf": [{"enum": ["a", "b"]}, {"enum": ["b", "c"]}]}, ["a", "c"], ["b", "d"]),
    Case({"oneOf": [{"const": 1}, {"const": True}]}, [1, True], [0, False]),
    Case({"oneOf": [{"type": "integer", "maximum": 0}, {"type": "integer", "minimum": 1}]}, [0, 1, 9], ["a"]),
    Case({"oneOf": [{"type": "integer", "maximum": 5}, {"type": "integer", "minimum": 3}]}, [2, 6], [3, 4, 5]),
    Case({"oneOf": [{"type": "string", "maxLength": 2}, {"type": "string", "minLength": 3}]}, ["ab", "abc"], [1]),
    Case({"oneOf": [{"type": "string", "pattern": "^a"}, {"type": "string", "pattern": "^b"}]}, ["a", "bx"], ["c"]),
    Case(
        {"oneOf": [{"type": "string", "pattern": "^a"}, {"type": "string", "pattern": "b$"}]}, ["a", "cb"], ["ab", "c"]
    ),
    Case({"oneOf": [{"type": "string", "pattern": "^[0-9a-f]{4}$"}, {"const": ""}]}, ["00ff", ""], ["0"]),
    Case(
        {"oneOf": [tagged("x", v=STRING), tagged("y", v=INTEGER)]}, [{"kind": "x", "v": "a"}], [{"kind": "y", "v": "a"}]
    ),
    Case({"type": "object", "oneOf": A_OR_B}, [{"a": 1}, {"b": 1}, {"a": 1, "c": 2}], [{}, {"a": 1, "b": 1}]),
    Case(
        obj({"a": INTEGER, "b": INTEGER, "c": INTEGER}, oneOf=[*A_OR_B, {"required": ["c"]}]),
        [{"a": 1}, {"b": 1}, {"c": 1}],
        [{"a": 1, "b": 1}, {"b": 1, "c": 1}, {}, {"a": "x"}],
    ),
    Case(
        obj({"a": {}, "b": {}, "c": {}}, oneOf=[{"required": ["a"]}, {"required": ["b", "c"]}]),
        [{"a": 1}, {"a": 1, "b": 1}, {"b": 1, "c": 1}],
        [{"b": 1}, {"a": 1, "b": 1, "c": 1}],
    ),
    Case(
        {"oneOf": [obj({"x": STRING}, additionalProperties=False), obj({"y": STRING}, additionalProperties=False)]},
        [{"x": "a"}, {"y": "a"}],
        [{}, {"x": "a", "y": "a"}],
    ),
    Case(
        obj(
            {"t": STRING},
            required=["t"],
            oneOf=[{"properties": {"t": {"const": "a"}}}, {"properties": {"t": {"const": "b"}}}],
        ),
        [{"t": "a"}, {"t": "b"}],
        [{"t": "c"}, {}],
    ),
    Case(
        {"oneOf": [obj({"t": {"enum": ["a"]}, "v": STRING}), obj({"t": {"enum": ["b"]}, "v": INTEGER})]},
        [{"t": "a", "v": "x"}, {"t": "b", "v": 1}],
        [{"t": "a", "v": 1}, {"v": None}, {}],
    ),
    Case({"oneOf": [{"type": "array", "maxItems": 1}, {"type": "array", "minItems": 2}]}, [[], [1, 2]], [1]),
    Case(
        {
            "oneOf": [
                {"type": "array", "items": STRING, "minItems": 1},
                {"type": "array", "items": INTEGER, "minItems": 1},
            ]
        },
        [["a"], [1, 2]],
        [[], ["a", 1], [None]],
    ),
    Case({"oneOf": [{"anyOf": [STRING, {"type": "null"}]}, INTEGER]}, ["a", None, 1], [1.5]),
    Case({"oneOf": [{"oneOf": [STRING, INTEGER]}, {"type": "null"}]}, ["a", 1, None], [1.5]),
    Case({"oneOf": [STRING]}, ["a"], [1]),
    Case({"oneOf": [True, False]}, ["a", 1], []),
    Case(
        {"oneOf": [{"minimum": 2}, {"type": "string", "maxLength": 1}], "type": ["string", "number"]},
        [2, "ab"],
        [1, "a"],
    ),
    Case(
        {"oneOf": [{"$ref": "#/$defs/s"}, {"$ref": "#/$defs/n"}], "$defs": {"s": STRING, "n": {"type": "null"}}},
        ["a", None],
        [1],
    ),
    Case(
        {
            "$defs": {"leaf": obj({"v": INTEGER}, required=["v"]), "node": obj({"l": {"$ref": "#"}}, required=["l"])},
            "oneOf": [{"$ref": "#/$defs/leaf"}, {"$ref": "#/$defs/node"}],
        },
        [{"v": 1}, {"l": {"v": 1}}, {"l": {"l": {"v": 2}}}],
        [{}, {"l": {}}, {"v": 1, "l": {"v": 1}}],
    ),
]

NOT = [
    Case({"not": {"type": "string"}}, [1, None, [], {}], ["a", ""]),
    Case({"not": {"type": ["string", "null"]}}, [1, True], ["a", None]),
    Case({"not": {"const": "a"}}, ["b", "", "aa", 1, None], ["a"]),
    Case({"type": "string", "not": {"const": "ab"}}, ["", "a", "abc", "b", "é"], ["ab", 1]),
    Case({"type": "string", "not": {"enum": ["a", "ab", "é\n", ""]}}, ["b", "abc", "é"], ["a", "ab", "é\n", ""]),
    Case({"type": "integer", "not": {"enum": [1, 3]}}, [0, 2, 4, -1], [1, 3]),
    Case({"type": "number", "not": {"const": 1.5}}, [1, 1.4, 2], [1.5]),
    Case({"not": {"const": True}}, [False, 1, "true"], [True]),
    Case({"type": "boolean", "not": {"const": False}}, [True], [False]),
    Case({"not": {"enum": [None, 1, "a", True]}}, ["b", 2, False, []], [None, 1, "a", True]),
    Case({"type": "object", "not": {"required": ["a"]}}, [{}, {"b": 1}], [{"a": 1}]),
    Case({"type": "object", "not": {"required": ["a", "b"]}}, [{"a": 1}, {"b": 1}], [{"a": 1, "b": 1}]),
    Case({"type": "object", "not": {"anyOf": A_OR_B}}, [{}, {"c": 1}], [{"a": 1}, {"b": 1}]),
    Case({"type": "object", "not": {"allOf": A_OR_B}}, [{"a": 1}, {}], [{"a": 1, "b": 1}]),
    Case(
        {"type": "object", "not": {"properties": {"a": STRING}, "required": ["a"]}},
        [{}, {"a": 1}, {"b": "x"}],
        [{"a": "x"}],
    ),
    Case({"type": "integer", "not": {"minimum": 5}}, [4, -1], [5, 6]),
    Case({"type": "integer", "not": {"maximum": 5}}, [6], [5]),
    Case({"type": "integer", "not": {"exclusiveMinimum": 5}}, [5], [6]),
    Case({"type": "number", "not": {"exclusiveMaximum": 5}}, [5, 5.5], [4.5]),
    Case({"type": "string", "not": {"minLength": 2}}, ["", "a"], ["ab"]),
    Case({"type": "string", "not": {"maxLength": 2}}, ["abc"], ["ab"]),
    Case({"type": "string", "not": {"pattern": "^a"}}, ["", "b", "ba"], ["a", "ab"]),
    Case({"type": "string", "not": {"pattern": r"^[\s.,*]+$"}}, ["", "a", ".a"], [".", " ,*"]),
    Case({"type": "array", "not": {"minItems": 2}}, [[], [1]], [[1, 2]]),
    Case({"type": "array", "not": {"maxItems": 1}}, [[1, 2]], [[1]]),
    Case({"type": "array", "not": {"contains": STRING}}, [[], [1, None]], [["a"], [1, "a"]]),
    Case({"type": "array", "not": {"items": STRING}}, [[1], ["a", 1]], [[], ["a"]]),
    Case({"not": {"not": STRING}}, ["a"], [1]),
    Case({"not": {"not": {"not": {"const": 1}}}}, [2, "a"], [1]),
    Case({"properties": {"a": {"not": {}}}}, [{}, {"b": 1}, 1], [{"a": 1}]),
    Case({"properties": {"a": {"not": True}}, "type": "object"}, [{}], [{"a": None}]),
    Case({"not": False}, [1, "a"], []),
    Case({"not": {"anyOf": [STRING, {"type": "null"}]}}, [1], ["a", None]),
    Case({"not": {"oneOf": [STRING, {"type": "null"}]}}, [1, []], ["a", None]),
    Case({"type": "object", "not": {"oneOf": A_OR_B}}, [{}, {"a": 1, "b": 1}], [{"a": 1}, {"b": 1}]),
    Case({"enum": [{"a": 1}, {"b": 1}], "not": {"required": ["a"]}}, [{"b": 1}], [{"a": 1}]),
    Case({"allOf": [{"enum": [1, 2, 3, 4]}, {"not": {"multipleOf": 2}}]}, [1, 3], [2, 4]),
    Case(
        {"allOf": [{"enum": [{"v": 1}, {"w": 1}]}, {"not": {"patternProperties": {"^v": False}}}]},
        [{"v": 1}],
        [{"w": 1}],
    ),
    Case({"not": {"const": [1]}, "type": "array", "items": INTEGER, "maxItems": 2}, [[], [2], [1, 1]], [[1]]),
    Case({"not": {"propertyNames": {"not": {"enum": ["a", "b"]}}}}, [{"a": 1}, {"a": 2, "c": 1}], [{}, {"c": 1}]),
    Case({"type": "object", "not": {"dependentRequired": {"a": ["b"]}}}, [{"a": 1}], [{}, {"a": 1, "b": 1}]),
    Case({"not": {"if": STRING, "then": {"minLength": 2}, "else": {"const": 1}}}, ["a", 2], ["ab", 1]),
    Case({"anyOf": [{"not": STRING}, {"const": "a"}]}, [1, "a"], ["b"]),
    Case({"not": {"$ref": "#/$defs/s"}, "$defs": {"s": {"type": ["string", "array"]}}}, [1], ["a", []]),
    Case({"$schema": DRAFT_7, "not": {"items": [STRING]}}, [[1]], [["a"], []]),
]

CONDITIONS = [
    Case({"if": STRING, "then": {"minLength": 2}}, ["ab", 1], ["a"]),
    Case({"if": STRING, "then": {"minLength": 2}, "else": {"const": 1}}, ["ab", 1], ["a", 2]),
    Case({"if": STRING, "else": {"const": 1}}, ["a", 1], [2]),
    Case({"then": STRING}, [1, "a"], []),
    Case({"if": True, "then": STRING}, ["a"], [1]),
    Case({"if": False, "then": STRING, "else": INTEGER}, [1], ["a"]),
    Case(
        obj({"a": {}, "b": {}}, **{"if": {"required": ["a"]}, "then": {"required": ["b"]}}),
        [{}, {"b": 1}, {"a": 1, "b": 1}],
        [{"a": 1}],
    ),
    Case(
        obj(
            {"country": STRING, "zip": STRING},
            required=["country", "zip"],
            **{
                "if": {"properties": {"country": {"const": "US"}}},
                "then": {"properties": {"zip": {"pattern": "^[0-9]{5}$"}}},
                "else": {"properties": {"zip": {"pattern": "^[A-Z]"}}},
            },
        ),
        [{"country": "US", "zip": "12345"}, {"country": "CA", "zip": "K1"}],
        [{"country": "US", "zip": "K1"}, {"country": "CA", "zip": "12345"}],
    ),
    Case(
        obj(
            {"t": {"enum": ["a", "b", "c"]}, "x": {}},
            required=["t"],
            allOf=[
                {"if": {"properties": {"t": {"const": "a"}}}, "then": {"properties": {"x": STRING}}},
                {"if": {"properties": {"t": {"const": "b"}}}, "then": {"properties": {"x": INTEGER}}},
            ],
        ),
        [{"t": "a", "x": "s"}, {"t": "b", "x": 1}, {"t": "c", "x": None}, {"t": "a"}],
        [{"t": "a", "x": 1}, {"t": "b", "x": "s"}, {"t": "d"}],
    ),
    Case(
        obj(
            {"t": STRING, "x": {}},
            allOf=[
                {"if": {"properties": {"t": {"enum": ["a", "b"]}}, "required": ["t"]}, "then": {"required": ["x"]}},
                {"if": {"properties": {"t": {"const": "b"}}, "required": ["t"]}, "else": {"properties": {"x": STRING}}},
            ],
        ),
        [{"t": "a", "x": "s"}, {"t": "b", "x": 1}, {}, {"t": "z", "x": "s"}],
        [{"t": "a"}, {"t": "b"}, {"t": "a", "x": 1}, {"x": 1}],
    ),
]

DEPENDENCIES = [
    Case({"type": "object", "dependentRequired": {"a": ["b"]}}, [{}, {"b": 1}, {"a": 1, "b": 1}], [{"a": 1}]),
    Case(
        obj({"a": {}, "b": {}}, dependentRequired={"a": ["b"], "b": ["a"]}),
        [{}, {"a": 1, "b": 1}],
        [{"a": 1}, {"b": 1}],
    ),
    Case(
        obj({"a": {}, "b": {}, "c": {}}, dependentRequired={"a": ["c"], "b": ["c"]}), [{}, {"b": 1, "c": 1}], [{"a": 1}]
    ),
    Case(obj({"a": {}, "b": {}}, required=["a"], dependentRequired={"a": ["b"]}), [{"a": 1, "b": 1}], [{"a": 1}]),
    Case({"dependentRequired": {"a": ["b"]}}, [1, "a", {"b": 1}], [{"a": 1}]),
    Case({"type": "object", "dependentRequired": {"a": []}}, [{}, {"a": 1}], []),
    Case(
        obj({"a": {}, "b": {}}, dependentSchemas={"a": {"properties": {"b": INTEGER}}}),
        [{}, {"b": "x"}, {"a": 1, "b": 1}],
        [{"a": 1, "b": "x"}],
    ),
    Case({"type": "object", "dependentSchemas": {"a": False}}, [{}, {"b": 1}], [{"a": 1}]),
    Case({"$schema": DRAFT_7, "dependencies": {"a": ["b"]}}, [{}, {"a": 1, "b": 1}, 1], [{"a": 1}]),
    Case({"$schema": DRAFT_7, "dependencies": {"a": {"required": ["b"]}}}, [{"b": 1}], [{"a": 1}]),
    Case({"$schema": DRAFT_4, "dependencies": {}, "type": "object"}, [{}], [1]),
]

NAMES = [
    Case({"type": "object", "propertyNames": {"pattern": "^[a-z]+$"}}, [{}, {"ab": 1}], [{"A": 1}, {"": 1}]),
    Case({"type": "object", "propertyNames": {"maxLength": 2}}, [{"ab": 1, "c": 2}], [{"abc": 1}]),
    Case({"type": "object", "propertyNames": {"minLength": 1, "maxLength": 2}}, [{"a": 1}], [{"": 1}, {"abc": 1}]),
    Case({"type": "object", "propertyNames": {"enum": ["a", "b"]}}, [{}, {"b": 1, "a": 2}], [{"c": 1}]),
    Case({"type": "object", "propertyNames": {"const": "a"}}, [{"a": 1}], [{"b": 1}]),
    Case({"type": "object", "propertyNames": {"not": {"pattern": "^x-"}}}, [{"a": 1}], [{"x-a": 1}]),
    Case({"type": "object", "propertyNames": {"not": {"enum": ["a"]}}}, [{"b": 1, "aa": 2}], [{"a": 1}]),
    Case({"type": "object", "propertyNames": False}, [{}], [{"a": 1}]),
    Case({"type": "object", "propertyNames": True}, [{"a": 1}], []),
    Case(
        {"type": "object", "propertyNames": {"pattern": "^a", "maxLength": 2}},
        [{"a": 1, "ab": 1}],
        [{"b": 1}, {"abc": 1}],
    ),
    Case(
        {"type": "object", "propertyNames": {"anyOf": [{"const": "x"}, {"pattern": "^y"}]}},
        [{"x": 1, "yy": 1}],
        [{"z": 1}],
    ),
    Case(
        obj({"a": INTEGER, "B": INTEGER}, propertyNames={"pattern": "^[a-z]$"}),
        [{"a": 1, "z": 2}],
        [{"B": 1}, {"a": "x"}],
    ),
    Case(
        {"type": "object", "additionalProperties": INTEGER, "propertyNames": {"pattern": "^[a-z]$"}},
        [{"a": 1}],
        [{"a": "x"}, {"A": 1}],
    ),
    Case(
        {"type": "object", "patternProperties": {"^a": INTEGER, "b$": {"minimum": 5}}},
        [{"a": 1, "xb": 5, "ab": 6}],
        [{"ab": 1}],
    ),
    Case(
        {"type": "object", "patternProperties": {".*": INTEGER, "^a": {"minimum": 5}}},
        [{"a": 5, "b": 1}],
        [{"a": 1}, {"b": "x"}],
    ),
    Case(obj({"a": {"minimum": 5}}, patternProperties={".*": INTEGER}), [{"a": 5, "b": 1}], [{"a": 4}, {"b": "x"}]),
    Case(
        {"type": "object", "patternProperties": {"^(?!x)": INTEGER}, "additionalProperties": False},
        [{"a": 1}, {}],
        [{"x": 1}, {"a": "s"}],
    ),
    Case(
        {"type": "object", "patternProperties": {"^a": STRING, "^ab": {"minLength": 2}, "c$": {"maxLength": 3}}},
        [{"a": "", "ab": "xy", "abc": "xyz", "c": 5}],
        [{"ab": "x"}, {"abc": "wxyz"}, {"a": 1}],
    ),
]

THREE = {"a": INTEGER, "b": INTEGER, "c": INTEGER}
COUNTS = [
    Case({"type": "object", "minProperties": 1}, [{"a": 1}], [{}]),
    Case({"type": "object", "maxProperties": 1}, [{}, {"a": 1}], [{"a": 1, "b": 1}]),
    Case(obj(THREE, minProperties=1), [{"a": 1}, {"c": 1}, {"z": 1}], [{}]),
    Case(obj(THREE, minProperties=1, additionalProperties=False), [{"a": 1}, {"a": 1, "c": 1}], [{}, {"z": 1}]),
    Case(obj(THREE, minProperties=2, additionalProperties=False), [{"a": 1, "c": 1}], [{"a": 1}, {}]),
    Case(obj(THREE, minProperties=2), [{"a": 1, "z": 1}, {"b": 1, "c": 1}], [{"a": 1}, {"z": 1}]),
    Case(obj(THREE, maxProperties=1), [{}, {"b": 1}, {"z": 1}], [{"a": 1, "b": 1}, {"a": 1, "z": 1}]),
    Case(obj(THREE, maxProperties=2, additionalProperties=False), [{"a": 1, "b": 1}, {}], [{"a": 1, "b": 1, "c": 1}]),
    Case(obj(THREE, minProperties=1, maxProperties=1, additionalProperties=False), [{"b": 1}], [{}, {"a": 1, "b": 1}]),
    Case(
        obj(THREE, minProperties=1, maxProperties=2, required=["a"]),
        [{"a": 1}, {"a": 1, "b": 1}],
        [{"a": 1, "b": 1, "c": 1}],
    ),
    Case(obj(THREE, maxProperties=3, additionalProperties=False), [{"a": 1, "b": 1, "c": 1}], [{"z": 1}]),
    Case(obj(THREE, minProperties=1, required=["a"]), [{"a": 1}], [{"b": 1}]),
    Case({"minProperties": 1}, [1, {"a": 1}], [{}]),
    Case(obj(THREE, maxProperties=0), [{}], [{"a": 1}]),
]

ITEMS = [
    Case({"type": "array", "contains": STRING}, [["a"], [1, "a"], [1, 2, "a", 3]], [[], [1]]),
    Case({"type": "array", "items": INTEGER, "contains": {"minimum": 5}}, [[5], [1, 6]], [[1], ["a", 5]]),
    Case({"contains": {"const": 1}}, [[1], "a"], [[2], []]),
    Case({"type": "array", "contains": STRING, "minContains": 0}, [[], [1]], []),
    Case({"type": "array", "contains": STRING, "minContains": 2, "maxItems": 3}, [["a", 1, "b"]], [["a", 1]]),
    Case(
        {"type": "array", "contains": STRING, "maxContains": 1, "maxItems": 3}, [["a", 1], [1, "a"]], [["a", "b"], [1]]
    ),
    Case({"type": "array", "contains": STRING, "maxItems": 1}, [["a"]], [[1], []]),
    Case({"type": "array", "uniqueItems": False}, [[1, 1]], []),
    Case({"type": "array", "uniqueItems": True, "maxItems": 1}, [[], [1]], [[1, 1]]),
    Case(
        {"type": "array", "uniqueItems": True, "items": {"enum": ["a", "b", "c"]}},
        [[], ["c", "a"]],
        [["a", "a"], ["d"]],
    ),
    Case(
        {"type": "array", "uniqueItems": True, "items": {"type": "boolean"}, "minItems": 1},
        [[True], [False, True]],
        [[], [True, True]],
    ),
    Case(
        {"type": "array", "uniqueItems": True, "items": {"enum": [1, 1.0, 2]}, "maxItems": 2}, [[1, 2], [2]], [[1, 1]]
    ),
    Case(
        {"type": "array", "uniqueItems": True, "prefixItems": [STRING, INTEGER], "items": False},
        [["a", 1]],
        [["a", "a"]],
    ),
    Case({"uniqueItems": True, "type": "string"}, ["a"], [[1]]),
    # Too many arrangements: every set in the order of the values, and pairs in any.
    Case(
        {"type": "array", "uniqueItems": True, "items": {"enum": [*"abcdefg"]}, "minItems": 1},
        [["a"], ["b", "a"], ["a", "c", "g"], [*"abcdefg"]],
        [[], ["a", "a"], ["a", "b", "a"], ["h"]],
    ),
    # Names that each need certain values of one property.
    Case(
        obj(
            {"kind": {"enum": ["x", "y", "z"]}, "a": INTEGER, "b": INTEGER, "c": INTEGER, "d": INTEGER},
            dependentSchemas={
                name: {"properties": {"kind": {"enum": values}}}
                for name, values in {"a": ["x"], "b": ["x", "y"], "c": ["y"], "d": ["y", "w"]}.items()
            },
        ),
        [{"kind": "x", "a": 1, "b": 1}, {"kind": "y", "b": 1, "c": 1, "d": 1}, {"kind": "z"}, {"a": 1, "c": 1}, {}],
        [{"kind": "y", "a": 1}, {"kind": "z", "b": 1}, {"kind": "x", "d": 1}, {"kind": "w"}, {"a": "x"}],
    ),
    # Patterns of several parts that match the same names.
    Case(
        {
            "type": "object",
            "allOf": [{"patternProperties": {"3": {"type": "boolean"}}}, {"propertyNames": {"pattern": "^a[0-9]$"}}],
        },
        [{"a3": True, "a4": 1}, {}],
        [{"a3": 1}, {"b3": True}, {"a": 1}],
    ),
    Case(
        {
            "type": "object",
            "allOf": [
                {"$ref": "#/$defs/short"},
                {"patternProperties": {"^a": INTEGER}, "additionalProperties": STRING},
            ],
            "$defs": {
                "short": {"patternProperties": {"^.$": {"minimum": 2}, "^..$": True}, "additionalProperties": False}
            },
        },
        [{"a": 2, "ab": 1, "b": "x", "bc": "x"}],
        [{"a": 1}, {"a": "x"}, {"abc": 1}, {"ab": "x"}, {"bc": 1}],
    ),
    Case(
        {"type": "object", "not": {"propertyNames": {"maxLength": 1}}},
        [{"ab": 1}, {"ab": 1, "abc": 2}],
        [{}, {"a": 1}],
    ),
    Case({"type": "array", "prefixItems": [STRING], "unevaluatedItems": False}, [["a"], []], [["a", 1]]),
    Case({"type": "array", "unevaluatedItems": INTEGER}, [[1, 2]], [["a"]]),
    Case(obj({"a": STRING}, unevaluatedProperties=False), [{"a": "x"}, {}], [{"b": 1}]),
    Case(
        {"allOf": [obj({"a": STRING})], "properties": {"b": INTEGER}, "unevaluatedProperties": False},
        [{"a": "x"}, {"a": "x", "b": 1}],
        [{"c": 1}, {"a": 1}],
    ),
    Case(
        {"$ref": "#/$defs/base", "unevaluatedProperties": INTEGER, "$defs": {"base": obj({"a": STRING})}},
        [{"a": "x", "z": 1}],
        [{"z": "x"}],
    ),
]

COMBINED = [
    Case({"allOf": [STRING, {"minLength": 2}]}, ["ab"], ["a", 1]),
    Case({"allOf": [{"allOf": [{"minimum": 1}]}, {"maximum": 5}], "type": "integer"}, [1, 5], [0, 6]),
    Case(
        {"allOf": [obj({"a": STRING}, required=["a"]), obj({"b": INTEGER}, required=["b"])]},
        [{"a": "x", "b": 1}],
        [{"a": "x"}],
    ),
    Case({"allOf": [obj({"a": STRING}), {"additionalProperties": INTEGER}]}, [{"b": 1}, {}], [{"a": "x"}, {"b": "x"}]),
    Case(
        {"allOf": [{"patternProperties": {"^a": INTEGER}}, {"patternProperties": {"^b": STRING}}]},
        [{"a": 1, "b": "x"}],
        [{"a": "x"}],
    ),
    Case({"allOf": [{"anyOf": [STRING, INTEGER]}, {"anyOf": [INTEGER, {"type": "null"}]}]}, [1], ["a", None]),
    Case({"allOf": [{"enum": [1, 2, "a"]}, {"type": "integer"}, {"minimum": 2}]}, [2], [1, "a"]),
    Case(
        {"anyOf": [STRING, {"type": "array", "items": STRING}], "minLength": 2, "minItems": 1}, ["ab", ["a"]], ["a", []]
    ),
    Case({"anyOf": [False, STRING]}, ["a"], [1]),
    Case({"anyOf": [True, STRING]}, ["a", 1], []),
    Case(obj({"a": {}, "b": {}}, anyOf=A_OR_B), [{"a": 1}, {"a": 1, "b": 2}], [{}, {"c": 1}]),
    Case(
        obj({"a": {}}, additionalProperties=False, anyOf=[{"required": ["a"]}, {"maxProperties": 0}]),
        [{"a": 1}, {}],
        [{"b": 1}],
    ),
    Case({"allOf": [{"multipleOf": 2}, {"multipleOf": 3}], "type": "integer"}, [0, 6, 12], [2, 3]),
    Case({"allOf": [{"not": {"const": "a"}}, {"not": {"const": "b"}}], "type": "string"}, ["c", ""], ["a", "b"]),
]

REFERENCES = [
    Case({"$ref": "#/$defs/a", "$defs": {"a": STRING}}, ["x"], [1]),
    Case({"$ref": "#/definitions/a", "definitions": {"a": {"$ref": "#/definitions/b"}, "b": STRING}}, ["x"], [1]),
    Case({"$defs": {"a": STRING}, "$ref": "#/$defs/a", "minLength": 2}, ["xy"], ["x", 1]),
    Case(
        obj({"a": {"$ref": "#/$defs/n", "maximum": 3}}, **{"$defs": {"n": INTEGER}}), [{"a": 3}], [{"a": 4}, {"a": "x"}]
    ),
    Case({"$ref": "#/$defs/a~1b%25~0", "$defs": {"a/b%~": STRING}}, ["x"], [1]),
    Case({"$ref": "#/elsewhere/0", "elsewhere": [STRING]}, ["x"], [1]),
    Case({"$id": "http://x.y/root", "$ref": "other", "$defs": {"o": {"$id": "other", "type": "string"}}}, ["x"], [1]),
    Case({"$ref": "#name", "$defs": {"o": {"$anchor": "name", "type": "string"}}}, ["x"], [1]),
    Case({"$id": "http://x.y/r", "$ref": "http://x.y/r#/$defs/o", "$defs": {"o": STRING}}, ["x"], [1]),
    Case(
        {
            "$id": "http://x.y/r",
            "$ref": "in",
            "$defs": {"i": {"$id": "in", "$ref": "#/$defs/s", "$defs": {"s": STRING}}},
        },
        ["x"],
        [1],
    ),
    Case(
        {"$schema": DRAFT_4, "id": "http://x.y/r", "$ref": "#n", "definitions": {"n": {"id": "#n", "type": "string"}}},
        ["x"],
        [1],
    ),
    Case(
        {
            "$schema": DRAFT_7,
            "definitions": {"d": {"id": "odd", "$ref": "#/definitions/e"}, "e": STRING},
            "$ref": "#/definitions/d",
        },
        ["x"],
        [1],
    ),
    Case(obj({"child": {"$ref": "#"}, "v": INTEGER}), [{"child": {"child": {"v": 1}}}], [{"child": {"child": 1}}]),
    Case(
        {
            "$ref": "#/$defs/tree",
            "$defs": {"tree": obj({"kids": {"type": "array", "items": {"$ref": "#/$defs/tree"}}})},
        },
        [{"kids": [{"kids": []}, {}]}],
        [{"kids": [1]}],
    ),
    Case(
        {"$ref": "#/$defs/t", "$defs": {"t": obj({"next": {"$ref": "#/$defs/t", "minProperties": 1}, "v": INTEGER})}},
        [{}, {"next": {"v": 1}}, {"next": {"next": {"v": 1}}}],
        [{"next": {}}, {"next": {"next": {}}}],
    ),
    Case(
        {
            "$ref": "#/$defs/t",
            "$defs": {"t": obj({"n": {"allOf": [{"$ref": "#/$defs/t"}, {"required": ["v"]}]}, "v": INTEGER})},
        },
        [{}, {"n": {"v": 1}}, {"n": {"n": {"v": 1}, "v": 2}}],
        [{"n": {}}, {"n": {"n": {}, "v": 1}}],
    ),
    Case(
        obj(
            {"a": {"$ref": "#/$defs/endless"}},
            **{"$defs": {"endless": obj({"x": {"$ref": "#/$defs/endless"}}, required=["x"])}},
        ),
        [{}, {"b": 1}],
        [{"a": {}}, {"a": {"x": {}}}],
    ),
]

REWRITTEN = [
    *ONE_OF,
    *NOT,
    *CONDITIONS,
    *DEPENDENCIES,
    *NAMES,
    *COUNTS,
    *ITEMS,
    *COMBINED,
    *REFERENCES,
    Case({"not": {"type": "object", "additionalProperties": False}}, all_but({"k": 1}), [{}]),
]
