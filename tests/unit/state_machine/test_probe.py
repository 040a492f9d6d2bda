"""A fresh grammar's first steps: what fails or is slow in them is refused, everything else is not touched."""

import json
import random

import pytest

from proxy_inference_engine.state_machine.compilation import GrammarLimits, InvalidGrammar, compile_grammar
from proxy_inference_engine.state_machine.probe import probe
from proxy_inference_engine.state_machine.vocabulary import GrammarVocabulary
from tests.unit.state_machine.vocabularies import PieceTokenizer

_SOURCE = random.Random(7)
PIECES = {"".join(_SOURCE.choices("abcdefghijklmnopqrstuvwxyz ", k=_SOURCE.randint(2, 12))) for _ in range(20_000)}
WORDS = GrammarVocabulary(PieceTokenizer(pieces=sorted(PIECES)), [])  # as many tokens as a small model has


def attempt(grammar: str, limits: GrammarLimits | None = None) -> None:
    matcher = compile_grammar(WORDS.ll, grammar, limits or GrammarLimits())
    probe(matcher, sorted(WORDS.end_ids))
    assert not matcher.is_error() and matcher.compute_bitmask().strip(b"\0"), "only copies of it were walked"


@pytest.mark.parametrize(
    "grammar",
    [
        'start: "a"',
        'start: ""',
        "start: /[a-z ]*/",
        "start: /(ab|c){3}/",
        'start: "a" start | "b"',
        'start: %json {"type": "object"}',
        'start: %json {"type": "array", "items": {"type": "string", "maxLength": 10}}',
        'start: %json {"enum": ["é", "😀"]}',
    ],
)
def test_ordinary_grammars_pass(grammar: str) -> None:
    attempt(grammar)


AMBIGUOUS = [f"start: ((/[a-z ]/)?){{{number}}}" for number in (1_000, 5_000)]


@pytest.mark.parametrize("grammar", AMBIGUOUS)
def test_an_ambiguous_grammar_is_refused(grammar: str) -> None:
    """Each of its steps took as long as five of the model's: with twelve such streams nobody else got on."""
    with pytest.raises(InvalidGrammar):
        attempt(grammar)
    with pytest.raises(InvalidGrammar, match="too long"):
        attempt(grammar, GrammarLimits(max_step_items=1_000_000))


def test_what_is_too_much_after_the_first_token_is_refused() -> None:
    """An object of 900 optional properties compiles, and fails when its first name begins."""
    schema = {"type": "object", "properties": {f"a{number}": {"type": "string"} for number in range(900)}}
    with pytest.raises(InvalidGrammar, match="items"):
        attempt(f"start: %json {json.dumps(schema)}")
