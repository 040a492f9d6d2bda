"""Properties in other orders than the schema's own: all where they are few, otherwise that of what is required."""

import json
from itertools import permutations
from typing import Any

import jsonschema
import llguidance
import pytest

from proxy_inference_engine.state_machine.json_schema import closed_grammar, json_grammar, open_grammar
from proxy_inference_engine.state_machine.json_schema.orders import MAX_ORDERS, MAX_PERMUTED, in_any_order
from tests.unit.state_machine.json_schema.acceptance import accepts, byte_tokenizer, compiled, written
from tests.unit.state_machine.json_schema.cases import INTEGER, STRING, Case, obj
from tests.unit.state_machine.json_schema.test_cases import CASES, name_of

FEW = obj({name: INTEGER for name in "abc"}, required=["a"], additionalProperties=False)
MANY = obj({name: INTEGER for name in "abcdef"}, required=["f", "b"], additionalProperties=False)


@pytest.fixture(scope="module")
def tokenizer() -> llguidance.LLTokenizer:
    return byte_tokenizer()


def taken(schema: Any, instances: list[Any], tokenizer: llguidance.LLTokenizer) -> list[Any]:
    matcher, error = compiled(open_grammar(schema), tokenizer)
    assert matcher is not None, error
    return [one for one in instances if accepts(matcher, tokenizer, written(one))]


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
