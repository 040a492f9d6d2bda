"""Properties in other orders than the schema's own: all where they are few, otherwise that of what is required."""

import json
from itertools import permutations
from typing import Any

import jsonschema
import llguidance
import pytest

from proxy_inference_engine.state_machine.compiler import is_harmless
from proxy_inference_engine.state_machine.json_schema import closed_grammar, json_grammar, open_grammar
from proxy_inference_engine.state_machine.json_schema.orders import MAX_ORDERS, MAX_PERMUTED, in_any_order
from tests.unit.state_machine.json_schema.acceptance import (
    accepts,
    byte_tokenizer,
    compiled,
    is_watched_through,
    written,
)
from tests.unit.state_machine.json_schema.cases import INTEGER, STRING, Case, obj
from tests.unit.state_machine.json_schema.test_cases import CASES, name_of

FEW = obj({name: INTEGER for name in "abc"}, required=["a"], additionalProperties=False)
MANY = obj({name: INTEGER for name in "abcdef"}, required=["f", "b"], additionalProperties=False)


@pytest.fixture(scope="module")
def tokenizer() -> llguidance.LLTokenizer:
    return byte_tokenizer()


def taken(
    schema: Any, instances: list[Any], tokenizer: llguidance.LLTokenizer, *, is_watched: bool = False
) -> list[Any]:
    grammar = open_grammar(schema, is_watched=is_watched)
    matcher, error = compiled(grammar, tokenizer)
    assert matcher is not None, error
    texts = [(one, written(one)) for one in instances]
    return [one for one, text in texts if accepts(matcher, tokenizer, text) and is_watched_through(grammar, text)]


def test_few_properties_come_in_any_order(tokenizer: llguidance.LLTokenizer) -> None:
    assert len(FEW["properties"]) <= MAX_PERMUTED
    orders = [dict.fromkeys(order, 1) for length in (1, 2, 3) for order in permutations("abc", length)]
    assert taken(FEW, orders, tokenizer) == [one for one in orders if "a" in one]


def test_many_properties_come_in_the_order_of_the_schema_or_of_required(tokenizer: llguidance.LLTokenizer) -> None:
    orders = [dict.fromkeys(order, 1) for order in ("abcdef", "fbacde", "bf", "fb", "fbc", "edcfb")]
    assert taken(MANY, orders, tokenizer) == orders[:-1]


@pytest.mark.parametrize(
    "schema",
    [
        {"allOf": [obj({"a": STRING}, required=["a"]), obj({"b": INTEGER})]},
        obj({"a": STRING, "b": INTEGER}, anyOf=[{"required": ["a"]}, {"required": ["b"]}]),
        {"properties": {"a": STRING, "b": INTEGER}},
        {"type": "array", "contains": obj({"a": STRING, "b": INTEGER}, required=["b"])},
    ],
    ids=json.dumps,
)
def test_parts_together_and_objects_inside(schema: Any, tokenizer: llguidance.LLTokenizer) -> None:
    validator = jsonschema.Draft202012Validator(schema)
    objects = [{"a": "x", "b": 1}, {"b": 1, "a": "x"}, {"b": "x", "a": "x"}, {"b": 1, "a": 1}, {"b": 1}, {"a": "x"}]
    instances = [one for each in objects for one in (each, [each])] + ["text"]
    assert taken(schema, instances, tokenizer) == [one for one in instances if validator.is_valid(one)]


@pytest.mark.parametrize("case", CASES[::3], ids=name_of)
def test_nothing_else_is_taken(case: Case, tokenizer: llguidance.LLTokenizer) -> None:
    assert taken(case.schema, [*case.valid, *case.invalid], tokenizer) == case.valid


@pytest.mark.parametrize("case", CASES[1::3], ids=name_of)
def test_nothing_else_is_taken_beside_a_watch(case: Case, tokenizer: llguidance.LLTokenizer) -> None:
    assert taken(case.schema, [*case.valid, *case.invalid], tokenizer, is_watched=True) == case.valid


LOOSE = obj({name: INTEGER for name in "abcdef"} | {"no": False}, required=["f", "b"])
PARTED = {"allOf": [obj({name: INTEGER for name in "abc"}), obj({"d": STRING, "e": {"minimum": 5}}, required=["e"])]}


def test_beside_a_watch_properties_come_in_any_order(tokenizer: llguidance.LLTokenizer) -> None:
    orders = [dict.fromkeys(order, 1) for order in ("abcdef", "fbzeca", "bfca", "fzb", "fb", "zaebf")]
    invalid: list[Any] = [{"f": 1}, {"f": 1, "b": 1, "no": 1}, {"f": 1, "b": 1, "c": "x"}, {"b": "x", "f": 1}, {}]
    assert taken(LOOSE, [*orders, *invalid], tokenizer, is_watched=True) == orders
    assert taken(LOOSE, orders, tokenizer) == [orders[0], orders[4]]
    free = {**LOOSE, "required": []}
    assert taken(free, [*orders, {"no": 1}, {"a": ""}], tokenizer, is_watched=True) == orders
    typed = {**LOOSE, "additionalProperties": STRING, "required": ["f", "other"]}
    assert taken(
        typed, [{"other": "", "z": "", "f": 1}, {"other": 1, "f": 1}, {"f": 1}], tokenizer, is_watched=True
    ) == [{"other": "", "z": "", "f": 1}]


def test_closed_objects_too(tokenizer: llguidance.LLTokenizer) -> None:
    orders = [dict.fromkeys(order, 1) for order in ("abcdef", "fbeca", "bf", "ecabf")]
    invalid: list[Any] = [{"f": 1}, {"f": 1, "b": 1, "z": 1}, {"a": 1, "b": 1}, {}, {"b": "", "f": 1}]
    assert taken(MANY, [*orders, *invalid], tokenizer, is_watched=True) == orders


CLOSED = {"additionalProperties": False}
TELLING = obj(
    {"kind": {"const": 1}, **{name: INTEGER for name in "abcd"}}, required=["kind"], additionalProperties=False
)


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param({"anyOf": [TELLING, obj({"kind": {"const": 2}}, required=["kind", "a"])]}, id="which one"),
        pytest.param(obj({name: INTEGER for name in "abcd"}, required=["a"], maxProperties=3), id="counted"),
        pytest.param({"allOf": [TELLING, obj({"kind": True, "a": True, "b": True}) | CLOSED]}, id="both closed"),
        pytest.param(
            obj({**{name: INTEGER for name in "abc"}, "d": {"allOf": [STRING, INTEGER]}}, required=["a"])
            | {"additionalProperties": False},
            id="perhaps impossible",
        ),
    ],
)
def test_where_a_watch_cannot_know_the_grammar_says_it(schema: Any, tokenizer: llguidance.LLTokenizer) -> None:
    grammar = open_grammar(schema, is_watched=True)
    assert grammar.shape is None
    validator = jsonschema.Draft202012Validator(schema)
    kinds: list[dict[str, Any]] = [{}, {"kind": 1}, {"kind": 2}]
    values = [{**kind, **dict.fromkeys(names, 1)} for kind in kinds for names in ("", "a", "b", "ab", "abc", "abcd")]
    assert all(validator.is_valid(one) for one in taken(schema, values, tokenizer, is_watched=True))


def test_what_one_part_alone_speaks_of_comes_in_any_order(tokenizer: llguidance.LLTokenizer) -> None:
    named = obj({name: INTEGER for name in "abcdefg"}, required=["c", "d"]) | CLOSED
    schema = {**named, "anyOf": [{"required": ["a"]}, {"properties": {"b": False}}]}
    valid: list[Any] = [dict.fromkeys(names, 1) for names in ("ecd", "dc", "aedc", "abgecd", "agdc")]
    invalid: list[Any] = [dict.fromkeys(names, 1) for names in ("bdc", "ad", "e", "adcz")]
    assert taken(schema, [*valid, *invalid], tokenizer, is_watched=True) == valid


def test_patterns_stay_beside_names_that_have_none_of_them(tokenizer: llguidance.LLTokenizer) -> None:
    names = obj({name: INTEGER for name in "abcd"}, required=["a", "d"], patternProperties={"^x-": STRING})
    valid: list[Any] = [{"d": 1, "x-b": "", "a": 1}, {"x-a": "", "d": 1, "x-b": "", "a": 1, "x-c": "", "b": 2}]
    invalid: list[Any] = [{"d": 1, "x-b": 1, "a": 1}, {"d": 1, "x-": ""}, {"d": 1, "a": 1, "x": 1}]
    schema = {**names, **CLOSED}
    assert taken(schema, [*valid, *invalid], tokenizer, is_watched=True) == valid
    assert taken(names, [*valid, *invalid], tokenizer, is_watched=True) == [*valid, invalid[-1]]


def test_many_names_of_equal_schemas_share_a_pattern(tokenizer: llguidance.LLTokenizer) -> None:
    names = [f"option{index}" for index in range(120)]
    schema = obj({name: INTEGER for name in names}, required=names[:2]) | CLOSED
    turned = dict.fromkeys(reversed(names), 1)
    assert taken(schema, [turned, {names[0]: 1}], tokenizer, is_watched=True) == [turned]


def test_parts_together_come_in_any_order_beside_a_watch(tokenizer: llguidance.LLTokenizer) -> None:
    valid: list[Any] = [{"e": 5, "c": 1, "z": 1, "a": 1}, {"a": 1, "c": 1, "d": "", "e": 5}, {"e": 7}]
    invalid: list[Any] = [{"a": 1}, {"e": 4}, {"e": 5, "c": ""}, {"e": 5, "d": 1}]
    assert taken(PARTED, [*valid, *invalid], tokenizer, is_watched=True) == valid


def test_what_is_large_stands_once_in_freed_objects_too() -> None:
    deep: Any = obj({name: INTEGER for name in "abcd"}, required=["a"])
    for _ in range(12):
        deep = obj({"x": deep, **{name: INTEGER for name in "abc"}}, required=["x"])
    grown = in_any_order(deep, is_watched=True)
    assert grown != deep and len(json.dumps(grown)) < 6 * len(json.dumps(deep))


def test_freed_properties_need_no_sandbox() -> None:
    assert is_harmless("start: " + open_grammar(LOOSE, is_watched=True).lark)
    assert not is_harmless("start: " + open_grammar({**LOOSE, "patternProperties": {"^a+$": {}}}).lark)


def test_closed_objects_keep_the_order_of_the_schema() -> None:
    assert closed_grammar(FEW) == json_grammar(FEW)
    assert open_grammar(FEW) != json_grammar(FEW)


def test_what_holds_together_with_others_by_reference_has_no_orders_of_its_own() -> None:
    """They would multiply: each part would bring its alternatives into one and the same object."""
    parts = {f"d{index}": obj({f"{name}{index}": INTEGER for name in "abc"}) for index in range(9)}
    rewritten = {"allOf": [{"$ref": f"#/$defs/{name}"} for name in parts], "$defs": parts}
    assert in_any_order(rewritten) == rewritten


def test_a_document_gets_only_so_many_orders() -> None:
    wide = obj({f"p{index}": FEW for index in range(200)})
    assert json.dumps(in_any_order(wide)).count('"required"') <= MAX_ORDERS + 200
    deep: Any = FEW
    for _ in range(30):
        deep = obj({"x": deep, "y": deep, "z": INTEGER})
    assert in_any_order(deep) == deep, "what would take too many steps stays as it is"


def test_what_may_be_empty_may_come_last(tokenizer: llguidance.LLTokenizer) -> None:
    """Of a property that several parts speak of it was not certain that any value satisfies them all."""
    tags = {"allOf": [{"type": "array", "items": STRING}, {"anyOf": [{"maxItems": 0}, {"$ref": "#/$defs/two"}]}]}
    place = {"allOf": [{"type": "object", "maxProperties": 3}, {"patternProperties": {"^x": STRING}}]}
    schema = obj({**dict.fromkeys("abc", INTEGER), "tags": tags, "place": place}, additionalProperties=False)
    schema["$defs"] = {"two": {"type": "array", "minItems": 2}}
    good = [{"c": 1, "b": 1, "a": 1, "tags": ["a", "b"], "place": {"x": "a"}}, {"place": {}, "c": 1, "tags": []}]
    bad = [{"c": 1, "b": 1, "a": 1, "tags": ["a"]}]
    assert taken(schema, [*good, *bad], tokenizer, is_watched=True) == good


def test_what_items_need_is_kept_where_no_other_part_says_otherwise(tokenizer: llguidance.LLTokenizer) -> None:
    """No item could end: a watch waited for a key that another part of the array does not let in."""
    items = [obj({"a": STRING}, additionalProperties=False), obj(dict.fromkeys("abcd", STRING), required=["c"])]
    schema = {"type": "object", "properties": {"x": {"allOf": [{"type": "array", "items": one} for one in items]}}}
    grammar = open_grammar(schema, is_watched=True)
    assert is_watched_through(grammar, '{"x":[{"a":"b"}]}')  # the grammar lets no item begin
    assert taken(schema, [{"x": []}, {"x": [{"a": "b"}]}], tokenizer, is_watched=True) == [{"x": []}]


def test_what_parts_of_other_types_say_is_not_certain() -> None:
    """A watch waited for a key that nothing satisfies."""
    never = {"anyOf": [{"type": "array"}], "contains": {"enum": [[]], "contains": True}, "properties": {"c": INTEGER}}
    grammar = open_grammar(
        obj({**dict.fromkeys("abcd", INTEGER), "never": never}, required=["a"], additionalProperties=False),
        is_watched=True,
    )
    assert not is_watched_through(grammar, '{"a":1,"b":1,"c":1,"d":1,')  # no other key can come
