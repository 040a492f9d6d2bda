"""Keywords about one kind of value each: types, values, numbers, strings, arrays, objects."""

from tests.unit.state_machine.json_schema.cases import INTEGER, ONE_OF_EACH, STRING, Case, all_but, obj

TYPES = [
    Case({}, ONE_OF_EACH, []),
    Case({"type": "null"}, [None], all_but(None)),
    Case({"type": "boolean"}, [True, False], all_but(True)),
    Case({"type": "integer"}, [0, -1, 12345678901234], [1.5, "1", None]),
    Case({"type": "number"}, [0, -1.5, 1e5, 2.5e-7], ["1", None, True]),
    Case({"type": "string"}, ["", "é", "日本語", "😀", 'a"b\\c\n\t'], [1, None, ["a"]]),
    Case({"type": "array"}, [[], [1, [2, {}]]], [{}, "[]"]),
    Case({"type": "object"}, [{}, {"a": {"b": [1]}}], [[], "{}"]),
    Case({"type": ["string", "null"]}, ["a", None], [1, [], {}]),
    Case({"type": ["integer", "number"]}, [1, 1.5], ["a"]),
    Case({"type": ["object", "array"], "minItems": 1, "required": ["a"]}, [[1], {"a": 1}], [[], {}]),
    Case(
        {"title": "t", "description": "d", "default": 1, "examples": [2], "$comment": "c", "type": "string"}, ["a"], [1]
    ),
    Case({"unknown": {"not": {}}, "type": "string"}, ["a"], [None]),
]

VALUES = [
    Case({"const": "a"}, ["a"], ["b", "", None]),
    Case({"const": 1}, [1], [2, True, "1"]),
    Case({"const": True}, [True], [False, 1]),
    Case({"const": None}, [None], [0, False]),
    Case({"const": [1, {"a": None}]}, [[1, {"a": None}]], [[1], [1, {}], []]),
    Case({"const": {"a": [1], "b": "é\n"}}, [{"a": [1], "b": "é\n"}], [{"a": [1]}, {}]),
    Case({"enum": ["a", 1, None, False]}, ["a", 1, None, False], ["b", 0, True]),
    Case({"enum": ["a", 1, 2.5], "type": "string"}, ["a"], [1, 2.5]),
    Case({"enum": [1, 2.5, 3], "type": "integer"}, [1, 3], [2.5, 2]),
    Case({"enum": ["a", "abc", "b"], "minLength": 2}, ["abc"], ["a", "b"]),
    Case({"enum": [1, 5, 9], "minimum": 4, "maximum": 8}, [5], [1, 9]),
    Case({"enum": ["ax", "b"], "pattern": "^a"}, ["ax"], ["b"]),
    Case({"const": 3, "enum": [3, 4]}, [3], [4]),
    Case({"enum": [[1], [1, 2], []], "minItems": 1}, [[1], [1, 2]], [[]]),
    Case({"enum": [{"a": 1}, {"b": 1}], "required": ["a"]}, [{"a": 1}], [{"b": 1}]),
    Case({"enum": ["", " ", '"', "\\", "/", "ü"]}, ["", " ", '"', "\\", "/", "ü"], ["  "]),
]

NUMBERS = [
    Case({"type": "integer", "minimum": 3}, [3, 100], [2, -3]),
    Case({"type": "integer", "maximum": -3}, [-3, -100], [-2, 0]),
    Case({"type": "integer", "minimum": -2, "maximum": 2}, [-2, 0, 2], [-3, 3]),
    Case({"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 10}, [1, 9], [0, 10]),
    Case({"type": "number", "exclusiveMinimum": 0}, [0.5, 0.001, 7], [0, -1]),
    Case({"type": "number", "minimum": 0.5, "maximum": 1.5}, [0.5, 1, 1.5], [0.4, 1.6, 2]),
    Case({"type": "number", "exclusiveMaximum": 2.5}, [2.4, -100], [2.5, 3]),
    Case({"minimum": 10}, [10, "a", None, [], {}], [9]),
    Case({"type": "integer", "multipleOf": 5}, [0, 5, -10], [1, 7]),
    Case({"type": "number", "multipleOf": 0.5}, [0.5, 2, -1.5], [0.3]),
    Case(
        {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1}, [0, -(10**18), 10**18], [2**63, -(2**64), 1.5]
    ),
    Case({"type": "integer", "multipleOf": 4, "minimum": 5, "maximum": 9}, [8], [4, 6, 12]),
    Case({"type": "integer", "minimum": 1.5, "maximum": 3.5}, [2, 3], [1, 4]),
    Case({"type": "integer", "maximum": 9223372036854775807}, [9223372036854775807, 0], [9223372036854775808]),
    Case({"type": "integer", "maximum": 18446744073709551615}, [5], [18446744073709551616]),
    Case({"type": "number", "minimum": -9223372036854775808}, [-5.5], [-1e30]),
    Case({"type": "integer", "minimum": 9007199254740993}, [9007199254740996], [9007199254740992]),
]

# Draft 4 wrote open bounds as booleans.
DRAFT_4 = "http://json-schema.org/draft-04/schema#"
OLD_NUMBERS = [
    Case({"$schema": DRAFT_4, "type": "integer", "minimum": 0, "exclusiveMinimum": True}, [1], [0]),
    Case({"$schema": DRAFT_4, "type": "integer", "maximum": 5, "exclusiveMaximum": True}, [4], [5]),
    Case({"$schema": DRAFT_4, "type": "number", "minimum": 0, "exclusiveMinimum": False}, [0, 0.5], [-1]),
    Case({"$schema": DRAFT_4, "not": {"minimum": 3, "exclusiveMinimum": True}}, [3, 2], [4]),
]

STRINGS = [
    Case({"type": "string", "minLength": 2}, ["ab", "éé", "😀😀"], ["", "a", "😀"]),
    Case({"type": "string", "maxLength": 2}, ["", "ab", "日本"], ["abc"]),
    Case({"type": "string", "minLength": 1, "maxLength": 1}, ["a", "\n", '"'], ["", "ab"]),
    Case({"minLength": 2.0}, ["ab", 1], ["a"]),
    Case({"type": "string", "pattern": "b"}, ["abc", "b"], ["ac", ""]),
    Case({"type": "string", "pattern": "^a+$"}, ["a", "aaa"], ["", "ab"]),
    Case({"type": "string", "pattern": r"^\d{3}-\w+$"}, ["123-a_b"], ["12-a", "123-"]),
    Case({"type": "string", "pattern": r"^[^/]+/[a-z.]*$"}, ["é/x.y"], ["/x", "a/B"]),
    Case({"type": "string", "pattern": "^(foo|bar)$", "maxLength": 3}, ["foo"], ["baz", "foobar"]),
    Case({"type": "string", "pattern": "^(?!ab)[a-z]+$"}, ["a", "ba", "aab"], ["ab", "abc", ""]),
    Case({"type": "string", "pattern": "^(?=.*[0-9])[a-z0-9]{2,4}$"}, ["a1", "1a2b"], ["ab", "1"]),
    Case({"type": "string", "pattern": "^(?!.*(x|y))[a-z]*$"}, ["", "abc"], ["axb", "y"]),
    Case({"type": "string", "pattern": "^a|b$"}, ["ax", "xb"], ["xax", ""]),
    Case({"type": "string", "pattern": "(^|,)a(,|$)"}, ["a", "b,a", "a,b"], ["ba", "ab"]),
    Case({"type": "string", "pattern": ""}, ["", "a"], [1]),
    Case({"pattern": "^a"}, ["a", 1, None], ["b"]),
    Case({"type": "string", "format": "date"}, ["2024-02-29", "2023-12-31"], []),
    Case({"type": "string", "format": "date-time"}, ["2024-01-01T12:00:00Z"], []),
    Case({"type": "string", "format": "my-own-format"}, ["anything"], [1]),
    Case({"type": "string", "format": "uri-reference"}, ["/a/b?c"], [1]),
    Case({"type": "integer", "format": "int32"}, [5], ["5"]),
]

# Only the grammar is asked: formats are annotations for the validator, and it warns of such character classes.
GRAMMAR_ONLY = [
    # White space as ECMA-262 has it.
    Case({"type": "string", "pattern": r"^\S$"}, ["a", "\x85"], [" ", "\ufeff"]),
    Case({"type": "string", "pattern": r"^[\sx]$"}, ["x", " ", "\ufeff"], ["\x85", "y"]),
    Case({"type": "string", "pattern": r"^[^\S]$"}, [" ", "\ufeff"], ["\x85", "y"]),
    Case({"type": "string", "pattern": "^[[&&]+$"}, ["[", "&[&"], ["a", ""]),
    Case({"type": "string", "pattern": "^[~~|]$"}, ["~", "|"], ["a"]),
    Case({"type": "string", "format": "date"}, ["2024-02-29"], ["2024-13-01", "24-1-1", "", "2024-04-31"]),
    Case({"type": "string", "format": "time"}, ["23:59:59Z", "10:00:00.5+02:00"], ["25:00:00Z", "10:00"]),
    Case({"type": "string", "format": "date-time"}, ["2024-01-01T00:00:00Z"], ["2024-01-01", "2024-01-01 00:00:00"]),
    Case({"type": "string", "format": "duration"}, ["P1D", "PT5M"], ["1D", "P"]),
    Case({"type": "string", "format": "email"}, ["a@b.co"], ["a", "a@", "@b"]),
    Case({"type": "string", "format": "hostname"}, ["example.org"], ["-a", "a b"]),
    Case({"type": "string", "format": "ipv4"}, ["127.0.0.1"], ["256.0.0.1", "1.2.3"]),
    Case({"type": "string", "format": "ipv6"}, ["::1", "fe80::1:2"], ["1:2", "g::"]),
    Case({"type": "string", "format": "uuid"}, ["123e4567-e89b-12d3-a456-426614174000"], ["123e4567"]),
    Case({"type": "string", "format": "uri"}, ["https://a.b/c?d#e"], ["/a/b", "a b"]),
    Case({"type": "string", "format": "date", "pattern": "^2024"}, ["2024-05-06"], ["2023-05-06", "2024"]),
]

ARRAYS = [
    Case({"type": "array", "items": INTEGER}, [[], [1, 2]], [["a"], [1, None]]),
    Case({"type": "array", "minItems": 2}, [[1, 2], [1, 2, 3]], [[], [1]]),
    Case({"type": "array", "maxItems": 2, "items": STRING}, [[], ["a", "b"]], [["a", "b", "c"]]),
    Case({"type": "array", "items": False}, [[]], [[1]]),
    Case({"type": "array", "prefixItems": [STRING, INTEGER]}, [[], ["a"], ["a", 1], ["a", 1, None]], [[1], ["a", "b"]]),
    Case({"type": "array", "prefixItems": [STRING], "items": INTEGER}, [["a", 1, 2]], [["a", "b"], [1]]),
    Case({"type": "array", "prefixItems": [STRING], "items": False}, [[], ["a"]], [["a", 1]]),
    Case({"type": "array", "prefixItems": [STRING, False]}, [["a"]], [["a", 1]]),
    Case({"type": "array", "prefixItems": [STRING], "minItems": 2, "maxItems": 2}, [["a", None]], [["a"], ["a", 1, 2]]),
    Case({"items": INTEGER}, ["a", None, [1]], [["a"]]),
    Case(
        {"type": "array", "items": {"type": "array", "items": INTEGER, "minItems": 1}}, [[], [[1], [2, 3]]], [[[]], [1]]
    ),
]
DRAFT_7 = "http://json-schema.org/draft-07/schema#"
OLD_ARRAYS = [
    Case({"$schema": DRAFT_7, "items": [STRING, INTEGER]}, [["a", 1, None]], [[1], ["a", "b"]]),
    Case({"$schema": DRAFT_7, "items": [STRING], "additionalItems": False}, [["a"], []], [["a", 1]]),
    Case({"$schema": DRAFT_7, "items": [STRING], "additionalItems": INTEGER}, [["a", 1]], [["a", "b"]]),
    Case({"$schema": DRAFT_7, "items": STRING, "additionalItems": False}, [["a", "b"]], [[1]]),
    Case({"$schema": DRAFT_7, "prefixItems": [INTEGER], "items": STRING}, [["a"]], [[1]]),
    Case({"$schema": DRAFT_7, "additionalItems": False}, [[1, 2]], []),
]

OBJECTS = [
    Case(obj({"a": STRING, "b": INTEGER}), [{}, {"a": "x"}, {"a": "x", "b": 1}, {"c": 1}], [{"a": 1}, {"b": "x"}]),
    Case(obj({"a": STRING}, required=["a"]), [{"a": "x"}, {"a": "x", "z": 1}], [{}, {"z": 1}]),
    Case(obj({"a": STRING}, required=["b"]), [{"b": 1}, {"a": "x", "b": 1}], [{"a": "x"}]),
    Case(obj({"a": STRING}, additionalProperties=False), [{}, {"a": "x"}], [{"b": 1}]),
    Case(obj({"a": STRING}, additionalProperties=INTEGER), [{"a": "x", "b": 1}], [{"b": "x"}, {"a": 1}]),
    Case(obj({"a": False}), [{}, {"b": 1}], [{"a": 1}]),
    Case({"type": "object", "additionalProperties": STRING}, [{}, {"a": "x", "b": "y"}], [{"a": 1}]),
    Case({"properties": {"a": STRING}}, [1, "a", None, {"a": "x"}], [{"a": 1}]),
    Case(obj({'é\n"': INTEGER}, required=['é\n"']), [{'é\n"': 1}], [{'é\n"': "x"}, {}]),
    Case(obj({"x-guidance": INTEGER}), [{"x-guidance": 1}], [{"x-guidance": "a"}]),
    Case(obj({"$ref": STRING, "type": INTEGER, "not": {}}), [{"$ref": "a", "type": 1}], [{"$ref": 1}]),
    Case(obj({"": INTEGER}, additionalProperties=False), [{"": 1}, {}], [{"a": 1}]),
    Case(
        obj({"a": obj({"b": obj({"c": INTEGER}, required=["c"])}, required=["b"])}, required=["a"]),
        [{"a": {"b": {"c": 1}}}],
        [{"a": {"b": {}}}, {"a": {}}],
    ),
    Case(
        {"type": "object", "patternProperties": {"^n": INTEGER}},
        [{"n1": 1, "x": "a"}, {}],
        [{"n": "a"}],
    ),
    Case(
        {"type": "object", "patternProperties": {"^n": INTEGER}, "additionalProperties": False},
        [{"n1": 1}, {}],
        [{"n": "a"}, {"x": 1}],
    ),
    Case(
        obj({"n1": {"minimum": 5}}, patternProperties={"^n": INTEGER}),
        [{"n1": 5, "n2": 1}],
        [{"n1": 4}, {"n1": "a"}, {"n2": "a"}],
    ),
    Case(
        {"type": "object", "patternProperties": {"^a": STRING, "^b": INTEGER}, "additionalProperties": False},
        [{"a": "x", "b": 1}],
        [{"a": 1}, {"b": "x"}, {"c": 1}],
    ),
]

PLAIN = [*TYPES, *VALUES, *NUMBERS, *OLD_NUMBERS, *STRINGS, *ARRAYS, *OLD_ARRAYS, *OBJECTS]
