"""What each family's grammar accepts and refuses, its markers as tokens and as text."""

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from proxy_inference_engine.interaction import Tool
from proxy_inference_engine.state_machine.demand import Demand, JsonSchema, ListedText, ToolChoice
from tests.unit.state_machine.families import FAMILIES, Family
from tests.unit.state_machine.vocabularies import END, OTHER_END, start, verdict, walk

GET = Tool(
    "get",
    "",
    {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "maximum": 30}},
        "required": ["city"],
        "additionalProperties": False,
    },
)
GET_IT = Tool("get_it")  # a name that begins with another's, and no parameters
TOOLS = (GET, GET_IT)
AUTO = Demand(tools=TOOLS)
REQUIRED = replace(AUTO, tool_choice=ToolChoice("required"))
NAMED = replace(AUTO, tool_choice=ToolChoice("required", frozenset({"get_it"})))
SCHEMA = JsonSchema(
    {"type": "object", "properties": {"k": {"type": "boolean"}}, "required": ["k"], "additionalProperties": False}
)
Call = tuple[Tool, dict[str, Any]]
PARIS: Call = (GET, {"city": "Paris", "days": 3})
OSLO: Call = (GET, {"city": "Oslo"})
IT: Call = (GET_IT, {})

families = pytest.mark.parametrize("family", FAMILIES, ids=str)
thinkers = pytest.mark.parametrize("family", [family for family in FAMILIES if family.can_think], ids=str)
repeaters = pytest.mark.parametrize("family", [family for family in FAMILIES if family.can_repeat], ids=str)


def check(family: Family, demand: Demand, *, passing: Iterable[str] = (), failing: Iterable[str] = ()) -> None:
    for text in passing:
        assert verdict(family.builder, demand, text) in ("ended", "complete"), f"should pass: {text!r}"
    for text in failing:
        assert verdict(family.builder, demand, text) in ("refused", "open"), f"should fail: {text!r}"


def _record(family: Family, value: object) -> str:
    spacing = family.builder.spacing
    return family.text(json.dumps(value, separators=(spacing.item, spacing.key)))


@families
def test_auto(family: Family) -> None:
    one, other = family.calls(PARIS), family.calls(IT)
    check(
        family,
        AUTO,
        passing=[family.text("hello"), family.text("é 😀 \\ \" ' \n\n\t{}[]<>"), one, other],
        failing=[one[:-1], one + "x", family.calls((GET, {"days": 3})), family.calls((GET, {"city": "x", "days": 99}))],
    )
    check(family, AUTO, failing=[one.replace("get", "nothing"), one.replace("city", "town")])


@families
def test_text_and_then_calls(family: Family) -> None:
    assert family.format.channels is not None or family.format.calls is not None
    both = family.before("Let me see.\n", family.calls(PARIS))
    if family.format.calls is not None and family.format.calls.is_at_start:
        check(family, AUTO, passing=[both])  # all of it is text
        assert verdict(family.builder, AUTO, both) == "ended"
        assert verdict(family.builder, AUTO, both + "x") == "ended"
    else:
        check(family, AUTO, passing=[both], failing=[both + "x", both[:-1]])


@families
def test_required(family: Family) -> None:
    one = family.calls(OSLO)
    check(
        family,
        REQUIRED,
        passing=[one, family.calls(IT)],
        failing=["", family.text("hello"), family.text(""), " " + one, family.before("now ", one), one + " "],
    )


@families
def test_named(family: Family) -> None:
    check(family, NAMED, passing=[family.calls(IT)], failing=[family.calls(PARIS), family.text("hello"), ""])


@repeaters
@pytest.mark.parametrize("demand", [AUTO, REQUIRED], ids=["auto", "required"])
def test_parallel(family: Family, demand: Demand) -> None:
    two, three = family.calls(PARIS, IT), family.calls(IT, IT, OSLO)
    check(family, demand, passing=[two, three], failing=[two + "x", family.calls(PARIS, (GET, {}))])
    single = replace(demand, is_parallel=False)
    check(family, single, failing=[two, three])
    assert verdict(family.builder, single, family.calls(PARIS)) == "complete"


@repeaters
@pytest.mark.parametrize("demand", [AUTO, REQUIRED, replace(AUTO, output=SCHEMA)], ids=["auto", "required", "format"])
@pytest.mark.parametrize("max_calls", [1, 2, 3, 1 << 62])
def test_no_more_calls_than_allowed(family: Family, demand: Demand, max_calls: int) -> None:
    """The last one that is allowed completes the answer: nothing is generated that would have to be dropped."""
    bound = replace(demand, max_calls=max_calls)
    prefix = "" if demand.output == AUTO.output else _begin_beside_a_structure(family)
    rows = {count: prefix + family.calls(*[PARIS, IT, OSLO, IT][:count]) for count in (1, 2, 3, 4)}
    allowed = [text for count, text in rows.items() if count <= max_calls]
    check(family, bound, passing=allowed, failing=[text for text in rows.values() if text not in allowed])
    if max_calls in rows:
        assert verdict(family.builder, bound, rows[max_calls]) == "complete"


@families
def test_one_call_of_a_family_that_cannot_repeat_completes_the_answer(family: Family) -> None:
    expected = "complete" if not family.can_repeat or (family.format.calls and family.format.calls.end) else "ended"
    assert verdict(family.builder, REQUIRED, family.calls(IT)) == expected


@families
def test_calls_or_a_structure(family: Family) -> None:
    demand = replace(AUTO, output=SCHEMA)
    check(
        family,
        demand,
        passing=[_record(family, {"k": True}), *(_beside_a_structure(family, call) for call in (PARIS, IT))],
        failing=[family.text("hello"), _record(family, {"k": 1}), _record(family, {}), ""],
    )
    assert verdict(family.builder, demand, _record(family, {"k": True})) == "complete"


def _beside_a_structure(family: Family, call: Call) -> str:
    return _begin_beside_a_structure(family) + family.calls(call)


def _begin_beside_a_structure(family: Family) -> str:
    """Calls that open like JSON need what is optional elsewhere, to be told apart."""
    syntax = family.format.calls
    return syntax.optional_begin if syntax is not None and syntax.is_at_start else ""


@families
def test_a_structure_alone(family: Family) -> None:
    none = replace(AUTO, output=SCHEMA, tool_choice=ToolChoice("none"))
    for demand in (Demand(output=SCHEMA), none):
        check(
            family,
            demand,
            passing=[_record(family, {"k": False})],
            failing=[family.calls(PARIS), family.text("hello"), _record(family, {"k": False, "l": 1})],
        )


@families
def test_none_is_free(family: Family) -> None:
    machine = family.builder.build(replace(AUTO, tool_choice=ToolChoice("none")))
    assert machine.labels.calls is None and not machine.labels.tools
    matcher = machine.constraint
    assert matcher is not None  # it only knows its state
    assert matcher.start().mask() is None and matcher.start().forced() == []


@families
@pytest.mark.parametrize(
    "demand", [Demand(output=SCHEMA), replace(REQUIRED, is_parallel=False)], ids=["format", "call"]
)
def test_after_acceptance_only_end_tokens(family: Family, demand: Demand) -> None:
    text = family.calls(PARIS) if demand.tools else _record(family, {"k": True})
    matcher = start(family.builder, demand)
    assert walk(matcher, family.builder.vocabulary.encode(text)) == "complete"
    assert matcher.forced() == []
    mask = matcher.mask()
    assert mask is not None and set(mask.nonzero()[0].tolist()) == {END, OTHER_END}


@families
def test_control_tokens_never_come_within_an_answer(family: Family) -> None:
    """An end token is allowed where the answer may end; no marker is ever a part of text."""
    matcher = start(family.builder, AUTO)
    walk(matcher, family.builder.vocabulary.encode(family.text("hello")))
    mask = matcher.mask()
    assert mask is not None
    markers = set(family.builder.vocabulary.markers.values())
    syntax = family.format.calls
    opening = set() if syntax is None else {family.builder.vocabulary.markers.get(syntax.opening)}
    assert {token_id for token_id in markers if mask[token_id]} <= opening - {None}


@families
def test_a_marker_in_text_always_begins_a_call(family: Family) -> None:
    syntax = family.format.calls
    if syntax is None or syntax.is_at_start:
        return
    check(
        family,
        AUTO,
        passing=[f"a {family.calls(IT)}"],
        failing=[f"a {syntax.opening}", f"a {syntax.opening} b", f"{syntax.opening}{syntax.opening}"],
    )


@families
def test_text_that_only_looks_like_a_call_is_text(family: Family) -> None:
    syntax = family.format.calls
    looks = ['{"name": get}', "tool_call>", "<tool_call", "[TOOL CALLS]", "```python\nget()\n```", "get(city='x')"]
    if syntax is not None:
        looks += [syntax.opening[:-1], f"a {syntax.opening[:-1]} b"]
    check(family, AUTO, passing=[family.text(text) for text in looks])
    if family.has_tokens and syntax is not None and syntax.opening in family.builder.vocabulary.markers:
        matcher = start(family.builder, AUTO)
        spelled = family.builder.vocabulary.tokenizer.encode(f"a {syntax.opening} b")
        assert walk(matcher, spelled) == "ended", "where the marker is a token its letters are not"


@pytest.mark.parametrize("has_tokens", [True, False])
def test_llama_calls_may_follow_a_tag_that_means_nothing(has_tokens: bool) -> None:
    family = Family("llama3", has_tokens)
    check(family, REQUIRED, passing=["<|python_tag|>" + family.calls(PARIS)])
    check(family, AUTO, passing=["<|python_tag|>" + family.calls(PARIS)])


# Reasoning


@thinkers
def test_reasoning_may_come_first(family: Family) -> None:
    call = family.calls(PARIS)
    thought = "hm, {} is it?\n\nyes 😀"
    check(
        family,
        AUTO,
        passing=[
            family.thought(thought, family.text("hello")),
            family.thought(thought, call),
            family.thought("", call),
        ],
    )
    check(
        family,
        REQUIRED,
        passing=[family.thought(thought, call), call],
        failing=[family.thought(thought, family.text("hello")), family.thought(thought, "")],
    )
    record = _record(family, {"k": True})
    check(
        family,
        Demand(output=SCHEMA),
        passing=[family.thought(thought, record), record],
        failing=[family.thought(thought, family.text("hello")), family.thought(thought, record)[:-1]],
    )
    assert verdict(family.builder, Demand(output=SCHEMA), family.thought(thought, record)) == "complete"


@thinkers
def test_reasoning_that_is_switched_off(family: Family) -> None:
    thought = family.thought("hm", family.calls(PARIS))
    check(family, replace(REQUIRED, can_reason=False), passing=[family.calls(PARIS)], failing=[thought])
    record = _record(family, {"k": True})
    demand = Demand(output=SCHEMA, can_reason=False)
    check(family, demand, passing=[record], failing=[family.thought("hm", record)])


@pytest.mark.parametrize("family", [family for family in FAMILIES if family.format.thinking is not None], ids=str)
def test_reasoning_that_the_prompt_opened(family: Family) -> None:
    thinking = family.format.thinking
    assert thinking is not None
    record = _record(family, {"k": True})
    inside = f"hm {{}} {thinking.closing}"
    check(
        family,
        Demand(output=SCHEMA, is_reasoning_open=True),
        passing=[inside + thinking.gap + record, thinking.closing + thinking.gap + record],
        failing=[record, "", "hm", inside, inside + "hello"],
    )
    check(
        family,
        replace(REQUIRED, is_reasoning_open=True),
        passing=[inside + thinking.gap + family.calls(PARIS)],
        failing=["hm", inside + "hello"],
    )
    check(family, replace(AUTO, is_reasoning_open=True), passing=[inside + "hello", inside + "\n" + family.calls(IT)])


@pytest.mark.parametrize("family", [family for family in FAMILIES if family.format.thinking is not None], ids=str)
@pytest.mark.parametrize("demand", [AUTO, REQUIRED, replace(AUTO, output=SCHEMA)], ids=["auto", "required", "format"])
def test_a_call_ends_the_reasoning(family: Family, demand: Demand) -> None:
    call = family.calls(PARIS)
    check(family, replace(demand, is_reasoning_open=True), passing=[f"hm {call}"], failing=[f"hm {call}x"])
    syntax = family.format.calls
    assert syntax is not None
    check(family, replace(demand, is_reasoning_open=True), failing=[f"hm {syntax.opening} hm"])


@thinkers
def test_a_choice_after_reasoning(family: Family) -> None:
    demand = Demand(output=ListedText(("yes", "no")))
    check(
        family,
        demand,
        passing=[family.thought("hm", family.text("yes")), family.text("no")],
        failing=[family.thought("hm", family.text("maybe")), family.text("yesno"), ""],
    )
