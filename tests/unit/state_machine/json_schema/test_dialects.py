"""OpenAPI 3.0's own words: what they mean where no draft is declared, and that they mean nothing elsewhere."""

from typing import Any

import llguidance
import pytest

from proxy_inference_engine.state_machine.json_schema import UnenforceableSchema, json_grammar
from tests.unit.state_machine.json_schema.acceptance import accepts, byte_tokenizer, compiled, written
from tests.unit.state_machine.json_schema.cases import INTEGER, STRING, Case, obj

DRAFT = {"$schema": "https://json-schema.org/draft/2020-12/schema"}


def ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def components(**schemas: Any) -> dict[str, Any]:
    return {"components": {"schemas": schemas}}


CAT = obj({"kind": STRING, "purrs": {"type": "boolean"}}, required=["kind", "purrs"])
DOG = obj({"kind": STRING, "packs": INTEGER}, required=["kind", "packs"])
PETS = [ref("Cat"), ref("Dog")]
BY_KIND = {"discriminator": {"propertyName": "kind"}}
MAPPED = {
    "discriminator": {
        "propertyName": "kind",
        "mapping": {"cat": "#/components/schemas/Cat", "kitty": "Cat", "dog": "Dog"},
    }
}
TOLD = {**CAT, "properties": {**CAT["properties"], "kind": {"enum": ["tom", "puss"]}}}

CASES = [
    Case({"type": "string", "nullable": True}, ["a", None], [1]),
    Case({"type": "string", "nullable": False}, ["a"], [None]),
    Case({**DRAFT, "type": "string", "nullable": True}, ["a"], [None]),
    # Without a type beside it, and against an enum that does not list it, it means nothing.
    Case({"allOf": [STRING], "nullable": True}, ["a"], [None]),
    Case({"type": "string", "nullable": True, "enum": ["a"]}, ["a"], [None, "b"]),
    Case({"type": "string", "nullable": True, "enum": ["a", None]}, ["a", None], ["b"]),
    Case({"type": "string", "nullable": True, "minLength": 2}, ["ab", None], ["a"]),
    Case({"not": {"type": "string", "nullable": True}}, [1, True], ["a", None]),
    Case(obj({"nullable": {"type": "boolean"}}, required=["nullable"]), [{"nullable": True}], [{"nullable": None}]),
    Case(
        {**obj({"one": ref("Name")}, required=["one"]), **components(Name={"type": "string", "nullable": True})},
        [{"one": "a"}, {"one": None}],
        [{"one": 1}],
    ),
    Case(
        {"oneOf": PETS, **BY_KIND, **components(Cat=CAT, Dog=DOG)},
        [{"kind": "Cat", "purrs": True}, {"kind": "Dog", "packs": 1}],
        [{"kind": "Dog", "purrs": True}, {"kind": "cat", "purrs": True}, {"kind": "Cat", "packs": 1}],
    ),
    Case(
        {"anyOf": PETS, **MAPPED, **components(Cat=CAT, Dog=DOG)},
        [{"kind": "cat", "purrs": True}, {"kind": "kitty", "purrs": True}, {"kind": "dog", "packs": 1}],
        [{"kind": "Cat", "purrs": True}, {"kind": "dog", "purrs": True}],
    ),
    # An alternative that says itself what stands there is left as it is; so is one where no name is meant.
    Case(
        {"oneOf": PETS, **BY_KIND, **components(Cat=TOLD, Dog=DOG)},
        [{"kind": "tom", "purrs": True}, {"kind": "Dog", "packs": 1}],
        [{"kind": "Cat", "purrs": True}, {"kind": "tom", "packs": 1}],
    ),
    Case(
        {"anyOf": [CAT, DOG], **BY_KIND},
        [{"kind": "x", "purrs": True}, {"kind": "x", "packs": 1}],
        [{"kind": "x"}],
    ),
    Case(
        {**DRAFT, "anyOf": PETS, **BY_KIND, **components(Cat=CAT, Dog=DOG)},
        [{"kind": "x", "purrs": True}],
        [{"purrs": True}],
    ),
    # What is forbidden is the alternatives as they are: a name that is missing makes nothing right.
    Case(
        {**INTEGER, "not": {"anyOf": PETS, **BY_KIND}, **components(Cat=CAT, Dog=DOG)},
        [1],
        [{"kind": "x", "purrs": True}, "a"],
    ),
]


@pytest.fixture(scope="module")
def tokenizer() -> llguidance.LLTokenizer:
    return byte_tokenizer()


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case.schema)[:70])
def test_dialect(case: Case, tokenizer: llguidance.LLTokenizer) -> None:
    matcher, error = compiled(json_grammar(case.schema), tokenizer)
    assert matcher is not None, error
    assert [one for one in case.valid if not accepts(matcher, tokenizer, written(one))] == []
    assert [one for one in case.invalid if accepts(matcher, tokenizer, written(one))] == []


def test_a_discriminator_does_not_make_what_holds_twice_hold_once(tokenizer: llguidance.LLTokenizer) -> None:
    """With the same properties each alternative takes what the other does: oneOf forbids that, whatever it is called.

    The library finds nothing that is left.
    """
    schema = {"oneOf": PETS, **BY_KIND, **components(Cat=obj({"kind": STRING}), Dog=obj({"kind": STRING}))}
    matcher, _ = compiled(json_grammar(schema), tokenizer)
    assert matcher is None or not accepts(matcher, tokenizer, '{"kind":"Cat"}')


def test_a_problem_in_a_nullable_schema_is_named_where_it_stands() -> None:
    schema = obj({"a": {"type": "array", "nullable": True, "items": {"type": "string", "pattern": r"(?=a)\bb"}}})
    with pytest.raises(UnenforceableSchema, match="/properties/a/items/pattern"):
        json_grammar(schema)
