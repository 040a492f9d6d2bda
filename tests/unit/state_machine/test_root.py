"""The rules that make a root machine of a demand: each one a row."""

from dataclasses import replace

import pytest

from proxy_inference_engine.interaction import TextGrammar, Tool
from proxy_inference_engine.state_machine.demand import (
    AnyText,
    Demand,
    InvalidDemand,
    JsonObject,
    JsonSchema,
    ListedText,
    ToolChoice,
)
from proxy_inference_engine.state_machine.root import (
    FreeformText,
    ReasoningBlock,
    Root,
    StructuredOutput,
    ToolCalls,
    build_root,
)

A, B, C = Tool("a"), Tool("b"), Tool("c")
TEXT = FreeformText()
SCHEMA = JsonSchema({"type": "object"})
STRUCTURE = StructuredOutput(SCHEMA)
ALL = ToolCalls((A, B, C), (0, 1, 2), None)
TOOLS = Demand(tools=(A, B, C))


def _choose(mode: str, *names: str) -> ToolChoice:
    assert mode in ("auto", "required", "none")
    return ToolChoice(mode, frozenset(names) if names else None)  # type: ignore[arg-type]  # checked above


ROOTS: dict[str, tuple[Demand, Root]] = {
    "nothing": (Demand(), Root(text=TEXT)),
    "a schema": (Demand(output=SCHEMA), Root(structured=STRUCTURE)),
    "an object": (Demand(output=JsonObject()), Root(structured=StructuredOutput(JsonObject()))),
    "a choice": (Demand(output=ListedText(("x",))), Root(structured=StructuredOutput(ListedText(("x",))))),
    "a grammar": (
        Demand(output=TextGrammar("regex", "x")),
        Root(structured=StructuredOutput(TextGrammar("regex", "x"))),
    ),
    "tools, auto": (TOOLS, Root(text=TEXT, calls=ALL)),
    "tools, auto, a format": (replace(TOOLS, output=SCHEMA), Root(structured=STRUCTURE, calls=ALL)),
    "tools, required": (replace(TOOLS, tool_choice=_choose("required")), Root(calls=ALL)),
    "tools, required, a format": (replace(TOOLS, tool_choice=_choose("required"), output=SCHEMA), Root(calls=ALL)),
    "tools, named": (
        replace(TOOLS, tool_choice=_choose("required", "b")),
        Root(calls=ToolCalls((B,), (1,), None)),
    ),
    "tools, allowed": (
        replace(TOOLS, tool_choice=_choose("auto", "c", "a")),
        Root(text=TEXT, calls=ToolCalls((A, C), (0, 2), None)),
    ),
    "tools, allowed and required": (
        replace(TOOLS, tool_choice=_choose("required", "c", "a")),
        Root(calls=ToolCalls((A, C), (0, 2), None)),
    ),
    "tools, none": (replace(TOOLS, tool_choice=_choose("none")), Root(text=TEXT)),
    "tools, none, a format": (
        replace(TOOLS, tool_choice=_choose("none"), output=SCHEMA),
        Root(structured=STRUCTURE),
    ),
    "no tools, none": (Demand(tool_choice=_choose("none")), Root(text=TEXT)),
    "not parallel": (
        replace(TOOLS, is_parallel=False),
        Root(text=TEXT, calls=ToolCalls((A, B, C), (0, 1, 2), 1)),
    ),
    "at most three": (
        replace(TOOLS, max_calls=3),
        Root(text=TEXT, calls=ToolCalls((A, B, C), (0, 1, 2), 3)),
    ),
    "at most three, not parallel": (
        replace(TOOLS, max_calls=3, is_parallel=False),
        Root(text=TEXT, calls=ToolCalls((A, B, C), (0, 1, 2), 1)),
    ),
}


@pytest.mark.parametrize(("demand", "root"), ROOTS.values(), ids=ROOTS.keys())
def test_rules(demand: Demand, root: Root) -> None:
    assert build_root(demand, can_reason=False, can_repeat=True) == root


@pytest.mark.parametrize(("demand", "root"), ROOTS.values(), ids=ROOTS.keys())
@pytest.mark.parametrize("is_open", [True, False])
def test_a_model_that_reasons_does_so_first(demand: Demand, root: Root, is_open: bool) -> None:
    thinking = replace(demand, is_reasoning_open=is_open)
    expected = replace(root, reasoning=ReasoningBlock(is_open))
    assert build_root(thinking, can_reason=True, can_repeat=True) == expected
    assert build_root(thinking, can_reason=False, can_repeat=True) == root
    switched_off = build_root(replace(thinking, can_reason=False), can_reason=True, can_repeat=True)
    assert switched_off == (expected if is_open else root)  # what the prompt has opened is there all the same


def test_a_family_of_one_call_never_repeats() -> None:
    for demand in (TOOLS, replace(TOOLS, max_calls=3)):
        calls = build_root(demand, can_reason=False, can_repeat=False).calls
        assert calls is not None and calls.max_calls == 1


@pytest.mark.parametrize(
    ("demand", "message"),
    [
        (Demand(tool_choice=_choose("required")), "there are no tools"),
        (Demand(tool_choice=_choose("required", "a")), "there are no tools"),
        (Demand(tool_choice=_choose("auto", "a")), "there are no tools"),
        (replace(TOOLS, tool_choice=_choose("required", "d")), "no tool named 'd'"),
        (replace(TOOLS, tool_choice=_choose("auto", "a", "d")), "no tool named 'd'"),
        (replace(TOOLS, tool_choice=_choose("none", "d")), "no tool named 'd'"),
        (replace(TOOLS, tool_choice=_choose("required", "x" * 500)), f"{'x' * 64!r}"),
        (replace(TOOLS, tool_choice=ToolChoice("required", frozenset())), "no tool may be called"),
    ],
)
def test_refusals(demand: Demand, message: str) -> None:
    with pytest.raises(InvalidDemand, match=message) as caught:
        build_root(demand, can_reason=True, can_repeat=True)
    assert caught.value.subject == "tool_choice"
    assert len(caught.value.message) < 200


@pytest.mark.parametrize(("demand", "root"), ROOTS.values(), ids=ROOTS.keys())
def test_only_text_alone_is_free(demand: Demand, root: Root) -> None:
    assert root.is_free == (root == Root(text=TEXT))
    assert isinstance(demand.output, AnyText) or root.text is None
