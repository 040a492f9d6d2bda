"""Random walks under a grammar: what is written must be valid, and what is accepted too."""

import json
import random
from typing import Any, NamedTuple

import jsonschema
import llguidance
import llguidance.numpy
import numpy as np

from proxy_inference_engine.state_machine.json_schema import UnenforceableSchema, json_grammar
from proxy_inference_engine.state_machine.matcher import RootMatcher
from proxy_inference_engine.state_machine.watch import ValueGuard
from tests.unit.state_machine.json_schema.acceptance import (
    EOS,
    accepts,
    compiled,
    guard_of,
    is_watched_through,
    written,
)
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
        token = _drawn(allowed, source)
        matcher.consume_token(token)
        text.append(token)
    return None


def watched_walk(matcher: llguidance.LLMatcher, guard: ValueGuard, source: random.Random) -> bytes | None:
    """The same under the masks of a request, with a watch beside the grammar. There is always a way to go on."""
    matcher.reset()
    root = RootMatcher(matcher.deep_copy(), None, EOS + 1, guard.start())
    text = bytearray()
    for _ in range(MAX_STEPS):
        if root.is_complete:
            return bytes(text)
        mask = root.mask()
        assert mask is not None
        if mask[EOS] and (mask.sum() == 1 or source.random() < 0.4):
            return bytes(text)
        token = _drawn([int(each) for each in np.flatnonzero(mask[:EOS])], source)
        root.accept(token)
        text.append(token)
    return None


def _drawn(allowed: list[int], source: random.Random) -> int:
    likely = [token for token in allowed if token in LIKELY]
    return source.choice(likely) if likely and source.random() < 0.9 else source.choice(allowed)


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
    schema, is_watched = SchemaSource(source).document(), source.random() < 0.5
    try:
        grammar = json_grammar(schema, any_order=source.random() < 0.5, is_watched=is_watched)
    except UnenforceableSchema:
        return Proof(False)
    matcher = compiled(grammar, tokenizer).matcher
    if matcher is None:
        return Proof(False)
    validator = jsonschema.validators.validator_for(schema)(schema)
    guard = guard_of(grammar)
    walks = (watched_walk(matcher, guard, source) if is_watched else walk(matcher, source) for _ in range(NUM_WALKS))
    texts = [text for text in walks if text is not None]
    wrong = [f"{json.dumps(schema)} writes {text!r}" for text in texts if not is_sound(text, validator)]

    def is_taken(text: str) -> bool:
        return accepts(matcher, tokenizer, text) and is_watched_through(grammar, text)

    seen = [json.loads(text.decode(errors="replace")) for text in texts]
    values = [random_value(source) for _ in range(NUM_VALUES)] + [
        mutated(one, source) for one in seen for _ in range(2)
    ]
    verdicts = [(validator.is_valid(one), is_taken(written(one)), one) for one in values]
    wrong += [f"{json.dumps(schema)} accepts {one!r}" for is_valid, taken, one in verdicts if taken and not is_valid]
    valid = [taken for is_valid, taken, _ in verdicts if is_valid]
    return Proof(True, len(texts), len(valid), valid.count(False), tuple(wrong))
