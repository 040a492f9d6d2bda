"""The words of a model as bytes, and the tokenizer another process makes of them."""

import pickle

import pytest

from proxy_inference_engine.state_machine.compilation import GrammarLimits, Lexicon, compile_grammar
from proxy_inference_engine.state_machine.vocabulary import GrammarVocabulary
from tests.unit.state_machine.vocabularies import END, OTHER_END, PieceTokenizer

MODEL = GrammarVocabulary(PieceTokenizer(pieces=["ab", "\n", "é", "\0\0"], specials=["<think>"]), ["<think>"])


def test_they_travel_as_bytes() -> None:
    assert Lexicon.unpack(MODEL.lexicon.pack()) == MODEL.lexicon


@pytest.mark.parametrize("bos_id", [None, 0, 7])
def test_odd_tokens_travel_too(bos_id: int | None) -> None:
    lexicon = Lexicon([b"", b"\n", b"[1]\n", bytes(range(256)), b""], [0, 4], [4], bos_id)
    assert Lexicon.unpack(lexicon.pack()) == lexicon


def test_the_other_process_has_the_same_words() -> None:
    ours, theirs = MODEL.ll, Lexicon.unpack(MODEL.lexicon.pack()).greedy_tokenizer()
    assert (ours.vocab_size, ours.eos_tokens) == (theirs.vocab_size, theirs.eos_tokens)
    assert set(theirs.eos_tokens) == {END, OTHER_END}
    special = [token_id for token_id in range(ours.vocab_size) if ours.is_special_token(token_id)]
    assert special == [token_id for token_id in range(theirs.vocab_size) if theirs.is_special_token(token_id)]
    assert theirs.tokenize_str("abé") == ours.tokenize_str("abé")


def test_the_library_writes_no_compiled_grammar_down() -> None:
    """Why none is kept on disk. Should this fail one day, think again."""
    matcher = compile_grammar(MODEL.ll, 'start: "ab"', GrammarLimits())
    with pytest.raises(TypeError):
        pickle.dumps(matcher)
    assert not [name for name in dir(matcher) if "serial" in name or name in {"save", "load", "dump", "to_bytes"}]
