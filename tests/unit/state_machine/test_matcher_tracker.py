"""Where a choice stands, token by token, and how its reasoning is held to its bounds."""

from collections.abc import Iterable
from dataclasses import replace
from functools import cache

import pytest

from proxy_inference_engine.formats import by_name
from proxy_inference_engine.interaction import Tool
from proxy_inference_engine.state_machine.demand import Demand, JsonObject, ToolChoice
from proxy_inference_engine.state_machine.machine import MachineBuilder
from proxy_inference_engine.state_machine.matcher import Route, Tracker
from proxy_inference_engine.state_machine.vocabulary import GrammarVocabulary
from proxy_inference_engine.types import State
from tests.unit.state_machine.vocabularies import END, OTHER_END, PieceTokenizer, start

MARKERS = ("<think>", "</think>", "<tool_call>")
AS_TOKENS = GrammarVocabulary(PieceTokenizer(specials=MARKERS), MARKERS)
AS_TEXT = GrammarVocabulary(PieceTokenizer(pieces=["</th", "ink>", "k>!", "\n\n"]), MARKERS)
FREE = Route("text", opening="<think>", closing="</think>", call_opening="<tool_call>")
OPEN = replace(FREE, starts_in_reasoning=True)
AT_START = Route("text", call_opening="{call", is_call_at_start=True, is_call_in_reasoning=False)
TAGGED = replace(AT_START, call_preamble="<tag>")
LETTERS: dict[State, str] = {"text": "t", "reasoning": "r", "tool_call": "c", "structured": "s"}
both = pytest.mark.parametrize("vocabulary", [AS_TOKENS, AS_TEXT], ids=["tokens", "text"])


def _feed(tracker: Tracker, vocabulary: GrammarVocabulary, text: str) -> None:
    for token_id in vocabulary.encode(text):
        tracker.feed(token_id)


@pytest.mark.parametrize(
    ("route", "parts", "states"),
    [
        (Route("text"), ["a", "<think>", "b", "<tool_call>"], "ttttt"),
        (FREE, ["a", "b"], "ttt"),
        (FREE, ["<think>", "a", "</think>", "b"], "trrtt"),
        (FREE, ["\n \t", "<think>", "a"], "ttrr"),
        (FREE, ["a", "<think>", "b"], "tttt"),
        (FREE, ["a ", "<tool_call>", "b", "</think>"], "ttccc"),
        (FREE, ["<think>", "a", "<tool_call>", "b"], "trrcc"),
        (FREE, ["<tool_call>", "<think>", "a"], "tccc"),
        (OPEN, ["a", "</think>", "b", "<tool_call>"], "rrttc"),
        (OPEN, ["a", "<think>", "b", "</think>", "c"], "rrrrtt"),
        (OPEN, ["<tool_call>", "a"], "rcc"),
        (replace(OPEN, answer="structured"), ["a", "</think>", "{}"], "rrss"),
        (Route("text", starts_in_call=True), ["a", "</think>"], "ccc"),
        (AT_START, ["{call", "a"], "tcc"),
        (AT_START, [" \n{call", "a"], "tcc"),
        (AT_START, ["a", "{call"], "ttt"),
        (TAGGED, ["<tag>", "{call", "a"], "ttcc"),
        (TAGGED, ["{call"], "tc"),
        (TAGGED, ["<tag>a", "{call"], "ttt"),
        (replace(OPEN, is_call_in_reasoning=False), ["a", "<tool_call>", "</think>", "<tool_call>"], "rrrtc"),
        (replace(AT_START, starts_in_reasoning=True, closing="</think>"), ["{call", "</think>", "{call"], "rrtc"),
    ],
)
@both
def test_states(vocabulary: GrammarVocabulary, route: Route, parts: list[str], states: str) -> None:
    tracker = Tracker(route, vocabulary)
    seen = LETTERS[tracker.state]
    for part in parts:
        _feed(tracker, vocabulary, part)
        seen += LETTERS[tracker.state]
    assert seen == states


def test_where_a_marker_is_a_token_its_text_is_only_text() -> None:
    tracker = Tracker(OPEN, AS_TOKENS)
    states: list[State] = []
    for token_id in [*b"a</think><tool_call>", AS_TOKENS.markers["</think>"]]:
        tracker.feed(token_id)
        states.append(tracker.state)
    assert set(states[:-1]) == {"reasoning"} and states[-1] == "text"


def test_a_marker_in_text_may_end_within_a_token() -> None:
    tracker = Tracker(OPEN, AS_TEXT)
    ids = [*b"a</thin", *AS_TEXT.tokenizer.encode("k>!")]
    assert len(ids) == 8
    for token_id in ids:
        tracker.feed(token_id)
    assert tracker.state == "text"


# The most


@both
@pytest.mark.parametrize("most", [0, 1, 4])
def test_the_budget_is_due_at_its_token_and_once(vocabulary: GrammarVocabulary, most: int) -> None:
    tracker = Tracker(replace(OPEN, max_reasoning_tokens=most), vocabulary)
    for token_id in b"abcd"[:most]:
        assert tracker.due_closing() == []
        tracker.feed(token_id)
    closing = vocabulary.encode("</think>")
    assert tracker.due_closing() == closing
    for index, token_id in enumerate(closing):
        assert tracker.due_closing() == closing[index:], "one by one as well as together"
        tracker.feed(token_id)
    assert tracker.state == "text"
    assert tracker.due_closing() == []


@both
def test_a_budget_waits_for_a_whole_character(vocabulary: GrammarVocabulary) -> None:
    for text in ("é", "€", "😀", "a"):
        data = text.encode()
        tracker = Tracker(replace(OPEN, max_reasoning_tokens=1), vocabulary)
        for byte in data:
            assert tracker.due_closing() == []
            tracker.feed(byte)
        assert tracker.due_closing() != []


@pytest.mark.parametrize("data", [b"\x80\x80\x80\x80\x80", b"\xc3a", b"\xff", b"\xf0\x9f\x98\x80"])
def test_a_budget_closes_after_bytes_that_are_no_text(data: bytes) -> None:
    tracker = Tracker(replace(OPEN, max_reasoning_tokens=1), AS_TEXT)
    for byte in data * 4:
        tracker.feed(byte)
    tracker.feed(ord("a"))
    assert tracker.due_closing() != []


@both
def test_no_budget_after_the_reasoning_or_without_one(vocabulary: GrammarVocabulary) -> None:
    tracker = Tracker(replace(FREE, max_reasoning_tokens=2), vocabulary)
    _feed(tracker, vocabulary, "a long answer")
    assert tracker.due_closing() == []
    tracker = Tracker(replace(OPEN, max_reasoning_tokens=20), vocabulary)
    _feed(tracker, vocabulary, "a</think>and a long answer")
    assert tracker.due_closing() == []


@both
def test_a_reasoning_the_model_opened_is_counted_from_its_opening(vocabulary: GrammarVocabulary) -> None:
    tracker = Tracker(replace(FREE, max_reasoning_tokens=3), vocabulary)
    _feed(tracker, vocabulary, "<think>ab")
    assert tracker.due_closing() == []
    _feed(tracker, vocabulary, "c")
    assert tracker.due_closing() == vocabulary.encode("</think>")


@both
def test_a_second_block_of_reasoning_has_no_budget_of_its_own(vocabulary: GrammarVocabulary) -> None:
    """Where no grammar binds, a model that was cut short may open a block again: that one must close at once."""
    tracker = Tracker(replace(OPEN, max_reasoning_tokens=2), vocabulary)
    _feed(tracker, vocabulary, "ab")
    for token_id in tracker.due_closing():
        tracker.feed(token_id)
    _feed(tracker, vocabulary, "<think>")
    assert tracker.state == "reasoning"
    assert tracker.due_closing() == vocabulary.encode("</think>")


# The least


@both
def test_the_end_of_reasoning_is_held_back(vocabulary: GrammarVocabulary) -> None:
    tracker = Tracker(replace(OPEN, min_reasoning_tokens=3), vocabulary)
    for token_id in b"abc":
        held = tracker.held_ids()
        assert held is not None and {END, OTHER_END} <= set(held.tolist())
        tracker.feed(token_id)
    assert tracker.held_ids() is None


def test_a_text_marker_is_held_back_only_where_it_would_be_complete() -> None:
    tracker = Tracker(replace(OPEN, min_reasoning_tokens=50), AS_TEXT)

    def held() -> set[int]:
        ids = tracker.held_ids()
        assert ids is not None
        return set(ids.tolist()) - {END, OTHER_END}

    whole, half, longer = (AS_TEXT.tokenizer.encode(text)[0] for text in (">", "ink>", "k>!"))
    assert held() == set()
    for part, expected in (("x</t", set()), ("h", {half}), ("in", {longer}), ("k", {whole}), ("x", set())):
        _feed_bytes(tracker, part.encode())
        assert held() == expected, part


def _feed_bytes(tracker: Tracker, data: Iterable[int]) -> None:
    for byte in data:
        tracker.feed(byte)


@both
def test_a_call_does_not_end_the_reasoning_too_early(vocabulary: GrammarVocabulary) -> None:
    """With tools, a call's opening ends the reasoning as well: it has to be held back too."""
    tracker = Tracker(replace(OPEN, min_reasoning_tokens=50), vocabulary)
    *begun, last = vocabulary.encode("<tool_call>")
    _feed_bytes(tracker, begun)
    held = tracker.held_ids()
    assert held is not None and last in held


# Families


@cache
def _builder(name: str) -> MachineBuilder:
    family = by_name(name)
    return MachineBuilder(family, PieceTokenizer(specials=sorted(family.tokens)), tracks_states=True)


F = Tool("f")
HARMONY_CALL = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}"
THOUGHT = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant"


@pytest.mark.parametrize(
    ("name", "demand", "text", "state"),
    [
        ("qwen3", Demand(tools=(F,)), "<tool_call>", "tool_call"),
        ("qwen3", Demand(tools=(F,), output=JsonObject()), "<tool_call>", "tool_call"),
        ("qwen3", Demand(tools=(F,), output=JsonObject()), "<think>a</think>\n\n<tool_call>", "tool_call"),
        ("qwen3", Demand(tools=(F,), output=JsonObject()), "<think>a</think>\n\n{", "structured"),
        ("qwen3", Demand(tools=(F,), tool_choice=ToolChoice("required")), "<think>a", "reasoning"),
        (
            "qwen3",
            Demand(tools=(F,), tool_choice=ToolChoice("required")),
            "<think>a</think>\n\n<tool_call>",
            "tool_call",
        ),
        ("chatml", Demand(tools=(F,), tool_choice=ToolChoice("required")), "", "tool_call"),
        ("llama3", Demand(tools=(F,)), '{"name": "f', "tool_call"),
        ("llama3", Demand(tools=(F,)), '<|python_tag|>{"name": "f', "tool_call"),
        ("llama3", Demand(tools=(F,)), 'x {"name": "f', "text"),
        ("gemma3", Demand(tools=(F,)), "now ```tool_code\nf(", "tool_call"),
        ("harmony", Demand(tools=(F,)), "<|channel|>final<|message|>a", "text"),
        ("harmony", Demand(tools=(F,)), "<|channel|>analysis<|message|>a", "reasoning"),
        ("harmony", Demand(tools=(F,)), THOUGHT + HARMONY_CALL[:-2], "tool_call"),
        ("harmony", Demand(tools=(F,)), HARMONY_CALL[:-2], "tool_call"),
        ("harmony", Demand(tools=(F,), output=JsonObject()), HARMONY_CALL[:-2], "tool_call"),
        ("harmony", Demand(tools=(F,), output=JsonObject()), THOUGHT + HARMONY_CALL[:-2], "tool_call"),
        ("harmony", Demand(output=JsonObject()), THOUGHT + "<|channel|>final<|message|>{", "structured"),
    ],
)
def test_families(name: str, demand: Demand, text: str, state: State) -> None:
    builder = _builder(name)
    matcher = start(builder, demand)
    for token_id in builder.vocabulary.encode(text):
        matcher.accept(token_id)
    assert matcher.state == state
