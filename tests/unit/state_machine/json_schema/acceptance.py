"""Does a grammar accept a text? Bytes as vocabulary, so no model is needed and every text can be written."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast

import llguidance

from proxy_inference_engine.runners.base import Tokenizer
from proxy_inference_engine.state_machine.compilation import GrammarLimits, parser_limits
from proxy_inference_engine.state_machine.json_schema import JsonGrammar, Spacing, UnenforceableSchema, json_grammar
from proxy_inference_engine.state_machine.keys import JSON_KEYS, START, KeyTokens
from proxy_inference_engine.state_machine.watch import ValueGuard

EOS = 256
SPACING = Spacing()


class ByteVocabulary:
    """One token per byte, and an end token."""

    tokens: Sequence[bytes] = [bytes([value]) for value in range(256)] + [b"<eos>"]
    eos_token_id = EOS
    bos_token_id = None
    special_token_ids: Sequence[int] = [EOS]

    def __call__(self, text: bytes | str) -> list[int]:
        return list(text if isinstance(text, bytes) else text.encode())


def byte_tokenizer() -> llguidance.LLTokenizer:
    return llguidance.LLTokenizer(llguidance.TokenizerWrapper(ByteVocabulary()))


class Matcher(NamedTuple):
    matcher: llguidance.LLMatcher | None
    error: str


class Bytes:
    """The same vocabulary for a watch."""

    num_tokens = EOS

    @staticmethod
    def token_bytes(token_id: int) -> bytes:
        return bytes([token_id])


TOKENS = {JSON_KEYS: KeyTokens(cast(Tokenizer, Bytes()), JSON_KEYS)}


def guard_of(grammar: JsonGrammar) -> ValueGuard:
    """What stands beside a grammar."""
    return ValueGuard({JSON_KEYS: {START: grammar.shape}}, TOKENS)


def compiled(grammar: JsonGrammar, tokenizer: llguidance.LLTokenizer) -> Matcher:
    """Within the limits that requests have."""
    text = llguidance.grammar_from("grammar", "start: " + grammar.lark)
    matcher = llguidance.LLMatcher(tokenizer, text, log_level=0, limits=parser_limits(GrammarLimits()))
    error = matcher.get_error()
    return Matcher(None if error else matcher, error)


def is_watched_through(grammar: JsonGrammar, text: str) -> bool:
    """Whether nothing in a text has to be held back."""
    watch = guard_of(grammar).start()
    for byte in text.encode():
        watch.feed(byte)
    return not watch.is_wrong


def written(instance: Any, spacing: Spacing = SPACING) -> str:
    return json.dumps(instance, ensure_ascii=False, separators=(spacing.item, spacing.key))


def accepts(matcher: llguidance.LLMatcher, tokenizer: llguidance.LLTokenizer, text: str) -> bool:
    tokens = tokenizer.tokenize_str(text)
    matcher.reset()
    is_accepted = matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()
    if matcher.is_error():
        raise RuntimeError(matcher.get_error())
    return is_accepted


Outcome = Literal["passed", "refused", "compile error", "wrong rejection", "wrong acceptance"]


@dataclass(frozen=True, slots=True)
class Result:
    outcome: Outcome
    cause: str = ""


def evaluate(line: dict[str, Any], tokenizer: llguidance.LLTokenizer) -> Result:
    """Compile a line's schema and hold its instances against it; the worst finding counts."""
    try:
        grammar = json_grammar(line["schema"], any_order=True, is_watched=True)
    except UnenforceableSchema as refusal:
        return Result("refused", f"{refusal.keyword}: {refusal.reason} at {refusal.path}")
    matcher, error = compiled(grammar, tokenizer)
    if matcher is None:
        return Result("compile error", error)
    texts = [(test["valid"], written(test["data"])) for test in line["tests"]]
    verdicts = [
        (is_valid, is_watched_through(grammar, text) and accepts(matcher, tokenizer, text)) for is_valid, text in texts
    ]
    if (False, True) in verdicts:
        return Result("wrong acceptance", f"test {verdicts.index((False, True))}")
    if (True, False) in verdicts:
        return Result("wrong rejection", f"test {verdicts.index((True, False))}")
    return Result("passed")
