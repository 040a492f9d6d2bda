"""Objects that do not say whether other properties may come: closed, and never wider than the client's own schema."""

import random
from typing import Any

import jsonschema
import llguidance
import pytest

from proxy_inference_engine.state_machine.json_schema import UnenforceableSchema, closed_grammar, json_grammar
from proxy_inference_engine.state_machine.json_schema.budget import OutOfSteps
from proxy_inference_engine.state_machine.json_schema.closed_objects import closed
from tests.unit.state_machine.json_schema.acceptance import accepts, byte_tokenizer, compiled, written
from tests.unit.state_machine.json_schema.cases import INTEGER, STRING, Case, obj
from tests.unit.state_machine.json_schema.random_schemas import SchemaSource, random_value
from tests.unit.state_machine.json_schema.test_cases import CASES, name_of
from tests.unit.state_machine.json_schema.work import bytes_of, lines_of

A = obj({"x": INTEGER}, required=["x"])
TAGGED = [obj({"k": {"const": "a"}, "x": INTEGER}, required=["k"]), obj({"k": {"enum": ["b", "c"]}}, required=["k"])]

CLOSED = [
    Case(obj({"a": INTEGER}), [{}, {"a": 1}], [{"b": 1}, {"a": 1, "b": 1}]),
    Case({"properties": {"a": INTEGER}}, [{}, {"a": 1}, 5, "x", []], [{"b": 1}]),
    Case(obj({}), [{}], [{"a": 1}]),
    Case(obj({"a": INTEGER}, required=["a", "z"]), [{"a": 1, "z": [2]}], [{"a": 1}, {"a": 1, "z": 1, "y": 1}]),
    Case(obj({"a": obj({"b": INTEGER})}), [{"a": {"b": 1}}], [{"a": {"c": 1}}]),
    Case({"type": "array", "items": obj({"b": INTEGER})}, [[{"b": 1}, {}]], [[{"c": 1}]]),
    Case({"type": "array", "prefixItems": [obj({"b": INTEGER})]}, [[{"b": 1}]], [[{"c": 1}]]),
    Case({"additionalProperties": obj({"b": INTEGER})}, [{"any": {"b": 1}}], [{"any": {"c": 1}}]),
    # Others may come where somebody says so, or lists nothing.
    Case(obj({"a": INTEGER}, additionalProperties=True), [{"a": 1, "b": 1}], [{"a": "x"}]),
    Case(obj({"a": INTEGER}, additionalProperties=STRING), [{"a": 1, "b": "x"}], [{"b": 1}]),
    Case({"type": "object"}, [{"a": 1}, {}], [1]),
    Case({"type": "object", "additionalProperties": INTEGER}, [{"a": 1}], [{"a": "x"}]),
    Case(obj({"a": INTEGER}, patternProperties={"^x": STRING}), [{"a": 1, "xy": "z"}], [{"b": 1}, {"xy": 1}]),
    Case(obj({"a": INTEGER}, minProperties=2), [{"a": 1, "b": 1}], [{"a": 1}]),
    # Parts of one description are closed together.
    Case({"allOf": [A, {"properties": {"b": STRING}}]}, [{"x": 1, "b": "c"}, {"x": 1}], [{"x": 1, "c": 1}, {"b": "c"}]),
    Case(obj({"a": INTEGER}, anyOf=[{"required": ["a"]}, {"required": ["b"]}]), [{"a": 1}, {"b": 1}], [{}, {"c": 1}]),
    Case(obj({"a": {"enum": [1, 2]}}, **{"if": {"properties": {"a": {"const": 1}}, "required": ["a"]},
         "then": {"properties": {"b": INTEGER}, "required": ["b"]}}),
         [{"a": 1, "b": 1}, {"a": 2}], [{"a": 1}, {"a": 2, "c": 1}]),
    Case(obj({"a": INTEGER}, dependentRequired={"a": ["b"]}), [{"a": 1, "b": 1}, {}], [{"a": 1}, {"c": 1}]),
    Case({"allOf": [A, {"additionalProperties": {}}]}, [{"x": 1, "b": 1}], [{"b": 1}]),
    # Alternatives are closed each for itself.
    Case({"anyOf": [A, obj({"y": INTEGER}, required=["y"]), {"type": "null"}]},
         [{"x": 1}, {"y": 1}, None], [{"x": 1, "y": 1}, {"x": 1, "z": 1}]),
    Case({"oneOf": TAGGED}, [{"k": "a", "x": 1}, {"k": "b"}], [{"k": "b", "x": 1}, {"k": "a", "y": 1}]),
    Case({"oneOf": [A, {"type": "string"}]}, [{"x": 1}, "a"], [{"x": 1, "y": 1}]),
    Case({"oneOf": [A, obj({"y": INTEGER}, required=["y"])]},
         [{"x": 1}, {"y": 1}], [{"x": 1, "y": 1}, {"x": 1, "z": 1}]),
    # Definitions are closed where they stand, unless they are part of something larger somewhere.
    Case({"$defs": {"A": A}, **obj({"u": {"anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}]}})},
         [{"u": {"x": 1}}, {"u": None}], [{"u": {"x": 1, "y": 1}}, {"v": 1}]),
    Case({"$defs": {"A": A},
          **obj({"v": {"allOf": [{"$ref": "#/$defs/A"}, {"properties": {"y": INTEGER}}]}, "w": {"$ref": "#/$defs/A"}})},
         [{"v": {"x": 1, "y": 1}}, {"w": {"x": 1}}], [{"w": {"x": 1, "y": 1}}, {"v": {"x": 1, "z": 1}}]),
    Case({"parts": {"A": A}, **obj({"w": {"$ref": "#/parts/A"}})}, [{"w": {"x": 1}}], [{"w": {"x": 1, "y": 1}}]),
    Case(obj({"child": {"$ref": "#"}, "n": INTEGER}), [{"child": {"child": {"n": 1}}}], [{"child": {"m": 1}}]),
    # What is denied is not closed: that would allow more.
    Case(obj({"a": {"not": {"properties": {"b": {"const": 1}}, "required": ["b"]}}}), [{"a": {"b": 2}}, {"a": {}}],
         [{"a": {"b": 1}}, {"a": {"b": 1, "c": 1}}]),
]  # fmt: skip


@pytest.fixture(scope="module")
def tokenizer() -> llguidance.LLTokenizer:
    return byte_tokenizer()


@pytest.mark.parametrize("case", CLOSED, ids=name_of)
def test_closing(case: Case, tokenizer: llguidance.LLTokenizer) -> None:
    grammar = closed_grammar(case.schema)
    matcher, error = compiled(grammar, tokenizer)
    assert matcher is not None and grammar.relaxed == (), error
    validator = jsonschema.Draft202012Validator(case.schema)
    for instance in case.valid:
        assert validator.is_valid(instance), f"the case itself is wrong: {instance}"
        assert accepts(matcher, tokenizer, written(instance)), f"rejects {instance}"
    for instance in case.invalid:
        assert not accepts(matcher, tokenizer, written(instance)), f"accepts {instance}"


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_the_cases_stay_enforceable(case: Case, tokenizer: llguidance.LLTokenizer) -> None:
    """Whatever is enforceable without closing is so with it, and nothing is accepted that was not."""
    matcher, error = compiled(closed_grammar(case.schema), tokenizer)
    assert matcher is not None, error
    for instance in case.invalid:
        assert not accepts(matcher, tokenizer, written(instance)), f"accepts {instance}"


@pytest.mark.parametrize("schema", [True, False, {"properties": 5}, {"$ref": "#/x", "x": {"properties": []}}, 5, None])
def test_what_is_no_schema_is_refused_as_ever(schema: Any) -> None:
    errors = []
    for write in (json_grammar, closed_grammar):
        try:
            write(schema)
        except UnenforceableSchema as error:
            errors.append(str(error))
        else:
            errors.append("")
    assert errors[0] == errors[1] and bool(errors[0]) is (schema is not True)


def test_closing_never_widens() -> None:
    num_closed = num_narrowed = 0
    for seed in range(2_500):
        source = SchemaSource(random.Random(seed))
        schema = source.schema()
        narrower = closed(schema)
        if narrower == schema:
            continue
        num_closed += 1
        mine, yours = (jsonschema.Draft202012Validator(each) for each in (narrower, schema))
        for instance in [random_value(source.random) for _ in range(40)]:
            is_valid = yours.is_valid(instance)
            assert is_valid or not mine.is_valid(instance), (seed, schema, instance)
            num_narrowed += is_valid and not mine.is_valid(instance)
    assert num_closed > 200 and num_narrowed > 200


def test_a_large_part_of_many_objects_is_not_written_out_into_each() -> None:
    """Names times objects would be gigabytes; such a schema stays as it was written."""
    large: dict[str, Any] = {"properties": {f"p{number}": {} for number in range(1000)}}
    parts = {f"q{number}": {"allOf": [{"$ref": "#/$defs/L"}], "title": "q"} for number in range(1000)}
    schema = {"$defs": {"L": large}, **obj(parts)}

    def work() -> None:
        with pytest.raises(OutOfSteps):
            closed(schema)

    assert lines_of(work, 1_000_000) > 0
    assert bytes_of(work) < 64 << 20


def test_the_clients_schema_stays_as_it_is() -> None:
    schema = obj({"a": obj({"b": INTEGER})}, allOf=[{"properties": {"c": obj({"d": {}})}}])
    before = repr(schema)
    closed(schema)
    assert repr(schema) == before
