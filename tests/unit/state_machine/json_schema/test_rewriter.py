"""What json_grammar promises beside acceptance: options, refusals, relaxations, limits."""

import json
import random
import time
from typing import Any

import jsonschema
import llguidance
import pytest

from proxy_inference_engine.state_machine.json_schema import JsonGrammar, Spacing, UnenforceableSchema, json_grammar
from tests.unit.state_machine.json_schema.acceptance import accepts, byte_tokenizer, compiled, written
from tests.unit.state_machine.json_schema.cases import INTEGER, STRING, obj
from tests.unit.state_machine.json_schema.walks import is_sound, walk

DRAFT_4 = "http://json-schema.org/draft-04/schema#"


@pytest.fixture(scope="module")
def tokenizer() -> llguidance.LLTokenizer:
    return byte_tokenizer()


def acceptance(grammar: JsonGrammar, tokenizer: llguidance.LLTokenizer, texts: list[str]) -> list[str]:
    matcher, error = compiled(grammar, tokenizer)
    assert matcher is not None, error
    return [text for text in texts if accepts(matcher, tokenizer, text)]


def test_options_are_ours_and_the_text_is_json() -> None:
    grammar = json_grammar({"type": "string"}, spacing=Spacing(", ", ": "))
    head, text = grammar.lark.split(" ", 1)
    assert head == "%json"
    assert json.loads(text) == grammar.schema
    options = grammar.schema["x-guidance"]
    assert options["whitespace_flexible"] is False
    assert (options["item_separator"], options["key_separator"]) == (", ", ": ")
    assert options.keys().isdisjoint({"lenient", "coerce_one_of", "whitespace_pattern"})


@pytest.mark.parametrize("spacing", [Spacing(), Spacing(", ", ": "), Spacing(",", ": ")])
def test_only_its_own_spacing_is_accepted(spacing: Spacing, tokenizer: llguidance.LLTokenizer) -> None:
    grammar = json_grammar({}, spacing=spacing)
    value = {"a": [1, {"b": None}], "c": "x"}
    ours = written(value, spacing)
    others = {written(value, Spacing(*pair)) for pair in ((",", ":"), (", ", ": "), (",", ": "), (" ,", ":"))} - {ours}
    spaced = [ours + " ", " " + ours, ours.replace("{", "{ "), ours.replace("]", "\n]"), ours.replace("[", "[\t")]
    assert acceptance(grammar, tokenizer, [ours, *others, *spaced]) == [ours]


OVER_CONSTRAINT = [
    ({"type": "number"}, ["0", "-0", "1.0", "1e5", "1E+5", "-1.5e-3", "0.5", "123456789012345678901234567890"]),
    ({"type": "integer"}, ["0", "-0", "12", "-7", "123456789012345678901234567890"]),
    ({"type": "string"}, ['""', '"\\n\\t\\r\\b\\f\\"\\\\"', '"é"', '"日本"', '"😀"', '"/"', '"a b"', '"\u2028"']),
    ({"type": "array"}, ["[]", "[[]]", '["",null,true,{}]']),
    ({"type": "object"}, ["{}", '{"":0}', '{"é":{}}', '{"a b":[]}']),
    ({"enum": ["é\n", "", "a/b"]}, ['"é\\n"', '""', '"a/b"']),
    (obj({"b": {}, "a": {}}), ['{"b":1,"a":2}', '{"a":2}', '{"b":1,"z":3}', '{"b":1,"a":2,"z":3,"y":4}']),
    ({"type": "string", "pattern": "^.{2}$"}, ['"éé"', '"😀a"', '"\\"\\\\"']),
    ({"type": "string", "minLength": 1, "maxLength": 2}, ['"é"', '"😀😀"', '"\\n\\n"']),
    ({"allOf": [obj({"b": {}}), obj({"a": {}})], "properties": {"c": {}}}, ['{"b":1,"a":2,"c":3}']),
    (
        obj({"b": {}, "a": {}}, oneOf=[{"required": ["a"]}, {"required": ["b"]}]),
        ['{"b":1}', '{"a":1}', '{"a":1,"z":1}'],
    ),
    (
        obj({"b": {}, "a": {}, "c": {}}, anyOf=[{"required": ["c"]}, {"required": ["a"]}]),
        ['{"b":1,"a":1,"c":1}', '{"a":1}'],
    ),
]


@pytest.mark.parametrize(("schema", "texts"), OVER_CONSTRAINT)
def test_every_way_to_write_a_value_is_accepted(
    schema: Any, texts: list[str], tokenizer: llguidance.LLTokenizer
) -> None:
    assert acceptance(json_grammar(schema), tokenizer, texts) == texts


NARROW = [
    # A named property may not be written with escapes: the library would check it as an unnamed one.
    (obj({"a": INTEGER}), ['{"\\u0061":"x"}', '{"\\u0061":1}']),
    (obj({"a": False}), ['{"\\u0061":1}', '{"\\u0061b":1}']),
    ({"type": "object", "patternProperties": {"^a": INTEGER}}, ['{"\\u0061":"x"}']),
    ({}, ["NaN", "Infinity", "01", "+1", ".5", "1.", "'a'", '"\t"', '"\\x41"', "", "[1,]", '{"a":1,}', "nul"]),
    (obj({"b": {}, "a": {}}, required=["a", "b"]), ['{"b":1}', '{"b":1,"a":2,}', '{"b":1"a":2}']),
]


@pytest.mark.parametrize(("schema", "texts"), NARROW)
def test_what_is_not_accepted(schema: Any, texts: list[str], tokenizer: llguidance.LLTokenizer) -> None:
    assert acceptance(json_grammar(schema), tokenizer, texts) == []


MALFORMED: list[tuple[Any, str, str]] = [
    ("string", "", ""),
    (None, "", ""),
    ({"type": 5}, "/type", "type"),
    ({"type": "text"}, "/type", "type"),
    ({"type": []}, "/type", "type"),
    ({"properties": {"a": {"type": "any"}}}, "/properties/a/type", "type"),
    ({"properties": []}, "/properties", "properties"),
    ({"properties": {"a": 1}}, "/properties", "properties"),
    ({"required": ["a", 1]}, "/required", "required"),
    ({"enum": "a"}, "/enum", "enum"),
    ({"minimum": "1"}, "/minimum", "minimum"),
    ({"minLength": -1}, "/minLength", "minLength"),
    ({"maxItems": 1.5}, "/maxItems", "maxItems"),
    ({"multipleOf": 0}, "/multipleOf", "multipleOf"),
    ({"allOf": {}}, "/allOf", "allOf"),
    ({"anyOf": []}, "/anyOf", "anyOf"),
    ({"oneOf": [1]}, "/oneOf", "oneOf"),
    ({"not": []}, "/not", "not"),
    ({"items": 1}, "/items", "items"),
    ({"additionalProperties": "no"}, "/additionalProperties", "additionalProperties"),
    ({"items": {"pattern": 1}}, "/items/pattern", "pattern"),
    ({"items": {"pattern": "("}}, "/items", "pattern"),
    ({"pattern": "[b-a]"}, "", "pattern"),
    ({"pattern": "*a"}, "", "pattern"),
    ({"patternProperties": {"a)": {}}}, "", "pattern"),
    ({"$ref": "#/$defs/none"}, "/$ref", "$ref"),
    ({"items": {"$ref": "http://example.org/other.json"}}, "/items/$ref", "$ref"),
    ({"$ref": "#/title", "title": "t"}, "/$ref", "$ref"),
    ({"$ref": 1}, "/$ref", "$ref"),
    ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, "", "$ref"),
    ({"x-guidance": {"lenient": True}}, "/x-guidance", "x-guidance"),
    ({"properties": {"a": {"x-guidance": {}}}}, "/properties/a/x-guidance", "x-guidance"),
    ({"$defs": {"unused": {"x-guidance": {}}}}, "/$defs/unused/x-guidance", "x-guidance"),
    ({"$ref": "#/odd/place", "odd": {"place": {"x-guidance": {}}}}, "/odd/place/x-guidance", "x-guidance"),
    ({"const": "\ud800"}, "", ""),
    ({"minimum": float("nan")}, "", ""),
]


@pytest.mark.parametrize("is_strict", [True, False])
@pytest.mark.parametrize(("schema", "path", "keyword"), MALFORMED)
def test_malformed_schemas_are_refused_in_both_modes(schema: Any, path: str, keyword: str, is_strict: bool) -> None:
    with pytest.raises(UnenforceableSchema) as refusal:
        json_grammar(schema, is_strict=is_strict)
    assert (refusal.value.path, refusal.value.keyword) == (path, keyword)
    assert refusal.value.reason.endswith(".")


ENDLESS = {"$ref": "#/$defs/a", "$defs": {"a": obj({"x": {"$ref": "#/$defs/a"}}, required=["x"])}}
IMPOSSIBLE: list[Any] = [
    False,
    {"not": {}},
    {"not": True},
    {"enum": []},
    {"type": "string", "enum": [1, None]},
    {"const": 1, "enum": [2]},
    {"type": "integer", "minimum": 5, "maximum": 3},
    {"type": "integer", "exclusiveMinimum": 3, "exclusiveMaximum": 4},
    {"type": "number", "minimum": 1, "exclusiveMaximum": 1},
    {"type": "string", "minLength": 3, "maxLength": 2},
    {"type": "string", "pattern": "a^b"},
    {"type": "array", "minItems": 3, "maxItems": 2},
    {"type": "array", "minItems": 1, "items": False},
    {"type": "array", "minItems": 2, "prefixItems": [{}, False]},
    obj({"a": False}, required=["a"]),
    obj({}, required=["a"], additionalProperties=False),
    obj({"a": {}}, minProperties=2, additionalProperties=False),
    obj({"a": {}, "b": {}}, required=["a", "b"], maxProperties=1),
    {"allOf": [STRING, INTEGER]},
    {"allOf": [{"$ref": "#/$defs/s"}, INTEGER], "$defs": {"s": STRING}},
    {"anyOf": [False, {"not": {}}]},
    {"oneOf": [False]},
    {"oneOf": [True, True]},
    {"$ref": "#/$defs/none", "$defs": {"none": False}},
    ENDLESS,
    {"type": "array", "minItems": 1, "items": {"$ref": "#"}},
    {"type": "string", "not": STRING},
]


@pytest.mark.parametrize("is_strict", [True, False])
@pytest.mark.parametrize("schema", IMPOSSIBLE)
def test_impossible_schemas_are_refused_in_both_modes(schema: Any, is_strict: bool) -> None:
    with pytest.raises(UnenforceableSchema, match="No value satisfies"):
        json_grammar(schema, is_strict=is_strict)


# What cannot be enforced: where, which keyword, and texts that the relaxed grammar takes and refuses.
UNENFORCEABLE: list[tuple[Any, str, str, list[str], list[str]]] = [
    ({"type": "array", "items": STRING, "uniqueItems": True}, "", "uniqueItems", ['["a","a"]'], ["[1]"]),
    (obj({"t": {"type": "array", "uniqueItems": True}}), "/properties/t", "uniqueItems", ['{"t":[1,1]}'], ['{"t":1}']),
    ({"type": "integer", "not": {"multipleOf": 3}, "minimum": 5}, "", "not", ["6", "7"], ["4", '"a"']),
    ({"type": "string", "not": {"format": "email"}, "maxLength": 3}, "", "not", ['"abc"'], ['"abcd"']),
    ({"oneOf": [{"type": "number"}, INTEGER, STRING]}, "", "oneOf", ["1", '"a"'], ["null"]),
    ({"oneOf": [{"multipleOf": 2}, {"multipleOf": 3}], "type": "integer"}, "", "oneOf", ["2", "6"], ["5", '"a"']),
    ({"if": {"multipleOf": 2}, "then": {"minimum": 5}, "type": "integer"}, "", "if", ["1"], ['"a"']),
    ({"type": "string", "pattern": r"^(a)\1$", "minLength": 1}, "", "pattern", ['"b"'], ['""']),
    ({"type": "string", "pattern": "(?<!a)b"}, "", "pattern", ['"ab"'], ["1"]),
    ({"type": "integer", "minimum": 10**30, "maximum": 10**31}, "", "minimum", ["5"], ['"a"']),
    ({"const": 10**30}, "", "const", ["1"], []),
    ({"const": "a\x01"}, "", "const", ['"b"'], []),
    ({"type": "object", "minProperties": 2}, "", "minProperties", ['{"a":1,"b":1}'], ['{"a":1}', "1"]),
    ({"$recursiveRef": "#", "type": "string"}, "", "$recursiveRef", ['"a"'], ["1"]),
    (obj({f"p{i}": {} for i in range(30)}, minProperties=4), "", "minProperties", ["{}"], ["1"]),
    ({"type": "array", "contains": {"multipleOf": 7}, "maxContains": 5}, "", "contains", ["[]"], ["1"]),
    (
        {"type": "array", "anyOf": [{"contains": {"const": n}} for n in range(30)], "unevaluatedItems": False},
        "",
        "unevaluatedItems",
        ["[3,null]"],
        ["[30]"],
    ),
    (
        obj({}, anyOf=[obj({f"p{n}": {}}) for n in range(30)], unevaluatedProperties=False),
        "",
        "unevaluatedProperties",
        ["{}"],
        ["1"],
    ),
    ({"type": "object", "propertyNames": {"format": "email"}}, "", "propertyNames", ['{"a":1}'], ["1"]),
    (
        obj({"a": {}}, dependentRequired={f"n{i}": [f"m{i}"] for i in range(14)}),
        "",
        "dependentRequired",
        ['{"a":1}'],
        ["1"],
    ),
]


@pytest.mark.parametrize(("schema", "path", "keyword", "taken", "refused"), UNENFORCEABLE)
def test_unenforceable_keywords(
    schema: Any, path: str, keyword: str, taken: list[str], refused: list[str], tokenizer: llguidance.LLTokenizer
) -> None:
    with pytest.raises(UnenforceableSchema) as refusal:
        json_grammar(schema)
    assert (refusal.value.path, refusal.value.keyword) == (f"{path}/{keyword}", keyword)
    relaxed = json_grammar(schema, is_strict=False)
    assert f"{path}:{keyword}" in relaxed.relaxed
    assert acceptance(relaxed, tokenizer, [*taken, *refused]) == taken


def test_relaxing_one_keyword_leaves_its_neighbours() -> None:
    schema = obj({"a": {"type": "array", "uniqueItems": True, "items": INTEGER}, "b": {"const": 1}}, required=["a"])
    relaxed = json_grammar(schema, is_strict=False)
    enforced = json_grammar({**schema, "properties": {"a": {"type": "array", "items": INTEGER}, "b": {"const": 1}}})
    assert relaxed.schema == enforced.schema
    assert relaxed.relaxed == ("/properties/a:uniqueItems",)


def test_output_is_deterministic_and_input_untouched() -> None:
    schema = obj({"a": {"not": {"enum": ["x", "y"]}}, "b": {}}, oneOf=[{"required": ["a"]}, {"required": ["b"]}])
    before = json.dumps(schema)
    assert json_grammar(schema).lark == json_grammar(json.loads(before)).lark
    assert json.dumps(schema) == before


def chained(num_definitions: int) -> dict[str, Any]:
    """Definitions each of which needs the next."""
    chain = {f"d{i}": obj({"x": {"$ref": f"#/$defs/d{i + 1}"}}) for i in range(num_definitions)}
    return {"$ref": "#/$defs/d0", "$defs": {**chain, f"d{num_definitions}": {}}}


def nested(keyword: str, depth: int) -> Any:
    schema: Any = {"type": "string"}
    for _ in range(depth):
        schema = {keyword: [schema] if keyword.endswith("Of") else schema}
    return schema


def deep_constant(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


WORDS = [f"word{i}" for i in range(20_000)]
HOSTILE: list[Any] = [
    nested("items", 400),
    nested("not", 400),
    nested("allOf", 400),
    chained(3_000),
    {"const": deep_constant(600)},
    {"enum": [1, deep_constant(900)], "type": "array"},
    {"oneOf": [obj({f"a{i}": STRING}) for i in range(1_500)]},
    {"oneOf": [{"const": i} for i in range(3_000)]},
    {"type": "object", "oneOf": [{"required": [f"k{i}"]} for i in range(200)]},
    {"enum": WORDS},
    {"type": "string", "not": {"enum": WORDS}},
    {"oneOf": [{"enum": WORDS[::2]}, {"enum": WORDS[1::2]}]},
    obj({}, dependentRequired={f"a{i}": [f"b{i}"] for i in range(500)}),
    {"oneOf": [{"type": "string", "pattern": f"^(a|b)*a(a|b){{{i}}}$"} for i in range(60)]},
    {"type": "object", "patternProperties": {f"^(a|b)*a(a|b){{{i}}}": {} for i in range(60)}},
    {"type": "string", "not": {"pattern": "((a{99}){99}){99}"}},
    {"type": "string", "pattern": "^(?!(a|b)*a(a|b){20}$)"},
    {"type": "string", "pattern": "(" * 1_000 + "a" + ")" * 1_000},
    {"allOf": [{"contains": {"contains": {"const": i}}} for i in range(50)]},
    {"type": "array", "uniqueItems": True, "items": {"enum": list(range(2_000))}},
    obj({f"p{i}": {} for i in range(200)}, minProperties=3, maxProperties=9),
    {
        "$ref": "#/$defs/d0",
        "$defs": {f"d{i}": {"oneOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(40)} | {"d40": STRING},
    },
    {"allOf": [{"if": {"properties": {f"a{i}": {"const": 1}}}, "then": {"required": ["b"]}} for i in range(300)]},
    {"$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}, STRING]}}, "$ref": "#/$defs/a"},
    {"$defs": {"a": {"not": {"$ref": "#/$defs/a"}}}, "$ref": "#/$defs/a"},
]


@pytest.mark.parametrize("schema", HOSTILE, ids=[str(index) for index in range(len(HOSTILE))])
def test_hostile_schemas_end_soon(schema: Any) -> None:
    for is_strict in (True, False):
        start = time.process_time()
        try:
            json_grammar(schema, is_strict=is_strict)
        except UnenforceableSchema as refusal:
            assert refusal.reason
        assert time.process_time() - start < 25


def test_nesting_of_references_is_bounded(tokenizer: llguidance.LLTokenizer) -> None:
    # The library follows references by recursion; too long a chain would end the process.
    assert compiled(json_grammar(chained(200)), tokenizer).error == ""
    with pytest.raises(UnenforceableSchema, match="lead too deep"):
        json_grammar(chained(1_000))


_TWO = {"a": INTEGER, "b": INTEGER}


@pytest.mark.parametrize(
    "schema",
    [
        obj(_TWO, propertyNames={"enum": ["a", "b"]}),
        obj({"a": INTEGER}, propertyNames={"enum": ["a", "b"]}, required=["b"]),
        obj(_TWO, propertyNames={"pattern": "^[ab]$"}),
        obj(_TWO, patternProperties={"^[ab]$": {"minimum": 0}}, additionalProperties=False),
        {"allOf": [obj(_TWO), {"patternProperties": {"^[ab]$": {}}, "additionalProperties": False}]},
        obj({}, patternProperties={"^[ab]$": INTEGER}, additionalProperties=False, required=["a", "b"]),
    ],
)
def test_a_pattern_whose_names_are_all_listed_does_not_run_out(schema: Any, tokenizer: llguidance.LLTokenizer) -> None:
    """The library failed at the comma, where it had no name left for the pattern."""
    matcher = compiled(json_grammar(schema), tokenizer).matcher
    assert matcher is not None
    for seed in range(60):
        text = walk(matcher, random.Random(seed))
        assert not matcher.is_error(), (text, matcher.get_error())
        assert text is None or is_sound(text, jsonschema.Draft202012Validator(schema))
