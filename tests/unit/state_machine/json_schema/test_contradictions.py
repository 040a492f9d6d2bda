"""Schemas that contradict themselves, for those who are not strict: one keyword less, and it is told which."""

import random
from typing import Any

import pytest

from proxy_inference_engine.state_machine.json_schema import UnenforceableSchema, json_grammar, reconciled
from tests.unit.state_machine.json_schema.cases import INTEGER, obj
from tests.unit.state_machine.json_schema.random_schemas import SchemaSource

LISTED = {"type": "integer", "enum": ["1", "2"]}
REVERSED = {"type": "integer", "minimum": 3, "maximum": 1}


@pytest.mark.parametrize(
    ("schema", "relaxed"),
    [
        (obj({"n": LISTED}), []),  # it may be left out
        (obj({"n": LISTED}, required=["n"]), ["/properties/n:type"]),
        (obj({"n": {"enum": ["1"], "type": "integer"}}, required=["n"]), ["/properties/n:type"]),
        (obj({"n": REVERSED}, required=["n"]), ["/properties/n:maximum"]),
        (obj({"n": {"type": "string", "const": 5, "minLength": 1}}, required=["n"]), ["/properties/n:type"]),
        (obj({"n": {"type": "string", "enum": ["a"], "pattern": "^b"}}, required=["n"]), ["/properties/n:pattern"]),
        (obj({"n": {"enum": []}}, required=["n"]), ["/properties/n:enum"]),
        (obj({"n": LISTED, "m": REVERSED}, required=["n", "m"]), ["/properties/n:type", "/properties/m:maximum"]),
        (obj({"a": INTEGER}, required=["a", "b"], additionalProperties=False), [":additionalProperties"]),
        (obj({"a": False}, required=["a"]), [":required"]),
        (obj({"a": obj({"n": LISTED}, required=["n"])}, required=["a"]), ["/properties/a/properties/n:type"]),
        (obj({"a": {"type": "array", "items": LISTED, "minItems": 1}}, required=["a"]), ["/properties/a/items:type"]),
        (obj({"a": {"anyOf": [LISTED, REVERSED]}}, required=["a"]), ["/properties/a/anyOf/0:type"]),
        (obj({"a": {"allOf": [INTEGER, {"type": "string"}]}}, required=["a"]), ["/properties/a:allOf"]),
        ({"$defs": {"N": LISTED}, **obj({"a": {"$ref": "#/$defs/N"}}, required=["a"])}, ["/$defs/N:type"]),
        (
            obj({"a": {"type": "integer", "enum": ["x"], "const": "y"}}, required=["a"]),
            ["/properties/a:*"],
        ),
    ],
)
def test_what_is_given_up(schema: Any, relaxed: list[str]) -> None:
    before = repr(schema)
    result = reconciled(schema)
    assert list(result.relaxed) == relaxed and repr(schema) == before
    json_grammar(result.schema, is_strict=False)


def test_what_is_malformed_is_still_refused() -> None:
    with pytest.raises(UnenforceableSchema, match="properties"):
        reconciled({"type": "object", "properties": 5})


def test_the_search_ends() -> None:
    many = {f"p{number}": LISTED for number in range(200)}
    with pytest.raises(UnenforceableSchema, match="too many reasons"):
        reconciled(obj(many, required=list(many)))


def test_random_schemas_become_possible() -> None:
    num_reconciled = 0
    for seed in range(300):
        schema = SchemaSource(random.Random(seed)).schema()
        try:
            result = reconciled(schema)
        except UnenforceableSchema:
            continue
        num_reconciled += bool(result.relaxed)
        json_grammar(result.schema, is_strict=False)
    assert num_reconciled > 5
