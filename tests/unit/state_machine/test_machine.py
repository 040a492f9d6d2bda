"""Machines of requests: their labels, what their errors name, what they share, their grammar as text, and threads."""

import json
import threading
from dataclasses import replace
from typing import Any

import llguidance
import numpy as np
import pytest

from proxy_inference_engine.formats import by_name
from proxy_inference_engine.interaction import TextGrammar, Tool, ToolKind
from proxy_inference_engine.runners.fake import ByteTokenizer
from proxy_inference_engine.state_machine.demand import (
    Demand,
    InvalidDemand,
    JsonObject,
    JsonSchema,
    ListedText,
    ToolChoice,
)
from proxy_inference_engine.state_machine.machine import MachineBuilder
from proxy_inference_engine.state_machine.matcher import RootMatcher
from proxy_inference_engine.state_machine.vocabulary import GrammarVocabulary
from tests.unit.state_machine.families import FAMILIES, Family
from tests.unit.state_machine.vocabularies import constraint_of, start, verdict

QWEN = Family("qwen3", has_tokens=True)
A, B = Tool("a"), Tool("b", "", {"type": "object", "properties": {"x": {"type": "integer"}}})
families = pytest.mark.parametrize("family", FAMILIES, ids=str)


def _fresh(family: Family = QWEN, **options: Any) -> MachineBuilder:
    return MachineBuilder(family.format, family.tokenizer, **options)


# Labels


@families
def test_labels_say_what_the_grammar_allows(family: Family) -> None:
    labels = family.builder.build(Demand(tools=(A, B), tool_choice=ToolChoice("auto", frozenset({"b"})))).labels
    assert labels.tools == {"b": B}
    assert labels.calls == family.format.calls and labels.channels == family.format.channels
    assert labels.thinking == family.format.thinking
    assert labels.tokens == {token_id: text for text, token_id in family.builder.vocabulary.markers.items()}
    assert bool(labels.tokens) == (family.has_tokens and bool(family.format.tokens))


@families
def test_labels_without_tools_or_reasoning(family: Family) -> None:
    labels = family.builder.build(Demand(can_reason=False)).labels
    assert (labels.thinking, labels.calls, labels.tools, labels.starts_in_reasoning) == (None, None, {}, False)
    assert labels.is_plain == (family.format.channels is None)


def test_labels_know_where_reasoning_starts() -> None:
    assert QWEN.builder.build(Demand(is_reasoning_open=True)).labels.starts_in_reasoning
    assert QWEN.builder.build(Demand(is_reasoning_open=True, can_reason=False)).labels.starts_in_reasoning
    assert not QWEN.builder.build(Demand(can_reason=False)).labels.starts_in_reasoning
    assert (
        not Family("chatml", has_tokens=True).builder.build(Demand(is_reasoning_open=True)).labels.starts_in_reasoning
    )


def test_what_binds_nothing_has_no_constraint() -> None:
    builder = _fresh()
    assert builder.build(Demand()).constraint is None
    assert builder.build(Demand(tools=(A,), tool_choice=ToolChoice("none"))).constraint is None
    assert builder.build(Demand(max_reasoning_tokens=3)).constraint is not None
    assert builder.build(Demand(max_reasoning_tokens=3, can_reason=False)).constraint is None
    assert _fresh(tracks_states=True).build(Demand()).constraint is not None


def test_what_is_relaxed_is_listed() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}
    machine = QWEN.builder.build(Demand(output=JsonSchema(schema, is_strict=False), tools=(Tool("f", "", schema),)))
    assert any(each.endswith("uniqueItems") and not each.startswith("f") for each in machine.relaxed)
    assert any(each.endswith("uniqueItems") and each.startswith("f") for each in machine.relaxed)


# Refusals

BAD_SCHEMA = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}


@families
@pytest.mark.parametrize(
    ("demand", "subject", "index", "words"),
    [
        (Demand(output=JsonSchema(BAD_SCHEMA)), "output", 0, ["uniqueItems", "/properties/a"]),
        (Demand(output=JsonSchema(False)), "output", 0, []),
        (Demand(output=JsonSchema({"x-guidance": {"lenient": True}})), "output", 0, ["x-guidance"]),
        (Demand(output=TextGrammar("regex", "(")), "output", 0, []),
        (Demand(output=TextGrammar("lark", "start: x")), "output", 0, []),
        (Demand(output=TextGrammar("lark", 'start: %json {"x-guidance": {}}')), "output", 0, ["x-guidance"]),
        (Demand(output=TextGrammar("lark", '%llguidance {}\nstart: "a"')), "output", 0, ["%llguidance"]),
        (Demand(tools=(A, Tool("f", "", {"x-guidance": {}}))), "tool", 1, ["'f'", "x-guidance"]),
        (Demand(tools=(A, Tool("f", kind=ToolKind.CUSTOM, grammar=TextGrammar("regex", "(")))), "tool", 1, ["'f'"]),
        (Demand(tools=(A, Tool("f", kind=ToolKind.CUSTOM, grammar=TextGrammar("lark", "x")))), "tool", 1, ["'f'"]),
        (Demand(tool_choice=ToolChoice("required")), "tool_choice", 0, []),
    ],
)
def test_refusals_name_what_is_wrong(
    family: Family, demand: Demand, subject: str, index: int, words: list[str]
) -> None:
    with pytest.raises(InvalidDemand) as caught:
        family.builder.build(demand)
    assert (caught.value.subject, caught.value.index) == (subject, index), caught.value.message
    assert all(word in caught.value.message for word in words), caught.value.message
    assert "\n" not in caught.value.message and len(caught.value.message) < 600


def test_a_tool_that_may_not_be_called_is_not_compiled() -> None:
    bad = Tool("bad", kind=ToolKind.CUSTOM, grammar=TextGrammar("regex", "("))
    choice = ToolChoice("required", frozenset({"a"}))
    assert QWEN.builder.build(Demand(tools=(bad, A), tool_choice=choice)).labels.tools == {"a": A}


def test_the_index_is_the_tools_place_in_the_clients_list() -> None:
    bad = Tool("bad", kind=ToolKind.CUSTOM, grammar=TextGrammar("regex", "("))
    with pytest.raises(InvalidDemand) as caught:
        QWEN.builder.build(Demand(tools=(A, B, bad), tool_choice=ToolChoice("auto", frozenset({"bad"}))))
    assert caught.value.index == 2


def test_a_refusal_is_not_remembered_as_a_machine() -> None:
    for _ in range(2):
        with pytest.raises(InvalidDemand):
            QWEN.builder.build(Demand(output=TextGrammar("regex", "(")))


# The cache

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"a": {"const": 1}, "b": {"type": "string"}}}
DIFFERENT = [
    Demand(),
    Demand(output=JsonObject()),
    Demand(output=JsonSchema(True)),
    Demand(output=JsonSchema(SCHEMA)),
    Demand(output=JsonSchema(SCHEMA, is_strict=False)),
    Demand(output=JsonSchema({**SCHEMA, "properties": {"a": {"const": True}, "b": {"type": "string"}}})),
    Demand(output=JsonSchema({**SCHEMA, "properties": {"a": {"const": 1.5}, "b": {"type": "string"}}})),
    Demand(output=JsonSchema({**SCHEMA, "properties": {"a": {"const": "1"}, "b": {"type": "string"}}})),
    Demand(output=JsonSchema({**SCHEMA, "properties": {"b": {"type": "string"}, "a": {"const": 1}}})),
    Demand(output=ListedText(("ab", "c"))),
    Demand(output=ListedText(("a", "bc"))),
    Demand(output=ListedText(("abc",))),
    Demand(output=TextGrammar("regex", "abc")),
    Demand(output=TextGrammar("lark", 'start: "abc"')),
    Demand(tools=(A,)),
    Demand(tools=(B,)),
    Demand(tools=(A, B)),
    Demand(tools=(B, A)),
    Demand(tools=(replace(A, kind=ToolKind.CUSTOM),)),
    Demand(tools=(replace(B, is_strict=True),)),
    Demand(tools=(A,), is_parallel=False),
    Demand(tools=(A,), can_reason=False),
    Demand(tools=(A,), is_reasoning_open=True),
    Demand(tools=(A,), min_reasoning_tokens=1),
    Demand(tools=(A,), max_reasoning_tokens=1),
    Demand(tools=(A,), max_reasoning_tokens=0),
    Demand(tools=(A, B), tool_choice=ToolChoice("required")),
    Demand(tools=(A, B), tool_choice=ToolChoice("none")),
    Demand(tools=(A, B), tool_choice=ToolChoice("required", frozenset({"a"}))),
    Demand(tools=(A, B), tool_choice=ToolChoice("required", frozenset({"b"}))),
    Demand(tools=(A, B), tool_choice=ToolChoice("auto", frozenset({"a", "b"}))),
]


def test_different_demands_never_share_a_machine() -> None:
    builder = _fresh()
    machines = [builder.build(demand) for demand in DIFFERENT]
    assert len({id(machine) for machine in machines}) == len(DIFFERENT)
    assert [builder.build(demand) for demand in DIFFERENT] == machines


def test_equal_demands_share_their_machine() -> None:
    builder = _fresh()
    names = [f"tool{number}" for number in range(20)]
    tools = tuple(Tool(name) for name in names)

    def demand(order: list[str]) -> Demand:
        schema = json.loads(json.dumps(SCHEMA))
        return Demand(JsonSchema(schema), tools, ToolChoice("auto", frozenset(order)))

    assert builder.build(demand(names)) is builder.build(demand(names[::-1]))


def test_the_least_recently_used_machine_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy_inference_engine.state_machine.machine._MAX_MACHINES", 2)
    builder = _fresh()
    first, second, third = (Demand(output=ListedText((text,))) for text in "abc")
    old, kept = builder.build(first), builder.build(second)
    builder.build(third)
    assert builder.build(second) is kept and builder.build(first) is not old


def test_builders_share_nothing() -> None:
    demand = Demand(output=ListedText(("a",)))
    assert _fresh().build(demand) is not _fresh().build(demand)


# Threads


def test_threads_build_and_walk_at_once() -> None:
    builder = _fresh()
    demands = [Demand(output=ListedText((f"a{number}", f"b{number}")), can_reason=False) for number in range(12)]
    failures: list[BaseException] = []
    barrier = threading.Barrier(6)

    def work(first: int) -> None:
        try:
            barrier.wait()
            for turn in range(36):
                number = (first + turn) % len(demands)
                assert verdict(builder, demands[number], f"a{number}") == "complete"
                assert verdict(builder, demands[number], f"a{number + 1}") == "refused"
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(first,)) for first in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_walking_does_not_disturb_who_starts_later() -> None:
    demand = Demand(tools=(A, B), tool_choice=ToolChoice("required"), can_reason=False)
    machine = QWEN.builder.build(demand)
    first = constraint_of(machine).start()
    before = first.forced()
    for token_id in before:
        first.accept(token_id)
    assert constraint_of(QWEN.builder.build(demand)).start().forced() == before
    assert start(QWEN.builder, demand).state == "tool_call"


# Names that one pattern and another both match, in an alternative and beside it: the library gives up on it.
_TOO_MUCH = {
    "type": "object",
    "properties": {"kind": {"type": "string"}},
    "required": ["kind"],
    "allOf": [
        {"anyOf": [{"patternProperties": {"^a+b?$": {"type": "integer"}}}, {"required": ["other"]}]},
        {"patternProperties": {"^a?b+$": {"type": "string"}}},
    ],
}


def test_what_the_library_cannot_compile_is_loosened_where_that_is_allowed() -> None:
    builder = MachineBuilder(by_name("chatml"), ByteTokenizer())
    for is_strict in (True, False):
        try:
            machine = builder.build(Demand(output=JsonSchema(_TOO_MUCH, is_strict)))
        except InvalidDemand as error:
            assert is_strict and error.subject == "output"
        else:
            assert not is_strict and machine.relaxed == ("/:*",)
            assert machine.constraint is not None
    tool = Tool("f", parameters=_TOO_MUCH)
    required = Demand(tools=(Tool("g"), tool), tool_choice=ToolChoice("required"))
    assert builder.build(required).relaxed == ("f/:*",)
    with pytest.raises(InvalidDemand) as caught:
        builder.build(replace(required, tools=(Tool("g"), replace(tool, is_strict=True))))
    assert (caught.value.subject, caught.value.index) == ("tool", 1)


def test_what_is_as_loose_as_can_be_is_not_loosened_again() -> None:
    """A grammar so large by its number of keys alone is refused at once: each further try would cost the same."""
    builder = MachineBuilder(by_name("chatml"), ByteTokenizer())
    tool = Tool("f", parameters={"type": "object", "properties": {f"key {number}": True for number in range(600)}})
    with pytest.raises(InvalidDemand, match="'f' cannot be enforced") as caught:
        builder.build(Demand(tools=(tool,), tool_choice=ToolChoice("required")))
    assert (caught.value.subject, caught.value.index) == ("tool", 0)


# The grammar as text, for an engine that is elsewhere

_COUNT = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}


@families
def test_a_grammar_sent_as_text_allows_and_refuses_the_same_tokens(family: Family) -> None:
    demand = Demand(JsonSchema(_COUNT), tools=(A, B), can_reason=False)
    constraint = constraint_of(_fresh(family).build(demand))
    assert constraint.grammar is not None
    elsewhere = GrammarVocabulary(family.tokenizer, family.format.tokens)
    sent = llguidance.LLMatcher(elsewhere.ll, constraint.grammar)
    ends = set()
    for text in (family.text('{"n":12}'), family.text('{"n":"12"}'), family.calls((B, {"x": 1})), "none of them"):
        here, there = constraint.start(), RootMatcher(sent.deep_copy(), None, elsewhere.num_tokens)
        for token_id in elsewhere.encode(text):
            allowed, also_allowed = here.mask(), there.mask()
            assert allowed is not None and also_allowed is not None
            assert np.array_equal(allowed, also_allowed)
            if not allowed[token_id]:
                break
            assert here.forced() == there.forced()
            here.accept(token_id)
            there.accept(token_id)
        assert here.is_complete == there.is_complete
        ends.add(here.is_complete)
    assert ends == {True, False}


def test_only_what_is_bound_by_a_grammar_has_one() -> None:
    builder = _fresh()
    assert builder.build(Demand()).constraint is None
    bounded = constraint_of(builder.build(Demand(max_reasoning_tokens=3)))
    assert bounded.grammar is None
    both = constraint_of(builder.build(Demand(ListedText(("yes", "no")), max_reasoning_tokens=3)))
    assert both.grammar is not None and "yes" in both.grammar


def test_a_loosened_grammar_is_sent_as_it_was_compiled() -> None:
    builder = MachineBuilder(by_name("chatml"), ByteTokenizer())
    grammar = constraint_of(builder.build(Demand(output=JsonSchema(_TOO_MUCH, is_strict=False)))).grammar
    assert grammar is not None and "kind" in grammar and "patternProperties" not in grammar
