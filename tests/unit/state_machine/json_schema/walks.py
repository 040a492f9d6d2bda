"""Random walks under a grammar: what is written must be valid, and what is accepted too."""

import json
import random
from typing import Any, NamedTuple

import jsonschema
import llguidance
import llguidance.numpy
import numpy as np

from proxy_inference_engine.state_machine.json_schema import UnenforceableSchema, json_grammar
from tests.unit.state_machine.json_schema.acceptance import EOS, accepts, compiled, written
from tests.unit.state_machine.json_schema.random_schemas import SchemaSource, mutated, random_value

MAX_STEPS = 150
# Bytes that bring a walk to its end sooner than others would.
LIKELY = frozenset(b'"}],:0123abctfnu{[')
NUM_WALKS = 5
NUM_VALUES = 12


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


class Proof(NamedTuple):
    """What was seen of one random schema. `wrong`: what its grammar accepts or writes and its validator does not."""

    is_compiled: bool
    num_walks: int = 0
    num_valid: int = 0
    num_refused: int = 0  # of the valid ones
    wrong: tuple[str, ...] = ()


def prove(source: random.Random, tokenizer: llguidance.LLTokenizer) -> Proof:
    """A random schema: walks under its grammar, other values, and values one change away from what was written."""
    schema = SchemaSource(source).document()
    try:
        matcher = compiled(json_grammar(schema, any_order=source.random() < 0.5), tokenizer).matcher
    except UnenforceableSchema:
        matcher = None
    if matcher is None:
        return Proof(False)
    validator = jsonschema.validators.validator_for(schema)(schema)
    texts = [text for text in (walk(matcher, source) for _ in range(NUM_WALKS)) if text is not None]
    wrong = [f"{json.dumps(schema)} writes {text!r}" for text in texts if not is_sound(text, validator)]
    seen = [json.loads(text.decode(errors="replace")) for text in texts]
    values = [random_value(source) for _ in range(NUM_VALUES)] + [
        mutated(one, source) for one in seen for _ in range(2)
    ]
    verdicts = [(validator.is_valid(one), accepts(matcher, tokenizer, written(one)), one) for one in values]
    wrong += [
        f"{json.dumps(schema)} accepts {one!r}" for is_valid, is_taken, one in verdicts if is_taken and not is_valid
    ]
    valid = [is_taken for is_valid, is_taken, _ in verdicts if is_valid]
    return Proof(True, len(texts), len(valid), valid.count(False), tuple(wrong))
