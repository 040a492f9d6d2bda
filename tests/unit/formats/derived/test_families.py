"""Every family by name: its calls and its reasoning, from the template over the grammar to what a client gets."""

from dataclasses import replace

import pytest

from proxy_inference_engine.interaction import Interaction, Role
from proxy_inference_engine.prompt.render import PromptRenderer
from proxy_inference_engine.runners.fake import ByteTokenizer
from proxy_inference_engine.state_machine.demand import Demand, ToolChoice
from proxy_inference_engine.state_machine.machine import MachineBuilder
from tests.unit.formats.derived.families import FAMILIES, Family
from tests.unit.formats.derived.test_corpus import ASK, PARIS, ROOM, WEATHER, meant, read
from tests.unit.output.parsing import cuts, itemise, parse
from tests.unit.state_machine.vocabularies import PieceTokenizer, verdict

every_family = pytest.mark.parametrize("family", FAMILIES, ids=str)


def renderer(family: Family) -> PromptRenderer:
    return PromptRenderer(ByteTokenizer(), family.fitted.format, family.fitted.template)


def demand(family: Family) -> Demand:
    """As it is made of a request: the prompt may have opened the reasoning."""
    is_open = renderer(family).chat([ASK], tools=[WEATHER]).opens_reasoning
    return Demand(tools=(WEATHER,), is_reasoning_open=is_open)


def written(family: Family, turn: Interaction) -> str:
    return renderer(family).text([ASK, turn], tools=[WEATHER], add_generation_prompt=False)


@every_family
def test_a_history_is_what_its_model_would_have_written(family: Family) -> None:
    turn = Interaction.of(Role.ASSISTANT, "", tool_calls=(PARIS, ROOM), reasoning_content="I look.")
    whole = written(family, turn)
    assert family.fitted.format.reads_tools and family.fitted.format.reads_calls
    assert family.reasoning + family.calls in whole


@pytest.mark.parametrize("has_tokens", [False, True])
@every_family
def test_its_answer_is_read_however_it_is_cut(family: Family, has_tokens: bool) -> None:
    format, answer = family.fitted.format, family.reasoning + family.calls
    builder = MachineBuilder(format, PieceTokenizer(specials=sorted(format.tokens) if has_tokens else []))
    try:
        labels = builder.build(demand(family)).labels
    finally:
        builder.close()
    for items in cuts(itemise(answer, labels)):
        parsed = parse(labels, items)
        assert read(parsed) == meant(PARIS, ROOM)
        assert parsed.reasoning == ("I look." if family.reasoning else "") and not parsed.content.strip()


def answered(family: Family, turn: Interaction) -> str:
    """What of a history its model has written: neither the prompt nor the end of the turn."""
    whole = written(family, turn)
    prompt = renderer(family).text([ASK], tools=[WEATHER])
    stop = renderer(family).text([ASK], add_generation_prompt=False).partition(ASK.text)[2]
    start = whole.rindex(family.reasoning) if family.reasoning else len(prompt)
    return whole[start:].removesuffix(stop)


@every_family
def test_a_text_comes_without_what_stands_around_it(family: Family) -> None:
    """Alone, and before a call where the family can tell both apart."""
    thought = "I look." if family.reasoning else ""
    builder = MachineBuilder(family.fitted.format, PieceTokenizer())
    try:
        labels = builder.build(demand(family)).labels
    finally:
        builder.close()
    for calls in ((), () if family.syntax.is_at_start else (PARIS,)):
        turn = Interaction.of(Role.ASSISTANT, "Fine [1].", tool_calls=calls, reasoning_content=thought)
        for items in cuts(itemise(answered(family, turn), labels)):
            parsed = parse(labels, items)
            assert (parsed.content.strip(), parsed.reasoning, read(parsed)) == ("Fine [1].", thought, meant(*calls))


@pytest.mark.parametrize("has_tokens", [False, True])
@every_family
def test_its_grammar_allows_it_and_nothing_else(family: Family, has_tokens: bool) -> None:
    format, auto, answer = family.fitted.format, demand(family), family.reasoning + family.calls
    builder = MachineBuilder(format, PieceTokenizer(specials=sorted(format.tokens) if has_tokens else []))
    try:
        for each in (auto, replace(auto, tool_choice=ToolChoice("required"))):
            assert verdict(builder, each, answer) in ("ended", "complete")
        assert verdict(builder, each, answer.replace("get_weather", "get_whether")) == "refused"
        assert verdict(builder, each, answer.replace("city", "town")) == "refused"
    finally:
        builder.close()
