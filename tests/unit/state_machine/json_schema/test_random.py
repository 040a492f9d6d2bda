"""What is generated under a grammar is valid, and what a grammar accepts is valid: random walks and random schemas."""

import random
from collections import Counter

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy_inference_engine.state_machine.json_schema import json_grammar
from tests.unit.state_machine.json_schema.acceptance import byte_tokenizer, compiled
from tests.unit.state_machine.json_schema.cases import Case
from tests.unit.state_machine.json_schema.test_cases import CASES, name_of
from tests.unit.state_machine.json_schema.walks import is_sound, prove, walk

TOKENIZER = byte_tokenizer()


@pytest.mark.parametrize("case", CASES[::2], ids=name_of)
def test_walks_through_the_cases_are_valid(case: Case) -> None:
    matcher, error = compiled(json_grammar(case.schema), TOKENIZER)
    assert matcher is not None, error
    validator = jsonschema.validators.validator_for(case.schema)(case.schema)
    source = random.Random(7)
    texts = [text for text in (walk(matcher, source) for _ in range(4)) if text is not None]
    assert all(is_sound(text, validator) for text in texts), texts


NUM_SCHEMAS = 700


def test_random_schemas_never_accept_what_is_invalid() -> None:
    counts: Counter[str] = Counter()
    for seed in range(NUM_SCHEMAS):
        proof = prove(random.Random(seed), TOKENIZER)
        assert proof.wrong == (), seed
        counts += Counter({"compiled": proof.is_compiled, "walks": proof.num_walks})
        counts += Counter({"valid": proof.num_valid, "refused": proof.num_refused})
    assert counts["walks"] >= 2_000
    assert counts["compiled"] > 0.7 * NUM_SCHEMAS
    assert counts["refused"] < 0.04 * counts["valid"]


@settings(max_examples=100)
@given(source=st.randoms(use_true_random=False))
def test_a_schema_that_would_be_wrong_is_made_small(source: random.Random) -> None:
    """The same, by choices that are shrunk when they show something."""
    assert prove(source, TOKENIZER).wrong == ()
