"""One choice's walk: mask, forced tokens, completion, and what a wrong token does."""

import json
from dataclasses import replace

import llguidance
import numpy as np
import pytest
from llguidance import LLParserLimits

from proxy_inference_engine.formats import by_name
from proxy_inference_engine.interaction import Tool
from proxy_inference_engine.state_machine.demand import Demand, JsonSchema, ListedText
from proxy_inference_engine.state_machine.machine import MachineBuilder
from proxy_inference_engine.state_machine.matcher import GrammarFailure, GrammarTooComplex, RootMatcher
from proxy_inference_engine.types import Matcher
from tests.unit.state_machine.families import Family
from tests.unit.state_machine.vocabularies import END, OTHER_END, PieceTokenizer, constraint_of, start

PLAIN = Family("chatml", has_tokens=True)
THINKING = Family("qwen3", has_tokens=True)
IN_TEXT = Family("qwen3", has_tokens=False)


def _allowed(matcher: Matcher) -> set[int]:
    mask = matcher.mask()
    assert mask is not None
    return set(np.flatnonzero(mask).tolist())


def _accept(matcher: Matcher, data: bytes) -> None:
    for byte in data:
        matcher.accept(byte)


def test_a_matcher_without_a_grammar_binds_nothing() -> None:
    matcher = RootMatcher(None, None, 300)
    assert (matcher.state, matcher.mask(), matcher.forced(), matcher.is_complete) == ("text", None, [], False)
    matcher.accept(299)


def test_the_mask_is_as_wide_as_the_vocabulary() -> None:
    for num_pieces in range(0, 70, 7):
        tokenizer = PieceTokenizer(pieces=[f"piece{number}" for number in range(num_pieces)])
        builder = MachineBuilder(by_name("plain"), tokenizer)
        mask = start(builder, Demand(output=ListedText(("piece0", "x")))).mask()
        assert mask is not None and mask.dtype == np.bool_ and mask.shape == (258 + num_pieces,)


def test_the_mask_is_the_callers_to_keep() -> None:
    matcher = start(PLAIN.builder, Demand(output=ListedText(("ab", "cd"))))
    first = matcher.mask()
    assert first is not None
    kept = first.copy()
    matcher.accept(ord("a"))
    matcher.mask()
    assert (first == kept).all()


def test_a_prepared_mask_is_that_of_the_next_token() -> None:
    matcher, plain = (start(PLAIN.builder, Demand(output=ListedText(("abx", "aby", "cd")))) for _ in range(2))
    for byte in b"aby":
        matcher.prepare()
        assert _allowed(matcher) == _allowed(plain)
        matcher.accept(byte)
        plain.accept(byte)
        assert matcher.is_complete == plain.is_complete
    matcher.prepare()
    assert matcher.is_complete


_CHARS = {"a": 45, "é": 20, "😀": 12}  # and how many of them the longest piece has
_PIECES = [
    char * count for char, most in _CHARS.items() for count in range(1, most + 1) if len((char * count).encode()) > 1
]
_STRINGS = PieceTokenizer(pieces=[*_PIECES, *(piece + '"' for piece in _PIECES), "a\\n", "\\naaaaaaaa", "a\n"])


@pytest.mark.parametrize("longest", [0, 1, 2, 6, 7, 8, 9, 10, 11, 12, 13, 20, 29, 30, 31, 46, None])
def test_a_string_takes_every_token_it_has_room_for_and_no_other(longest: int | None) -> None:
    """Wherever the library's ready-made parts of a mask begin and end."""
    schema = {"type": "string"} if longest is None else {"type": "string", "maxLength": longest}
    matcher = start(MachineBuilder(by_name("plain"), _STRINGS), Demand(output=JsonSchema(schema)))
    matcher.accept(ord('"'))
    for room in range(100 if longest is None else longest, -1, -1)[:50]:
        pieces = [*_PIECES, "a", "a\\n", "\\naaaaaaaa"]
        fitting = {piece for piece in pieces if len(piece.replace("\\n", "n")) <= room}
        fitting |= {piece + '"' for piece in _PIECES if len(piece) <= room} | {'"'}
        texts = {_STRINGS.token_bytes(token_id) for token_id in _allowed(matcher)}
        expected = {text.encode() for text in fitting}
        assert {text for text in texts if len(text) > 1 or text in b'a"'} == expected, room
        if room:
            matcher.accept(ord("a"))


def test_asking_changes_nothing() -> None:
    matcher = start(PLAIN.builder, Demand(output=ListedText(("abc", "xbc"))))
    for _ in range(3):
        assert _allowed(matcher) == {ord("a"), ord("x")} and matcher.forced() == []
    matcher.accept(ord("a"))
    for _ in range(3):
        assert matcher.forced() == list(b"bc")


def test_forced_tokens_may_be_taken_one_by_one_or_left() -> None:
    demand = Demand(output=ListedText(("abcde", "abcdf")))
    matcher = start(PLAIN.builder, demand)
    for rest in (b"abcd", b"bcd", b"cd", b"d"):
        assert matcher.forced() == list(rest)
        matcher.accept(rest[0])
    assert matcher.forced() == []
    assert _allowed(matcher) == set(b"ef")


def test_every_forced_token_is_allowed() -> None:
    matcher = start(
        THINKING.builder, Demand(tools=(Tool("note"),), output=ListedText(("abc", "abd")), can_reason=False)
    )
    matcher.accept(THINKING.builder.vocabulary.markers["<tool_call>"])
    for token_id in matcher.forced():
        assert token_id in _allowed(matcher)
        matcher.accept(token_id)


def test_a_token_that_was_not_allowed_fails() -> None:
    matcher = start(PLAIN.builder, Demand(output=ListedText(("ab",))))
    with pytest.raises(GrammarFailure):
        matcher.accept(ord("x"))


def test_a_failed_matcher_stays_failed() -> None:
    matcher = start(PLAIN.builder, Demand(output=ListedText(("ab", "cd"))))
    with pytest.raises(GrammarFailure):
        matcher.accept(ord("x"))
    with pytest.raises(GrammarFailure):
        matcher.mask()


def test_steps_that_take_too_long_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or every other stream would wait for them. The first one is forgiven: it may be another process's doing."""
    monkeypatch.setattr("proxy_inference_engine.state_machine.matcher._SLOW_S", 0.0)
    monkeypatch.setattr("proxy_inference_engine.state_machine.matcher.MAX_OWED_S", 0.0)
    matcher = start(PLAIN.builder, Demand(output=JsonSchema({"type": "string"})))
    matcher.prepare()
    matcher.accept(ord('"'))
    with pytest.raises(GrammarTooComplex, match="too long"):
        matcher.prepare()
    other = start(PLAIN.builder, Demand(output=JsonSchema({"type": "string"})))
    assert ord('"') in _allowed(other), "one request's slowness is not another's"


def _limited(grammar: str, limits: LLParserLimits) -> Matcher:
    """A grammar that nobody tried before it is walked."""
    compiled = llguidance.LLMatcher(PLAIN.builder.vocabulary.ll, grammar, log_level=0, limits=limits)
    return RootMatcher(compiled, None, PLAIN.tokenizer.num_tokens)


MANY = {"type": "object", "properties": {f"a{number}": {"type": "string"} for number in range(900)}}


@pytest.mark.parametrize(
    ("grammar", "limits", "text"),
    [
        ("start: ((/[a-z ]/)?){5000}", LLParserLimits(step_max_items=500), b"a" * 50),
        (f"start: %json {json.dumps(MANY)}", LLParserLimits(), b'{"a1":"'),
        ("start: /([a-z]*[b-y]){20,30}x/", LLParserLimits(step_lexer_fuel=300), b"abc" * 30),
        ("start: /(.*a.{12})/", LLParserLimits(max_lexer_states=60), b"abc" * 30),
    ],
    ids=["items", "row", "fuel", "states"],
)
def test_a_grammar_over_the_librarys_limits_is_too_complex(grammar: str, limits: LLParserLimits, text: bytes) -> None:
    matcher = _limited(grammar, limits)
    with pytest.raises(GrammarTooComplex):
        for byte in text:
            assert byte in _allowed(matcher)
            matcher.accept(byte)


def test_a_token_that_was_not_allowed_is_no_complexity() -> None:
    matcher = start(PLAIN.builder, Demand(output=ListedText(("ab",))))
    with pytest.raises(GrammarFailure) as caught:
        matcher.accept(ord("x"))
    assert not isinstance(caught.value, GrammarTooComplex)


@pytest.mark.parametrize("token_id", [END, OTHER_END])
def test_an_end_token_completes(token_id: int) -> None:
    matcher = start(PLAIN.builder, Demand(output=JsonSchema({"type": "integer"})))
    _accept(matcher, b"12")
    assert not matcher.is_complete and {END, OTHER_END} <= _allowed(matcher)
    matcher.accept(token_id)
    assert matcher.is_complete


def test_two_matchers_of_one_constraint_are_independent() -> None:
    constraint = constraint_of(PLAIN.builder.build(Demand(output=ListedText(("abc", "xyz")))))
    one, two = constraint.start(), constraint.start()
    one.accept(ord("a"))
    assert _allowed(two) == {ord("a"), ord("x")}
    two.accept(ord("x"))
    assert (one.forced(), two.forced()) == (list(b"bc"), list(b"yz"))
    with pytest.raises(GrammarFailure):
        one.accept(ord("q"))
    _accept(two, b"yz")
    assert two.is_complete
    assert _allowed(constraint.start()) == {ord("a"), ord("x")}


# Reasoning


@pytest.mark.parametrize("family", [THINKING, IN_TEXT], ids=str)
def test_the_least_of_reasoning_is_masked(family: Family) -> None:
    demand = Demand(output=ListedText(("yes",)), is_reasoning_open=True, min_reasoning_tokens=12)
    matcher = start(family.builder, demand)
    closing = family.builder.vocabulary.encode("</think>")
    for token_id in closing[:-1]:
        assert token_id in _allowed(matcher), "a part of the marker is a thought like any other"
        matcher.accept(token_id)
    assert closing[-1] not in _allowed(matcher)
    assert not {END, OTHER_END} & _allowed(matcher)
    _accept(matcher, b"x" * 12)
    for token_id in closing:
        assert token_id in _allowed(matcher)
        matcher.accept(token_id)
    assert matcher.state == "structured"


def test_without_a_grammar_only_the_end_is_held_back() -> None:
    matcher = start(THINKING.builder, Demand(is_reasoning_open=True, min_reasoning_tokens=1))
    closing = THINKING.builder.vocabulary.markers["</think>"]
    assert _allowed(matcher) == set(range(THINKING.tokenizer.num_tokens)) - {END, OTHER_END, closing}
    matcher.accept(ord("a"))
    assert matcher.mask() is None


@pytest.mark.parametrize("family", [THINKING, IN_TEXT], ids=str)
def test_a_budget_is_forced_before_what_the_grammar_forces(family: Family) -> None:
    demand = Demand(output=ListedText(("yes",)), is_reasoning_open=True, max_reasoning_tokens=2)
    matcher = start(family.builder, demand)
    assert matcher.forced() == []
    _accept(matcher, b"ab")
    closing = family.builder.vocabulary.encode("</think>")
    assert matcher.forced() == closing
    for token_id in closing:
        matcher.accept(token_id)
    rest = b"".join(map(family.tokenizer.token_bytes, matcher.forced()))
    assert rest == b"\n\nyes"


@pytest.mark.parametrize("family", [THINKING, IN_TEXT], ids=str)
def test_a_budget_in_the_middle_of_the_marker(family: Family) -> None:
    """What the model began is no marker; the whole one follows."""
    begun = b"</thi"
    demand = Demand(output=ListedText(("yes",)), is_reasoning_open=True, max_reasoning_tokens=len(begun))
    matcher = start(family.builder, demand)
    _accept(matcher, begun)
    for token_id in matcher.forced():
        matcher.accept(token_id)
    assert matcher.state == "structured"
    for token_id in matcher.forced():
        matcher.accept(token_id)
    assert matcher.is_complete


def test_a_budget_of_nothing_and_a_least_of_something() -> None:
    """The most wins: a client that wants both cannot have more than it."""
    demand = Demand(output=ListedText(("yes",)), is_reasoning_open=True)
    matcher = start(THINKING.builder, replace(demand, min_reasoning_tokens=5, max_reasoning_tokens=0))
    assert matcher.forced() == THINKING.builder.vocabulary.encode("</think>")
