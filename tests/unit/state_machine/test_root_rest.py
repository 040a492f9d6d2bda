"""What comes after a reasoning that is ended by force, as a grammar of its own: its end first, then the same answer."""

from dataclasses import replace

import pytest

from proxy_inference_engine.interaction import Tool
from proxy_inference_engine.state_machine.compilation import GrammarLimits, compile_grammar
from proxy_inference_engine.state_machine.demand import Demand, JsonSchema, ListedText, ToolChoice
from proxy_inference_engine.types import ReasoningBudget
from tests.unit.state_machine.families import NAMES, Family
from tests.unit.state_machine.vocabularies import constraint_of

TOOL = Tool(name="look", description="", parameters={"type": "object", "properties": {}, "additionalProperties": False})
DEMANDS = {
    "text": Demand(),
    "schema": Demand(output=JsonSchema({"enum": ["yes"]}, is_strict=True)),
    "tools": Demand(tools=(TOOL,)),
    "required": Demand(tools=(TOOL,), tool_choice=ToolChoice("required")),
    "both": Demand(tools=(TOOL,), output=ListedText(("yes",))),
}
FAMILIES = {
    f"{name}-{'tokens' if has_tokens else 'text'}": Family(name, has_tokens=has_tokens)
    for name in ("qwen3", "deepseek_r1", "glm45", "harmony")
    for has_tokens in (True, False)
}


def budget_of(family: Family, demand: Demand) -> ReasoningBudget:
    demand = replace(demand, can_reason=True, is_reasoning_open=True, max_reasoning_tokens=3)
    budget = constraint_of(family.builder.build(demand)).budget
    assert budget is not None
    return budget


@pytest.mark.parametrize("demand", DEMANDS.values(), ids=DEMANDS)
@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_it_begins_with_the_end_of_the_reasoning(family: Family, demand: Demand) -> None:
    rest = compile_grammar(family.builder.vocabulary.ll, budget_of(family, demand).rest, GrammarLimits())
    watch = budget_of(family, demand).start()
    for byte in b"abc":
        assert watch.forced() == []
        watch.accept(byte)
    closing = watch.forced()
    assert closing
    for token_id in closing:
        assert rest.consume_token(token_id), rest.get_error()
        watch.accept(token_id)
    assert watch.state != "reasoning" and not rest.is_error()


def test_the_answer_that_follows_is_bound() -> None:
    for family in (FAMILIES["qwen3-tokens"], FAMILIES["qwen3-text"]):
        rest = compile_grammar(family.builder.vocabulary.ll, budget_of(family, DEMANDS["schema"]).rest, GrammarLimits())
        forced = b"".join(map(family.tokenizer.token_bytes, rest.compute_ff_tokens()))
        assert forced.endswith(b'\n\n"yes"') and forced.startswith(b"</think>")


def test_a_family_that_does_not_reason_has_none() -> None:
    family = next(each for each in (Family(name, has_tokens=True) for name in NAMES) if not each.can_think)
    demand = Demand(output=ListedText(("yes",)), can_reason=True, max_reasoning_tokens=3)
    assert constraint_of(family.builder.build(demand)).budget is None


def test_one_without_a_budget_has_none() -> None:
    demand = Demand(output=ListedText(("yes",)), is_reasoning_open=True)
    assert constraint_of(FAMILIES["qwen3-tokens"].builder.build(demand)).budget is None
