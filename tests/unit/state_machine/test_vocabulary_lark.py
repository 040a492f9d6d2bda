"""Grammars under construction: names, equal rules, texts up to a marker."""

import json

import pytest

from proxy_inference_engine.state_machine.compiler import Compiler
from proxy_inference_engine.state_machine.vocabulary import GrammarVocabulary, Lark
from tests.unit.state_machine.vocabularies import PieceTokenizer

MARKERS = ("<end>", "<go>")
AS_TOKENS = GrammarVocabulary(PieceTokenizer(specials=MARKERS), MARKERS)
AS_TEXT = GrammarVocabulary(PieceTokenizer(), MARKERS)
both = pytest.mark.parametrize("vocabulary", [AS_TOKENS, AS_TEXT], ids=["tokens", "text"])


def _accepts(vocabulary: GrammarVocabulary, grammar: str, text: str) -> bool:
    matcher = Compiler(vocabulary).compile(grammar)
    ids = vocabulary.encode(text)
    return matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()


def _main(lark: Lark) -> list[str]:
    text: str = json.loads(lark.finish("x"))["grammars"][0]["lark_grammar"]
    return text.split("\n")


def test_equal_rules_exist_once() -> None:
    lark = Lark(AS_TEXT)
    assert lark.rule('"a"') == lark.rule('"a"')
    assert lark.terminal('"a"') == lark.terminal('"a"') != lark.rule('"a"')
    assert lark.until("<end>") == lark.until("<end>") != lark.until("<go>")
    assert len(_main(lark)) == 1 + 4


def test_names_never_collide() -> None:
    lark = Lark(AS_TEXT)
    names = [lark.rule(f'"{number}"') for number in range(5)] + [lark.terminal(f"/{number}/") for number in range(5)]
    assert len(set(names)) == 10
    assert len({line.split(":")[0] for line in _main(lark)}) == 11


def test_client_grammars_have_names_of_their_own() -> None:
    lark = Lark(AS_TEXT)
    rule = lark.rule('"main"')
    one = lark.nested(f'start: {rule} "!"\n{rule}: "one"')
    two = lark.nested(f'start: {rule} "?"\n{rule}: "two"')
    grammar = lark.finish(f"{rule} {one} {two}")
    assert _accepts(AS_TEXT, grammar, "mainone!two?")
    assert not _accepts(AS_TEXT, grammar, "mainmain!two?")


@both
def test_text_until_a_marker_ends_at_its_first_occurrence(vocabulary: GrammarVocabulary) -> None:
    lark = Lark(vocabulary)
    grammar = lark.finish(f'{lark.until("<end>")} "!"')
    for text in ("", "a", "a\n<en", "é😀", "<<end"):
        assert _accepts(vocabulary, grammar, f"{text}<end>!"), text
        assert not _accepts(vocabulary, grammar, f"{text}<end>"), text
    assert not _accepts(vocabulary, grammar, "a<end>b<end>!")


@both
def test_a_marker_of_several_pieces(vocabulary: GrammarVocabulary) -> None:
    lark = Lark(vocabulary)
    grammar = lark.finish(lark.until("<end>now<go>"))
    assert _accepts(vocabulary, grammar, "a<end>now<go>")
    assert not _accepts(vocabulary, grammar, "a<end>then<go>")


@both
def test_text_without_a_marker(vocabulary: GrammarVocabulary) -> None:
    lark = Lark(vocabulary)
    grammar = lark.finish(f"{lark.text_without('<end>')}")
    assert all(_accepts(vocabulary, grammar, text) for text in ("", "a", "<end", "end>", "a\nb"))
    assert not any(_accepts(vocabulary, grammar, text) for text in ("<end>", "a<end>", "a<end>b"))


@both
def test_any_text(vocabulary: GrammarVocabulary) -> None:
    lark = Lark(vocabulary)
    grammar = lark.finish(lark.any_text())
    assert all(_accepts(vocabulary, grammar, text) for text in ("", "a", "\n\n", "é"))
    assert _accepts(vocabulary, grammar, "<end>") == (vocabulary is AS_TEXT), "a marker that is a token is no text"


def test_is_token() -> None:
    lark = Lark(AS_TOKENS)
    assert lark.is_token("<end>")
    assert not any(map(lark.is_token, ("", "end", "<end>!", "<end><end>")))
    assert not Lark(AS_TEXT).is_token("<end>")
