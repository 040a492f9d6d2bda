"""One grammar text to a matcher of llguidance, within limits: the same here as in the sandbox."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import llguidance


class InvalidGrammar(Exception):
    """The grammar does not compile, or is too large."""


@dataclass(frozen=True, slots=True)
class GrammarLimits:
    """What one grammar may cost. Fuel is counted in llguidance's units: about 50,000 a millisecond to build a lexer."""

    max_seconds: float = 3.0  # of a processor; the dearest of 900 real schemas takes 0.2
    max_bytes: int = 256 << 20
    max_chars: int = 1 << 20
    initial_lexer_fuel: int = 10_000_000
    max_grammar_size: int = 500_000
    max_lexer_states: int = 50_000  # up to 2 KB each
    max_step_items: int = 10_000  # no step of 900 real schemas looks at more than 2,000


def compile_grammar(tokenizer: llguidance.LLTokenizer, grammar: str, limits: GrammarLimits) -> llguidance.LLMatcher:
    """A matcher at the start; `deep_copy` it to walk. Raises InvalidGrammar."""
    matcher = llguidance.LLMatcher(tokenizer, grammar, log_level=0, limits=parser_limits(limits))
    _try(matcher)  # the first mask is the dearest: taken here, every copy has what it found
    scout = matcher.deep_copy()
    forced = scout.compute_ff_tokens()
    if scout.is_error() or (forced and not (scout.consume_tokens(forced) and scout.is_stopped())):
        _try(scout)
    return matcher


def parser_limits(limits: GrammarLimits) -> llguidance.LLParserLimits:
    """What a grammar may cost the library, in its own words."""
    return llguidance.LLParserLimits(
        initial_lexer_fuel=limits.initial_lexer_fuel,
        max_grammar_size=limits.max_grammar_size,
        max_lexer_states=limits.max_lexer_states,
        step_max_items=limits.max_step_items,
        verbose_errors=False,
    )


def _try(matcher: llguidance.LLMatcher) -> None:
    """Take a mask; what is impossible, or too much for one step, shows in it."""
    mask = b"" if matcher.is_error() else matcher.compute_bitmask()
    if matcher.is_error():
        raise InvalidGrammar(reason_of(matcher))
    if not mask.strip(b"\0"):
        raise InvalidGrammar("nothing at all satisfies it")


def reason_of(matcher: llguidance.LLMatcher) -> str:
    """The first line of llguidance's message, without places in a grammar that nobody but us has seen."""
    error = matcher.get_error().strip()
    if not error:
        return "it does not compile"
    return error.splitlines()[0].rpartition("failed to compile JSON schema: ")[2][:300]


_MAX_ENCODED, _MAX_ENCODED_CHARS = 4096, 256
# Tokens that a string of JSON takes as a whole while it has room for so many characters: their part of the mask is
# ready-made. More lengths help strings that have little room left, but each costs a walk of its own where none fits.
_IN_STRING = r'[^"\\\x00-\x1F\x7F]'
_SLICES = [r"[\x20\x0A\x0D\x09]+", *(f"{_IN_STRING}{{1,{most}}}" for most in (7, 9, 12, 30)), f"{_IN_STRING}+"]


class Lexicon(NamedTuple):
    """Control tokens and markers are special: no text, so that no regex matches them."""

    tokens: list[bytes]
    special_ids: list[int]
    end_ids: list[int]
    bos_id: int | None

    def tokenizer(self, encode: Callable[[str], list[int]]) -> llguidance.LLTokenizer:
        """Takes about 0.2 s for 50,000 tokens to make. `encode` says how a text that is forced is written."""
        bridge = llguidance.TokenizerWrapper(_Bridge(self, encode))
        return llguidance.LLTokenizer(bridge, eos_token=self.end_ids, slices=_SLICES)

    def greedy_tokenizer(self) -> llguidance.LLTokenizer:
        """A tokenizer of these tokens alone: a text that is forced is written in the longest of them."""
        made: list[llguidance.LLTokenizer] = []
        made.append(self.tokenizer(lambda text: made[0].greedy_tokenize(text)))
        return made[0]

    def pack(self) -> bytes:
        lengths = [len(token) for token in self.tokens]
        return json.dumps([lengths, *self[1:]]).encode() + b"\n" + b"".join(self.tokens)

    @staticmethod
    def unpack(data: bytes) -> "Lexicon":
        head, _, joined = data.partition(b"\n")
        lengths, special_ids, end_ids, bos_id = json.loads(head)
        tokens, at = [], 0
        for length in lengths:
            tokens.append(joined[at : at + length])
            at += length
        return Lexicon(tokens, special_ids, end_ids, bos_id)


class _Bridge:
    """What llguidance asks of a tokenizer."""

    def __init__(self, lexicon: Lexicon, encode: Callable[[str], list[int]]) -> None:
        self.eos_token_id = lexicon.end_ids[0]
        self.bos_token_id = lexicon.bos_id
        self.tokens = lexicon.tokens
        self.special_token_ids = lexicon.special_ids
        # What grammars force is the same few texts over and over: keys, and what stands between them.
        self._encode = lru_cache(maxsize=_MAX_ENCODED)(encode)

    def __call__(self, text: str) -> list[int]:
        if not isinstance(text, str):
            raise TypeError("only text is encoded")  # llguidance tries bytes first, once
        return self._encode(text) if len(text) <= _MAX_ENCODED_CHARS else self._encode.__wrapped__(text)
