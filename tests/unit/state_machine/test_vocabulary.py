"""A vocabulary as grammars see it: texts cut at marker tokens, quoted, encoded; which tokens complete a marker."""

import json
import random

import pytest

from proxy_inference_engine.formats import by_name
from proxy_inference_engine.state_machine.compiler import Compiler
from proxy_inference_engine.state_machine.demand import Demand, JsonSchema
from proxy_inference_engine.state_machine.machine import SPACED, MachineBuilder
from proxy_inference_engine.state_machine.vocabulary import GrammarVocabulary, Lark, pattern, quote
from tests.unit.state_machine.vocabularies import END, OTHER_END, PieceTokenizer, start

SPECIALS = ("<a>", "</a>", "<a>b", "[X]")
TOKENIZER = PieceTokenizer(pieces=["he", "hello"], specials=SPECIALS)
VOCABULARY = GrammarVocabulary(TOKENIZER, [*SPECIALS, "<not a token>"])
ID = TOKENIZER.specials
AWKWARD = [
    *'"\\/\n\r\t\0\x07\x7f\x80\x85\xa0',
    "\u2028\u2029\ufeff\ufffd",
    "é€😀",
    "👩\u200d👩\u200d👧 e\u0301",
    "'`$^&|~#-{}[]()*+?.<>%@!",
    "<[256]>",
    "\\u0041\\x41\\n",
    "// comment",
    "/regex/i",
    '"" ',
    "<｜tool▁calls▁begin｜>",
]


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("", []),
        ("hello", ["hello"]),
        ("<a>", [ID["<a>"]]),
        ("x<a>y</a>", ["x", ID["<a>"], "y", ID["</a>"]]),
        ("<a>b", [ID["<a>b"]]),  # the longest wins
        ("<a><a>", [ID["<a>"], ID["<a>"]]),
        ("<not a token>", ["<not a token>"]),
        ("<|end_a|>", ["<|end_a|>"]),  # a control token, but none of the family's
        ("[X][", [ID["[X]"], "["]),
    ],
)
def test_pieces(text: str, pieces: list[str | int]) -> None:
    assert VOCABULARY.pieces(text) == pieces


def test_without_markers_everything_is_text() -> None:
    plain = GrammarVocabulary(TOKENIZER, [])
    assert plain.pieces("x<a>") == ["x<a>"] and plain.pieces("") == []
    assert plain.markers == {}


def test_spell() -> None:
    assert VOCABULARY.spell('x"<a>') == f'"x\\"" <[{ID["<a>"]}]>'
    assert VOCABULARY.spell("") == '""'


def test_encode() -> None:
    assert VOCABULARY.encode("hello<a>he!") == [*TOKENIZER.encode("hello"), ID["<a>"], *TOKENIZER.encode("he!")]
    assert VOCABULARY.encode("") == []


class SpacingTokenizer(PieceTokenizer):
    """Puts a space before whatever it is given, as many vocabularies do."""

    def encode(self, text: str) -> list[int]:
        return super().encode(" " + text)


SPACING = SpacingTokenizer(pieces=[" a", " {", '{"', '": ', '":', "he", " he", "hello"], specials=SPECIALS)


@pytest.mark.parametrize("text", ["a", "hello", " hello", '{"a": 1}', "", "  ", *AWKWARD], ids=ascii)
def test_a_space_that_a_vocabulary_adds_is_left_out(text: str) -> None:
    vocabulary = GrammarVocabulary(SPACING, SPECIALS)
    for ids in (vocabulary.encode_inside(text), vocabulary.encode(text)):
        assert b"".join(map(SPACING.token_bytes, ids)) == text.encode()
    assert vocabulary.encode_inside("hello<a>") == PieceTokenizer.encode(SPACING, "hello<a>")


def test_what_is_forced_has_no_space_that_a_vocabulary_adds() -> None:
    schema = {"type": "object", "properties": {"hello": {"type": "integer"}}, "required": ["hello"]}
    builder = MachineBuilder(by_name("plain"), SPACING, spacing=SPACED)
    matcher = start(builder, Demand(output=JsonSchema(schema)))
    forced = matcher.forced()
    assert b"".join(map(SPACING.token_bytes, forced)) == b'{"hello": '
    for token_id in forced:
        matcher.accept(token_id)


@pytest.mark.parametrize("text", AWKWARD, ids=ascii)
def test_any_text_can_be_quoted(text: str) -> None:
    assert json.loads(quote(text)) == text
    _assert_only(Compiler(VOCABULARY), Lark(VOCABULARY), text)


def _assert_only(compiler: Compiler, lark: Lark, text: str) -> None:
    matcher = compiler.compile(lark.finish(lark.spell_plain(text)))
    assert matcher.consume_tokens(list(text.encode())) and matcher.is_stopped()


@pytest.mark.parametrize("text", [text for text in AWKWARD if "\0" not in text], ids=ascii)
def test_any_text_can_stand_in_a_pattern(text: str) -> None:
    lark = Lark(VOCABULARY)
    matcher = Compiler(VOCABULARY).compile(lark.finish(lark.terminal(f"/{pattern(text)}/")))
    assert matcher.consume_tokens(list(text.encode())) and matcher.is_stopped()


def test_random_texts_can_be_quoted() -> None:
    generator = random.Random(3)
    compiler = Compiler(VOCABULARY)
    for _ in range(60):
        text = "".join(chr(generator.choice([*range(32, 0x250), 0x1F600, 10])) for _ in range(12))
        _assert_only(compiler, Lark(VOCABULARY), text)


# Completing

PIECES = ("</th", "ink>", "k>!", "nk>", ">\n", "a</think>b", "</think")
CUT = GrammarVocabulary(PieceTokenizer(pieces=PIECES), ["</think>"])


@pytest.mark.parametrize(
    ("tail", "completing"),
    [
        (b"", ["a</think>b"]),
        (b"x", ["a</think>b"]),
        (b"</", ["a</think>b"]),
        (b"</th", ["ink>", "a</think>b"]),
        (b"</thi", ["nk>", "a</think>b"]),
        (b"x</thin", ["k>!", "a</think>b"]),
        (b"</think", [">", ">\n", "a</think>b"]),
        (b"</think</think", [">", ">\n", "a</think>b"]),
        (b"</think>", ["a</think>b"]),
        (b"</thinx", ["a</think>b"]),
    ],
)
def test_completing_a_text(tail: bytes, completing: list[str]) -> None:
    ids = {CUT.tokenizer.encode(text)[0] for text in completing}
    for _ in range(2):  # computed, and remembered
        assert set(CUT.completing("</think>", tail).tolist()) == ids | {END, OTHER_END}


def test_completing_agrees_with_a_slow_search() -> None:
    generator = random.Random(5)
    vocabulary = GrammarVocabulary(PieceTokenizer(pieces=["aab", "ab", "ba", "aa", "b!", "aabaab"]), [])
    for marker in ("aab", "abab", "a"):
        for _ in range(80):
            tail = bytes(generator.choice(b"ab") for _ in range(generator.randrange(8)))
            if marker.encode() in tail:
                continue
            slow = {
                token_id
                for token_id in range(vocabulary.num_tokens)
                if marker.encode() in tail + vocabulary.tokenizer.token_bytes(token_id)
            }
            assert set(vocabulary.completing(marker, tail).tolist()) == slow | {END, OTHER_END}, (marker, tail)


def test_completing_a_token() -> None:
    assert VOCABULARY.completing("<a>", b"anything").tolist() == [END, OTHER_END, ID["<a>"]]
