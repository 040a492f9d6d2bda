"""Items that differ, under the bundled model's vocabulary: what is written is valid, and always comes to an end."""

import json
import random
from collections.abc import Sequence
from typing import Any

import jsonschema
import numpy as np
import pytest
from numpy.typing import NDArray

from proxy_inference_engine.models.resolve import resolve
from proxy_inference_engine.runners.llama_cpp.model import Model
from proxy_inference_engine.runners.llama_cpp.tokenizer import Vocabulary
from proxy_inference_engine.state_machine.demand import Demand, JsonSchema
from proxy_inference_engine.state_machine.json_schema import Spacing
from proxy_inference_engine.state_machine.machine import MachineBuilder, RootConstraint
from proxy_inference_engine.state_machine.matcher import RootMatcher
from tests.unit.state_machine.families import Family
from tests.unit.state_machine.json_schema.cases import INTEGER, STRING, obj

NUM_WALKS = 60
MAX_TOKENS = 120
# Few letters: what is written at random is soon there already.
LETTERS = frozenset(b'ab1"{}[],: \\n')
SPACINGS = [Spacing(), Spacing(", ", ": ")]


def unique(items: Any, **keywords: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, "uniqueItems": True, **keywords}


WORDS = ["a", "ab", "aba", "b", "ba", 'a"b', "a\nb", "a, b", "", " a", "é"]
SCHEMAS: dict[str, Any] = {
    "strings": unique(STRING, minItems=4),
    "short strings": unique({"type": "string", "maxLength": 2}, minItems=4),
    "patterns": unique({"type": "string", "pattern": "^[ab]{1,2}$"}, minItems=6),
    "endless patterns": unique({"type": "string", "pattern": "^a+( b*)?$"}, minItems=5),
    "formats": unique({"type": "string", "format": "date"}, minItems=3),
    "words": unique({"enum": WORDS}, minItems=len(WORDS)),
    "mixed values": unique({"enum": [*WORDS, 1, 11, -1, None, True, False]}, minItems=len(WORDS) + 6),
    "whole numbers": unique(INTEGER, minItems=5),
    "few whole numbers": unique({"type": "integer", "minimum": -3, "maximum": 12}, minItems=16),
    "any of": unique({"anyOf": [{"enum": ["a", "b"]}, {"type": "integer"}, {"type": "null"}]}, minItems=6),
    "strings or null": unique({"type": ["string", "null"]}, minItems=4),
    "in arrays": {"type": "array", "items": unique({"enum": ["a", "b", 1]}), "minItems": 4},
    "in objects": obj({"a": unique(STRING, minItems=2), "b": unique(INTEGER)}, required=["a", "b"]),
}


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return Vocabulary(Model(resolve(None).path, vocab_only=True))


@pytest.fixture(scope="module")
def builders(vocabulary: Vocabulary) -> list[MachineBuilder]:
    return [MachineBuilder(Family("plain", False).format, vocabulary, spacing=spacing) for spacing in SPACINGS]


@pytest.fixture(scope="module")
def liked(vocabulary: Vocabulary) -> NDArray[np.bool_]:
    """Tokens of few letters."""
    pieces = map(vocabulary.token_bytes, range(vocabulary.num_tokens))
    return np.array([LETTERS.issuperset(piece) for piece in pieces])


def walked(matcher: RootMatcher, end_ids: Sequence[int], liked: NDArray[np.bool_], source: random.Random) -> list[int]:
    """What a walk writes that ends where it can from its second half on."""
    ids: list[int] = []
    while not matcher.is_complete:
        mask = matcher.mask()
        assert mask is not None
        if mask[end_ids].any() and len(ids) > MAX_TOKENS // 2:
            break
        allowed = np.flatnonzero(mask & liked)
        ids.append(int(source.choice(allowed if len(allowed) else np.flatnonzero(mask))))
        if ids[-1] in end_ids:
            return ids[:-1]
        matcher.accept(ids[-1])
        if len(ids) >= MAX_TOKENS:
            break
    return ids


@pytest.mark.parametrize("spacing", range(len(SPACINGS)), ids=["compact", "spaced"])
@pytest.mark.parametrize("name", SCHEMAS)
def test_walks(
    name: str, spacing: int, builders: list[MachineBuilder], vocabulary: Vocabulary, liked: NDArray[np.bool_]
) -> None:
    schema = SCHEMAS[name]
    constraint = builders[spacing].build(Demand(output=JsonSchema(schema), can_reason=False)).constraint
    assert isinstance(constraint, RootConstraint) and constraint.guard is not None
    validator = jsonschema.Draft202012Validator(schema)
    num_whole = 0
    for seed in range(NUM_WALKS):
        ids = walked(constraint.start(), sorted(vocabulary.end_ids), liked, random.Random(f"{name}{seed}"))
        text = b"".join(map(vocabulary.token_bytes, ids)).decode(errors="replace")
        try:
            value = json.loads(text)
        except ValueError:
            continue  # cut off
        num_whole += 1
        assert validator.is_valid(value), text
    assert num_whole > 0
