"""Tools, tool_choice and response_format: what is refused, and by what name."""

from typing import Any

import pytest

from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.server.apis.chat.schema import ChatRequest
from proxy_inference_engine.server.apis.messages.schema import MessageRequest
from proxy_inference_engine.server.apis.ollama.schema import OllamaChat
from proxy_inference_engine.server.apis.responses.schema import ResponseRequest
from proxy_inference_engine.server.apis.shared.fields import RequestSchema, validate
from proxy_inference_engine.server.apis.shared.tools import MAX_SCHEMA_BYTES, MAX_TOOLS

CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
BIG = {"description": "x" * MAX_SCHEMA_BYTES}
HALF = {"description": "é" * (MAX_SCHEMA_BYTES // 4)}


def function(name: Any = "f", **fields: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **fields}}


def custom(**fields: Any) -> dict[str, Any]:
    return {"type": "custom", "custom": {"name": "c", **fields}}


def grammar(**fields: Any) -> dict[str, Any]:
    return custom(format={"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: /a/", **fields}})


def allowed(**fields: Any) -> dict[str, Any]:
    return {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [function()], **fields}}


def schema(**fields: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "n", "schema": {}, **fields}}


def choices(*texts: Any) -> dict[str, Any]:
    return {"type": "choice", "choices": list(texts)}


TOOLS: list[tuple[Any, str]] = [
    ([function()] * (MAX_TOOLS + 1), "tools"),
    ([function()] * 10_000, "tools"),
    ([{"function": {"name": "f"}}], "tools[0]"),
    ([{"type": "function"}], "tools[0].function"),
    ([{"type": "function", "function": {}}], "tools[0].function.name"),
    ([{"type": "function", "function": {"name": "f"}, "x": 1}], "tools[0].x"),
    ([{"type": "custom", "function": {"name": "f"}}], "tools[0].custom"),
    ([function(5)], "tools[0].function.name"),
    ([function("")], "tools[0].function.name"),
    ([function("a b")], "tools[0].function.name"),
    ([function('a"b')], "tools[0].function.name"),
    ([function("a\n")], "tools[0].function.name"),
    ([function("é")], "tools[0].function.name"),
    ([function("n" * 65)], "tools[0].function.name"),
    ([function("n" * 1_000_000)], "tools[0].function.name"),
    ([function(), function(description=5)], "tools[1].function.description"),
    ([function(parameters=[])], "tools[0].function.parameters"),
    ([function(parameters="{}")], "tools[0].function.parameters"),
    ([function(parameters=True)], "tools[0].function.parameters"),
    ([function(parameters=BIG)], "tools[0].function.parameters"),
    ([function(parameters=HALF), function("g", parameters=HALF)], "tools"),
    ([function(strict="yes")], "tools[0].function.strict"),
    ([function(x=1)], "tools[0].function.x"),
    ([custom(format="text")], "tools[0].custom.format"),
    ([custom(format={"type": "xml"})], "tools[0].custom.format"),
    ([custom(format={"type": "text", "x": 1})], "tools[0].custom.format.x"),
    ([custom(format={"type": "grammar"})], "tools[0].custom.format.grammar"),
    ([grammar(syntax="ebnf")], "tools[0].custom.format.grammar.syntax"),
    ([grammar(definition="")], "tools[0].custom.format.grammar.definition"),
    ([grammar(definition="x" * (MAX_SCHEMA_BYTES + 1))], "tools[0].custom.format.grammar.definition"),
    ([custom(parameters={})], "tools[0].custom.parameters"),
]

CHOICES: list[tuple[Any, str]] = [
    ({"type": "function"}, "tool_choice.function"),
    ({"type": "function", "function": {}}, "tool_choice.function.name"),
    ({"type": "function", "function": {"name": "f", "x": 1}}, "tool_choice.function.x"),
    ({"type": "custom", "function": {"name": "f"}}, "tool_choice.custom"),
    ({"type": "allowed_tools"}, "tool_choice.allowed_tools"),
    (allowed(mode="none"), "tool_choice.allowed_tools.mode"),
    (allowed(tools=[]), "tool_choice.allowed_tools.tools"),
    (allowed(tools=["f"]), "tool_choice.allowed_tools.tools[0]"),
    (allowed(tools=[function(), {"type": "function"}]), "tool_choice.allowed_tools.tools[1].function"),
    (allowed(tools=[function()] * (MAX_TOOLS + 1)), "tool_choice.allowed_tools.tools"),
]

FORMATS: list[tuple[Any, str]] = [
    ({"type": "json_schema"}, "response_format.json_schema"),
    ({"type": "json_schema", "json_schema": {}}, "response_format.json_schema.name"),
    ({"type": "json_schema", "json_schema": {"name": "n"}}, "response_format.json_schema.schema"),
    ({"type": "json_object", "schema": []}, "response_format.schema"),
    (schema(name="a b"), "response_format.json_schema.name"),
    (schema(schema=[]), "response_format.json_schema.schema"),
    (schema(schema=BIG), "response_format.json_schema.schema"),
    (schema(strict=1), "response_format.json_schema.strict"),
    (schema(x=1), "response_format.json_schema.x"),
    ({"type": "grammar", "definition": "a"}, "response_format.syntax"),
    ({"type": "grammar", "syntax": "gbnf", "definition": "a"}, "response_format.syntax"),
    ({"type": "grammar", "syntax": "regex"}, "response_format.definition"),
    ({"type": "grammar", "syntax": "regex", "definition": ""}, "response_format.definition"),
    ({"type": "choice"}, "response_format.choices"),
    (choices(), "response_format.choices"),
    (choices("a", ""), "response_format.choices[1]"),
    (choices("a", 1), "response_format.choices[1]"),
    (choices(*["a"] * 4097), "response_format.choices"),
    (choices(*["x" * 10_000] * 27), "response_format.choices"),
]


def refused_at(param: str, value: Any) -> str | None:
    with pytest.raises(InvalidRequest) as caught:
        validate(ChatRequest, {**CHAT, param: value})
    assert len(caught.value.message) < 300
    return caught.value.param


@pytest.mark.parametrize(("tools", "param"), TOOLS)
def test_tools_are_refused_by_place(tools: Any, param: str) -> None:
    assert refused_at("tools", tools) == param


@pytest.mark.parametrize(("choice", "param"), CHOICES)
def test_tool_choices_are_refused_by_place(choice: Any, param: str) -> None:
    assert refused_at("tool_choice", choice) == param


@pytest.mark.parametrize(("format", "param"), FORMATS)
def test_formats_are_refused_by_place(format: Any, param: str) -> None:
    assert refused_at("response_format", format) == param


@pytest.mark.parametrize(
    ("param", "value"),
    [
        ("tools", [function(f"f{number}") for number in range(MAX_TOOLS)]),
        ("tools", [function("get.the_weather-2"), function("n" * 64)]),
        ("tools", [function(description=None, parameters=None, strict=None)]),
        ("tools", [function(parameters={"type": "object"}, strict=True)]),
        ("tools", [custom(), custom(description="d", format={"type": "text"}), grammar(syntax="regex")]),
        ("tools", [custom(description=None, format=None)]),
        ("tool_choice", function()),
        ("tool_choice", custom()),
        ("tool_choice", allowed(mode="required", tools=[function(), custom()])),
        ("response_format", schema(description=None, strict=None)),
        ("response_format", choices(*["a"] * 4096)),
        ("response_format", {"type": "grammar", "syntax": "lark", "definition": "x" * MAX_SCHEMA_BYTES}),
    ],
)
def test_what_is_right_is_accepted(param: str, value: Any) -> None:
    validate(ChatRequest, {**CHAT, param: value})


def test_an_unknown_type_lists_the_known_ones() -> None:
    with pytest.raises(InvalidRequest, match="'text', 'json_object', 'json_schema', 'grammar', 'choice'"):
        validate(ChatRequest, {**CHAT, "response_format": {"type": "xml"}})


def flat(parameters: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function", "name": "f", "parameters": parameters}


@pytest.mark.parametrize(
    ("schema", "body", "tools"),
    [
        (ChatRequest, CHAT, [function(parameters=HALF), custom(), function(parameters=HALF)]),
        (MessageRequest, {**CHAT, "max_tokens": 1}, [{"name": "f", "input_schema": HALF}] * 2),
        (MessageRequest, {**CHAT, "max_tokens": 1}, [{"type": "bash"}, *[{"name": "f", "input_schema": HALF}] * 2]),
        (OllamaChat, CHAT, [function(parameters=HALF)] * 2),
        (ResponseRequest, {"model": "m", "input": "Hello"}, [flat(HALF), {"type": "web_search"}, flat(HALF)]),
        (
            ResponseRequest,
            {"model": "m", "input": "Hello"},
            [flat(HALF), {"type": "namespace", "name": "n", "description": "d", "tools": [flat(HALF)]}],
        ),
    ],
)
def test_every_api_bounds_the_schemas_of_all_tools_together(
    schema: type[RequestSchema], body: dict[str, Any], tools: list[Any]
) -> None:
    validate(schema, {**body, "tools": tools[:-1]})
    with pytest.raises(InvalidRequest, match="the schemas of all tools together may have at most 256 KiB") as caught:
        validate(schema, {**body, "tools": tools})
    assert caught.value.param == "tools"
