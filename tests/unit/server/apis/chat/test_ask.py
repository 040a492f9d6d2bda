"""Bodies to demands, and what a demand that cannot be met is called in the body's own words."""

import threading
from typing import Any, Literal

import pytest

from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.interaction import TextGrammar, Tool, ToolKind
from proxy_inference_engine.runners.fake import ByteTokenizer
from proxy_inference_engine.server.apis.chat.ask import Conversation, make_ask, make_demand, name_demand, names_tool
from proxy_inference_engine.server.apis.chat.schema import ChatRequest
from proxy_inference_engine.server.apis.shared.fields import validate
from proxy_inference_engine.server.apis.shared.reasoning import ReasoningWishes
from proxy_inference_engine.server.apis.shared.tools import make_tools
from proxy_inference_engine.state_machine.demand import (
    AnyText,
    Demand,
    InvalidDemand,
    JsonObject,
    JsonSchema,
    ListedText,
    OutputFormat,
    ToolChoice,
)
from tests.unit.served.scripted import ScriptedEngine, served, whole


class Noting(ByteTokenizer):
    """Notes who makes it work."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: set[threading.Thread] = set()

    def encode(self, text: str) -> list[int]:
        self.threads.add(threading.current_thread())
        return super().encode(text)


F = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}
G = {"type": "function", "function": {"name": "g", "strict": True}}
C = {"type": "custom", "custom": {"name": "c"}}
L = {
    "type": "custom",
    "custom": {"name": "l", "format": {"type": "grammar", "grammar": {"syntax": "lark", "definition": "x"}}},
}
TOOLS = [F, G, C, L]


def chat(**fields: Any) -> ChatRequest:
    return validate(ChatRequest, {"model": "m", "messages": [{"role": "user", "content": "x"}], **fields})


def demand(**fields: Any) -> Demand:
    body = chat(**fields)
    return make_demand(body, make_tools(body.tools), ReasoningWishes({}))


def test_tools_arrive_in_their_order() -> None:
    assert demand(tools=TOOLS).tools == (
        Tool("f", "d", {"type": "object"}),
        Tool("g", is_strict=True),
        Tool("c", kind=ToolKind.CUSTOM),
        Tool("l", kind=ToolKind.CUSTOM, grammar=TextGrammar("lark", "x")),
    )


SCHEMA = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "string"}}}
STRICT, LOOSE = (
    {"type": "json_schema", "json_schema": {"name": "n", "schema": {}, "strict": strict}} for strict in (True, False)
)


@pytest.mark.parametrize(
    ("wanted", "output"),
    [
        (None, AnyText()),
        ({"type": "text"}, AnyText()),
        ({"type": "json_object"}, JsonObject()),
        (SCHEMA, JsonSchema({"type": "string"}, is_strict=True)),
        (STRICT, JsonSchema({}, is_strict=True)),
        (LOOSE, JsonSchema({}, is_strict=False)),
        ({"type": "grammar", "syntax": "regex", "definition": "a+"}, TextGrammar("regex", "a+")),
        ({"type": "choice", "choices": ["a", "b"]}, ListedText(("a", "b"))),
    ],
)
def test_formats(wanted: Any, output: OutputFormat) -> None:
    assert demand(response_format=wanted).output == output


def allowed(mode: str, *tools: Any) -> dict[str, Any]:
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": list(tools)}}


NAMED_F = {"type": "function", "function": {"name": "f"}}
NAMED_C = {"type": "custom", "custom": {"name": "c"}}


@pytest.mark.parametrize(
    ("wanted", "choice"),
    [
        (None, ToolChoice("auto")),
        ("auto", ToolChoice("auto")),
        ("none", ToolChoice("none")),
        ("required", ToolChoice("required")),
        (NAMED_F, ToolChoice("required", frozenset({"f"}))),
        (NAMED_C, ToolChoice("required", frozenset({"c"}))),
        (allowed("auto", NAMED_F, NAMED_C), ToolChoice("auto", frozenset({"f", "c"}))),
        (allowed("required", NAMED_F), ToolChoice("required", frozenset({"f"}))),
    ],
)
def test_tool_choices(wanted: Any, choice: ToolChoice) -> None:
    assert demand(tools=TOOLS, tool_choice=wanted).tool_choice == choice


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [F, F]}, "tools[1].function.name"),
        ({"tools": [F, {"type": "custom", "custom": {"name": "f"}}]}, "tools[1].custom.name"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": NAMED_F}, "tool_choice"),
        ({"tool_choice": allowed("auto", NAMED_F)}, "tool_choice"),
        ({"tool_choice": "required", "tools": []}, "tool_choice"),
        ({"tool_choice": NAMED_F, "tools": [G]}, "tool_choice"),
        ({"tool_choice": NAMED_C, "tools": [F]}, "tool_choice"),
        ({"tool_choice": {"type": "custom", "custom": {"name": "f"}}, "tools": [F]}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "c"}}, "tools": [C]}, "tool_choice"),
        ({"tool_choice": allowed("auto", NAMED_F, NAMED_C), "tools": [F]}, "tool_choice"),
    ],
)
def test_what_does_not_fit_together_is_refused(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        demand(**fields)
    assert caught.value.param == param


def test_no_tools_is_no_demand() -> None:
    silent: list[dict[str, Any]] = [
        {},
        {"tools": []},
        {"parallel_tool_calls": False},
        {"tool_choice": "none"},
        {"tool_choice": "auto"},
    ]
    for fields in silent:
        assert demand(**fields).tools == ()


@pytest.mark.parametrize(
    ("fields", "is_parallel"),
    [
        ({}, True),
        ({"parallel_tool_calls": True}, True),
        ({"parallel_tool_calls": False}, False),
        ({"tool_choice": "required"}, True),
        ({"tool_choice": NAMED_F}, False),
        ({"tool_choice": NAMED_F, "parallel_tool_calls": True}, False),
        ({"tool_choice": allowed("required", NAMED_F)}, True),
    ],
)
def test_a_named_tool_is_called_once(fields: dict[str, Any], is_parallel: bool) -> None:
    assert demand(tools=TOOLS, **fields).is_parallel == is_parallel
    assert names_tool(chat(tools=TOOLS, **fields)) == (fields.get("tool_choice") == NAMED_F)


def test_reasoning_arrives() -> None:
    made = make_demand(chat(), (), ReasoningWishes({}, is_wanted=False, min_tokens=3, max_tokens=5))
    assert (made.can_reason, made.min_reasoning_tokens, made.max_reasoning_tokens) == (False, 3, 5)


@pytest.mark.parametrize(
    ("fields", "is_long"),
    [
        ({}, False),
        ({"response_format": {"type": "text"}}, False),
        ({"tools": [F]}, True),
        ({"response_format": SCHEMA}, True),
    ],
)
async def test_grammars_are_made_off_the_loop(fields: dict[str, Any], is_long: bool) -> None:
    engine, tokenizer = ScriptedEngine([whole("a")]), Noting()
    engine.tokenizer = tokenizer
    model = served(engine, format="chatml")
    tokenizer.threads.clear()
    stream = await model.answer(make_ask(Conversation(chat(**fields)), model, "local", "id"))
    stream.cancel()
    (thread,) = tokenizer.threads
    assert (thread is not threading.current_thread()) == is_long


Subject = Literal["output", "tool", "tool_choice", "reasoning"]


@pytest.mark.parametrize(
    ("fields", "subject", "index", "param"),
    [
        ({"response_format": SCHEMA}, "output", 0, "response_format.json_schema.schema"),
        ({"response_format": {"type": "choice", "choices": ["a"]}}, "output", 0, "response_format.choices"),
        (
            {"response_format": {"type": "grammar", "syntax": "lark", "definition": "a"}},
            "output",
            0,
            "response_format.definition",
        ),
        ({"response_format": {"type": "json_object"}}, "output", 0, "response_format"),
        ({"tools": TOOLS}, "tool", 1, "tools[1].function.parameters"),
        ({"tools": TOOLS}, "tool", 3, "tools[3].custom.format"),
        ({"tools": TOOLS}, "tool_choice", 0, "tool_choice"),
        ({}, "reasoning", 0, "enable_thinking"),
    ],
)
def test_an_invalid_demand_names_the_parameter(
    fields: dict[str, Any], subject: Subject, index: int, param: str
) -> None:
    assert name_demand(InvalidDemand("is wrong", subject, index), demand(**fields)) == param


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": 5}}}},
            "response_format.json_schema.schema",
        ),
        ({"response_format": {"type": "grammar", "syntax": "regex", "definition": "("}}, "response_format.definition"),
        ({"response_format": {"type": "grammar", "syntax": "lark", "definition": "?!"}}, "response_format.definition"),
        (
            {"tools": [F, {"type": "function", "function": {"name": "g", "parameters": {"type": 5}}}]},
            "tools[1].function.parameters",
        ),
        ({"tools": [L]}, "tools[0].custom.format"),
    ],
)
def test_what_cannot_be_enforced_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    model = served(format="chatml")
    with pytest.raises(InvalidRequest) as caught:
        model.prepare(make_ask(Conversation(chat(**fields)), model, "local", "id"))
    assert caught.value.param == param and param in caught.value.message
    assert len(caught.value.message) < 400 and "\n" not in caught.value.message
