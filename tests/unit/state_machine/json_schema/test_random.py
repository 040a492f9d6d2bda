"""What is generated under a grammar is valid, and what a grammar accepts is valid: random walks and random schemas."""

import json
import random
from typing import Any

import jsonschema
import llguidance
import llguidance.numpy
import numpy as np
import pytest

from proxy_inference_engine.state_machine.json_schema import UnenforceableSchema, json_grammar
from tests.unit.state_machine.json_schema.acceptance import EOS, accepts, byte_tokenizer, compiled, written
from tests.unit.state_machine.json_schema.cases import Case
from tests.unit.state_machine.json_schema.random_schemas import SchemaSource, random_value
from tests.unit.state_machine.json_schema.test_cases import CASES, name_of

MAX_STEPS = 150
# Bytes that bring a walk to its end sooner than others would.
LIKELY = frozenset(b'"}],:0123abctfnu{[')


@pytest.fixture(scope="module")
def tokenizer() -> llguidance.LLTokenizer:
    return byte_tokenizer()


def allowed_bytes(matcher: llguidance.LLMatcher) -> list[int]:
    mask = llguidance.numpy.allocate_token_bitmask(1, EOS + 1)
    llguidance.numpy.fill_next_token_bitmask(matcher, mask, 0)
    return [int(token) for token in np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")[:EOS])]


def walk(matcher: llguidance.LLMatcher, source: random.Random) -> bytes | None:
    """Bytes chosen at random among those allowed, up to an end; nothing when none comes in time."""
    matcher.reset()
    text = bytearray()
    for _ in range(MAX_STEPS):
        if matcher.is_accepting() and (matcher.is_stopped() or source.random() < 0.4):
            return bytes(text)
        allowed = allowed_bytes(matcher)
        if not allowed:
            return bytes(text) if matcher.is_accepting() else None
        likely = [token for token in allowed if token in LIKELY]
        token = source.choice(likely) if likely and source.random() < 0.9 else source.choice(allowed)
        matcher.consume_token(token)
        text.append(token)
    return None


def is_sound(text: bytes, validator: Any) -> bool:
    try:
        instance = json.loads(text.decode())
    except UnicodeDecodeError:
        # The walk ended within a character, which real tokens are not made to do.
        return True
    return bool(validator.is_valid(instance))


@pytest.mark.parametrize("case", CASES[::2], ids=name_of)
def test_walks_through_the_cases_are_valid(case: Case, tokenizer: llguidance.LLTokenizer) -> None:
    matcher, error = compiled(json_grammar(case.schema), tokenizer)
    assert matcher is not None, error
    validator = jsonschema.validators.validator_for(case.schema)(case.schema)
    source = random.Random(7)
    texts = [text for text in (walk(matcher, source) for _ in range(4)) if text is not None]
    assert all(is_sound(text, validator) for text in texts), texts


NUM_SEEDS = 600


def test_random_schemas_never_accept_what_is_invalid(tokenizer: llguidance.LLTokenizer) -> None:
    num_compiled = num_valid = num_rejected = 0
    for seed in range(NUM_SEEDS):
        source = SchemaSource(seed)
        schema = source.schema()
        if isinstance(schema, dict) and seed % 3 == 0:
            schema["$schema"] = "http://json-schema.org/draft-07/schema#"
        try:
            matcher = compiled(json_grammar(schema, any_order=seed % 2 == 1), tokenizer).matcher
        except UnenforceableSchema:
            continue
        if matcher is None:
            continue
        num_compiled += 1
        validator = jsonschema.validators.validator_for(schema)(schema)
        for instance in [random_value(source.random) for _ in range(25)]:
            is_valid = validator.is_valid(instance)
            is_accepted = accepts(matcher, tokenizer, written(instance))
            assert is_valid or not is_accepted, (seed, schema, instance)
            num_valid += is_valid
            num_rejected += is_valid and not is_accepted
        text = walk(matcher, source.random)
        assert text is None or is_sound(text, validator), (seed, schema, text)
    assert num_compiled > 0.7 * NUM_SEEDS
    assert num_rejected < 0.03 * num_valid
