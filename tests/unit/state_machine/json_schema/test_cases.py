"""Every case against its grammar and against a validator, alone and in the places where schemas stand."""

import json
from collections.abc import Callable
from typing import Any

import jsonschema
import llguidance
import pytest

from proxy_inference_engine.state_machine.json_schema import json_grammar
from proxy_inference_engine.state_machine.json_schema.keywords import ASSERTIONS
from tests.unit.state_machine.json_schema.acceptance import accepts, byte_tokenizer, compiled, written
from tests.unit.state_machine.json_schema.cases import Case
from tests.unit.state_machine.json_schema.cases_evaluation import EVALUATION
from tests.unit.state_machine.json_schema.cases_plain import GRAMMAR_ONLY, PLAIN
from tests.unit.state_machine.json_schema.cases_presence import COUNTED, LEFT_OUT, PRESENCE
from tests.unit.state_machine.json_schema.cases_rewritten import REWRITTEN
from tests.unit.state_machine.json_schema.cases_scopes import SCOPES

CASES = [*PLAIN, *REWRITTEN, *EVALUATION, *SCOPES, *PRESENCE, *COUNTED]
Place = Callable[[Any], Any]

# How a schema is put into another, and an instance with it.
PLACES: dict[str, tuple[Place, Place]] = {
    "property": (
        lambda schema: {
            "type": "object",
            "properties": {"v": schema},
            "required": ["v"],
            "additionalProperties": False,
        },
        lambda instance: {"v": instance},
    ),
    "item": (lambda schema: {"type": "array", "items": schema}, lambda instance: [instance]),
    "definition": (
        lambda schema: {"$defs": {"d": schema}, "type": "array", "prefixItems": [True, {"$ref": "#/$defs/d"}]},
        lambda instance: [1, instance],
    ),
    "part": (lambda schema: {"allOf": [{}, {"anyOf": [schema, False]}]}, lambda instance: instance),
    "double negation": (lambda schema: {"not": {"not": schema}}, lambda instance: instance),
}


@pytest.fixture(scope="module")
def tokenizer() -> llguidance.LLTokenizer:
    return byte_tokenizer()


def check(case: Case, tokenizer: llguidance.LLTokenizer) -> None:
    grammar = json_grammar(case.schema)
    assert grammar.relaxed == ()
    matcher, error = compiled(grammar, tokenizer)
    assert matcher is not None, error
    for instance in case.valid:
        assert accepts(matcher, tokenizer, written(instance)), f"rejects {instance}"
    for instance in case.invalid:
        assert not accepts(matcher, tokenizer, written(instance)), f"accepts {instance}"


def name_of(case: Case) -> str:
    return json.dumps(case.schema)[:70]


def stands_alone(case: Case) -> bool:
    """Whether a case can be put into another schema: a reference or a declared draft concerns the whole document."""
    text = json.dumps(case.schema)
    return not any(keyword in text for keyword in ('"$ref"', '"$dynamicRef"', '"$schema"', '"unevaluated'))


def test_there_are_enough_cases() -> None:
    moved = [around(case.schema) for case in CASES if stands_alone(case) for around, _ in PLACES.values()]
    assert len({json.dumps(schema) for schema in [*(case.schema for case in CASES), *moved]}) >= 300
    assert len({json.dumps(case.schema) for case in CASES}) >= 280
    assert all(case.valid for case in CASES)


def test_every_keyword_that_binds_has_a_case() -> None:
    written = json.dumps([case.schema for case in CASES])
    assert [keyword for keyword in sorted(ASSERTIONS) if f'"{keyword}":' not in written] == []


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_validator_agrees_with_the_table(case: Case) -> None:
    validator = jsonschema.validators.validator_for(case.schema)(case.schema)
    assert [instance for instance in case.valid if not validator.is_valid(instance)] == []
    assert [instance for instance in case.invalid if validator.is_valid(instance)] == []


@pytest.mark.parametrize("case", [*CASES, *GRAMMAR_ONLY, *LEFT_OUT], ids=name_of)
def test_grammar_agrees_with_the_table(case: Case, tokenizer: llguidance.LLTokenizer) -> None:
    check(case, tokenizer)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("case", [case for case in CASES if stands_alone(case)], ids=name_of)
def test_grammar_agrees_in_other_places(case: Case, place: str, tokenizer: llguidance.LLTokenizer) -> None:
    around, put = PLACES[place]
    moved = Case(around(case.schema), [put(one) for one in case.valid], [put(one) for one in case.invalid])
    validator = jsonschema.Draft202012Validator(moved.schema)
    assert all(map(validator.is_valid, moved.valid))
    assert not any(map(validator.is_valid, moved.invalid))
    check(moved, tokenizer)
