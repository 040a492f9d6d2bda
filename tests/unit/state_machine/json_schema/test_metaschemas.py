"""References to the drafts' own documents: what is taken is a schema, as the draft's document itself judges."""

import json
import random
from typing import Any

import jsonschema
import llguidance
import pytest

from proxy_inference_engine.state_machine.json_schema import UnenforceableSchema, json_grammar
from tests.unit.state_machine.json_schema.acceptance import (
    accepts,
    byte_tokenizer,
    compiled,
    guard_of,
    is_watched_through,
    written,
)
from tests.unit.state_machine.json_schema.walks import walk

URLS = {
    4: "http://json-schema.org/draft-04/schema#",
    6: "http://json-schema.org/draft-06/schema#",
    7: "http://json-schema.org/draft-07/schema#",
    2019: "https://json-schema.org/draft/2019-09/schema",
    2020: "https://json-schema.org/draft/2020-12/schema",
}
VALID: list[Any] = [
    {},
    {"type": "integer"},
    {"type": ["string", "null"], "minLength": 1},
    {"properties": {"a": {"not": {}}}, "required": ["a"], "unknown": 1},
    {"allOf": [{"minimum": 0.5}, {"items": {"enum": ["a", "b"]}}]},
    {"definitions": {"d": {"$ref": "#"}}, "multipleOf": 2},
]
INVALID: list[Any] = [
    {"minLength": -1},
    {"type": "text"},
    {"type": ["string", "string"]},
    {"type": []},
    {"allOf": []},
    {"properties": {"a": {"items": {"maxItems": "1"}}}},
    {"required": ["a", "a"]},
    {"multipleOf": 0},
    {"definitions": {"d": {"uniqueItems": 1}}},
    "a",
]
SOME: dict[int, tuple[list[Any], list[Any]]] = {
    4: ([{"minimum": 1, "exclusiveMinimum": True}], [True, {"exclusiveMinimum": True}, {"required": []}]),
    6: ([True, {"contains": False}], [{"contains": 1}, {"exclusiveMinimum": True}]),
    7: ([{"if": True, "then": {"$comment": "c"}}], [{"else": []}, {"readOnly": 1}]),
    2019: ([{"$anchor": "a", "unevaluatedItems": False}], [{"$anchor": "1"}, {"$id": "a#b"}, {"minContains": -1}]),
    2020: ([{"$dynamicAnchor": "_a", "prefixItems": [True]}], [{"items": [True]}, {"$vocabulary": {"a": 1}}]),
}


@pytest.fixture(scope="module")
def tokenizer() -> llguidance.LLTokenizer:
    return byte_tokenizer()


@pytest.mark.parametrize("declared", [None, 4, 7, 2019, 2020])
@pytest.mark.parametrize("draft", URLS)
def test_a_schema_of_a_draft(draft: int, declared: int | None, tokenizer: llguidance.LLTokenizer) -> None:
    """Whatever draft the document around the reference has."""
    root = {"$ref": URLS[draft]} if declared is None else {"$schema": URLS[declared], "allOf": [{"$ref": URLS[draft]}]}
    grammar = json_grammar(root, is_watched=True)
    assert grammar.relaxed == ()
    matcher, error = compiled(grammar, tokenizer)
    assert matcher is not None, error
    oracle = jsonschema.validators.validator_for({"$schema": URLS[draft]})
    validator = oracle(oracle.META_SCHEMA)
    valid, invalid = SOME[draft]
    for one in [*VALID, *valid]:
        text = written(one)
        assert validator.is_valid(one) and is_watched_through(grammar, text), one
        assert accepts(matcher, tokenizer, text), one
    for one in [*INVALID, *invalid]:
        text = written(one)
        assert not validator.is_valid(one), one
        assert not (is_watched_through(grammar, text) and accepts(matcher, tokenizer, text)), one


@pytest.mark.parametrize("draft", URLS)
def test_what_is_written_under_it_is_a_schema(draft: int, tokenizer: llguidance.LLTokenizer) -> None:
    oracle = jsonschema.validators.validator_for({"$schema": URLS[draft]})
    validator = oracle(oracle.META_SCHEMA)
    grammar = json_grammar({"$ref": URLS[draft]}, is_watched=True)
    matcher, error = compiled(grammar, tokenizer)
    assert matcher is not None, error
    source = random.Random(draft)
    texts = [text.decode(errors="replace") for text in (walk(matcher, source) for _ in range(60)) if text is not None]
    kept = [text for text in texts if is_watched_through(grammar, text)]
    assert len(kept) > 10
    assert [text for text in kept if not validator.is_valid(json.loads(text))] == []


def test_a_definition_of_it_and_a_part_among_others(tokenizer: llguidance.LLTokenizer) -> None:
    schema = {
        "type": "object",
        "properties": {"count": {"$ref": URLS[7] + "/definitions/nonNegativeInteger"}, "schema": {"$ref": URLS[2020]}},
        "additionalProperties": False,
    }
    grammar = json_grammar(schema, is_watched=True)
    matcher, error = compiled(grammar, tokenizer)
    assert matcher is not None, error
    assert accepts(matcher, tokenizer, written({"count": 1, "schema": {"type": "object"}}))
    assert not accepts(matcher, tokenizer, written({"count": -1}))
    assert not accepts(matcher, tokenizer, written({"schema": {"type": 1}}))


def test_a_document_that_carries_one_of_that_name_has_its_own(tokenizer: llguidance.LLTokenizer) -> None:
    schema = {"$ref": URLS[2020], "$defs": {"mine": {"$id": URLS[2020], "type": "integer"}}}
    matcher, error = compiled(json_grammar(schema), tokenizer)
    assert matcher is not None, error
    assert accepts(matcher, tokenizer, "1") and not accepts(matcher, tokenizer, "{}")


@pytest.mark.parametrize("reference", ["https://json-schema.org/draft/next/schema", "https://example.com/schema.json"])
def test_other_documents_are_refused(reference: str) -> None:
    with pytest.raises(UnenforceableSchema, match="leads out of the schema"):
        json_grammar({"$ref": reference})


def test_a_watch_stands_beside_it() -> None:
    """Names that differ are no grammar's to say."""
    assert guard_of(json_grammar({"$ref": URLS[7]}, is_watched=True)) is not None
    with pytest.raises(UnenforceableSchema, match="uniqueItems"):
        json_grammar({"$ref": URLS[7]})
