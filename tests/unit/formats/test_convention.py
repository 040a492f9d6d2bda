"""Calls as text, for every style. What is written here is what the parser's tables read."""

import ast
import json
from typing import Any

import pytest

from proxy_inference_engine.formats import by_name
from proxy_inference_engine.formats.convention import write_calls
from proxy_inference_engine.interaction import TextGrammar, Tool, ToolCall, ToolKind

PROPERTIES: dict[str, Any] = {"city": {"type": "string"}, "days": {"type": "integer"}, "any": {}}
WEATHER = Tool("weather", parameters={"type": "object", "properties": PROPERTIES})
FREE = Tool("note", kind=ToolKind.CUSTOM)
MATCHED = Tool("regex", kind=ToolKind.CUSTOM, grammar=TextGrammar("regex", "[a-z]+"))
LARK = Tool("sum", kind=ToolKind.CUSTOM, grammar=TextGrammar("lark", "start: /[0-9+]+/"))
TOOLS = [WEATHER, FREE, MATCHED, LARK]

ONE = [ToolCall("1", "weather", '{"city": "Rom", "days": 2}')]
TWO = [*ONE, ToolCall("2", "weather", "{}")]


def write(name: str, calls: list[ToolCall], tools: list[Tool] = TOOLS) -> str:
    syntax = by_name(name).calls
    assert syntax is not None
    return write_calls(syntax, calls, tools)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "chatml",
            '<tool_call>\n{"name": "weather", "arguments": {"city": "Rom", "days": 2}}\n</tool_call>\n'
            '<tool_call>\n{"name": "weather", "arguments": {}}\n</tool_call>',
        ),
        (
            "qwen3_coder",
            "<tool_call>\n<function=weather>\n<parameter=city>\nRom\n</parameter>\n<parameter=days>\n2\n</parameter>\n"
            "</function>\n</tool_call>\n<tool_call>\n<function=weather>\n</function>\n</tool_call>",
        ),
        (
            "glm45",
            "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Rom</arg_value>\n<arg_key>days</arg_key>\n"
            "<arg_value>2</arg_value>\n</tool_call>\n<tool_call>weather\n</tool_call>",
        ),
        (
            "gemma3",
            '```tool_code\nweather(city="Rom", days=2)\n```\n```tool_code\nweather()\n```',
        ),
        (
            "llama3",
            '{"name": "weather", "parameters": {"city": "Rom", "days": 2}}; {"name": "weather", "parameters": {}}',
        ),
        (
            "mistral",
            '[TOOL_CALLS][{"name": "weather", "arguments": {"city": "Rom", "days": 2}}, '
            '{"name": "weather", "arguments": {}}]',
        ),
        ("mistral_args", '[TOOL_CALLS]weather[ARGS]{"city": "Rom", "days": 2}[TOOL_CALLS]weather[ARGS]{}'),
        (
            "deepseek_r1",
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n"
            '{"city": "Rom", "days": 2}\n```<｜tool▁call▁end｜>\n'
            "<｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        ),
    ],
)
def test_two_calls_in_every_family(name: str, expected: str) -> None:
    assert write(name, TWO) == expected


VALUES: list[Any] = [
    'say "hi"',
    "back\\slash and 'single'",
    "two\nlines\tand a tab",
    "Zoë 日本 🌧",
    "</tool_call>",
    "",
    0,
    -1.5e-7,
    True,
    False,
    None,
    [],
    {},
    {"deep": [{"list": [True, None, "x"]}, 1], "": "empty key"},
]


@pytest.mark.parametrize("value", VALUES)
def test_json_arguments_read_back(value: Any) -> None:
    text = write("chatml", [ToolCall("1", "weather", json.dumps({"any": value}))])
    inner = text.removeprefix("<tool_call>\n").removesuffix("\n</tool_call>")
    assert json.loads(inner) == {"name": "weather", "arguments": {"any": value}}
    assert "\\u" not in text


@pytest.mark.parametrize("value", VALUES)
def test_python_arguments_read_back(value: Any) -> None:
    text = write("gemma3", [ToolCall("1", "weather", json.dumps({"any": value}))])
    call = ast.parse(text.removeprefix("```tool_code\n").removesuffix("\n```"), mode="eval").body
    assert isinstance(call, ast.Call) and [each.arg for each in call.keywords] == ["any"]
    assert ast.literal_eval(call.keywords[0].value) == value
    assert "true" not in text and "null" not in text


@pytest.mark.parametrize(
    ("key", "value", "written"),
    [
        ("city", 'a "b"\n<c>', 'a "b"\n<c>'),
        ("city", "", ""),
        ("city", 3, "3"),
        ("days", "3", '"3"'),
        ("any", "3", '"3"'),
        ("any", {"a": ["é", None]}, '{"a": ["é", null]}'),
        ("days", True, "true"),
        ("other", "text", '"text"'),
    ],
)
def test_tags_write_a_string_raw_only_where_the_schema_allows_nothing_else(key: str, value: Any, written: str) -> None:
    text = write("glm45", [ToolCall("1", "weather", json.dumps({key: value}))])
    pair = f"<arg_key>{key}</arg_key>\n<arg_value>{written}</arg_value>\n"
    assert text == f"<tool_call>weather\n{pair}</tool_call>"


def test_of_a_tool_that_is_gone_strings_are_raw() -> None:
    text = write("qwen3_coder", [ToolCall("1", "gone", '{"a": "x", "b": 1}')], [])
    assert "<parameter=a>\nx\n</parameter>\n<parameter=b>\n1\n</parameter>" in text


@pytest.mark.parametrize(
    ("name", "tool", "expected"),
    [
        ("chatml", FREE, '<tool_call>\n{"name": "note", "arguments": {"input": "1+\\n\\"1\\""}}\n</tool_call>'),
        ("chatml", MATCHED, '<tool_call>\n{"name": "regex", "arguments": {"input": "1+\\n\\"1\\""}}\n</tool_call>'),
        ("chatml", LARK, '<tool_call>\n{"name": "sum", "arguments": 1+\n"1"}\n</tool_call>'),
        ("mistral_args", LARK, '[TOOL_CALLS]sum[ARGS]1+\n"1"'),
        ("glm45", FREE, '<tool_call>note\n<arg_key>input</arg_key>\n<arg_value>1+\n"1"</arg_value>\n</tool_call>'),
        ("glm45", LARK, '<tool_call>sum\n<arg_key>input</arg_key>\n<arg_value>1+\n"1"</arg_value>\n</tool_call>'),
        ("gemma3", FREE, '```tool_code\nnote(input="1+\\n\\"1\\"")\n```'),
        ("gemma3", LARK, '```tool_code\nsum(input=1+\n"1")\n```'),
    ],
)
def test_custom_tools_take_text(name: str, tool: Tool, expected: str) -> None:
    assert write(name, [ToolCall("1", tool.name, '1+\n"1"', ToolKind.CUSTOM)]) == expected


@pytest.mark.parametrize("arguments", ["", " \n"])
def test_no_arguments_are_an_empty_object(arguments: str) -> None:
    assert '"arguments": {}}' in write("chatml", [ToolCall("1", "weather", arguments)])


@pytest.mark.parametrize(
    "arguments",
    ['{"city": "Ro', "[1]", "nonsense", '{"a": NaN}', '{"a": "\\ud800"}', '{"a":' * 70 + "1" + "}" * 70, "[" * 99999],
)
def test_arguments_that_are_no_object_stay_as_they_came(arguments: str) -> None:
    for name in ("chatml", "glm45", "gemma3"):
        assert arguments in write(name, [ToolCall("1", "weather", arguments)])


def test_an_odd_name_does_not_break_the_json() -> None:
    text = write("llama3", [ToolCall("1", 'a"b', "{}")])
    assert json.loads(text) == {"name": 'a"b', "parameters": {}}
