"""What `prepare` makes of tools, calls and results."""

import time
from typing import Any

import pytest

from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.formats import FORMATS, by_name
from proxy_inference_engine.formats.signature import signature
from proxy_inference_engine.interaction import Content, Interaction, Role, TextGrammar, Tool, ToolCall, ToolKind

WEATHER = Tool("weather", "Tells it", {"type": "object", "properties": {"city": {"type": "string"}}})
NOW = Tool("now")
SUM = Tool("sum", "Adds", kind=ToolKind.CUSTOM, grammar=TextGrammar("lark", "start: /[0-9+]+/"))


def call(id_: str, name: str = "weather", arguments: str = '{"city": "Rom"}') -> ToolCall:
    return ToolCall(id_, name, arguments)


def calling(*calls: ToolCall, text: str = "", **metadata: Any) -> Interaction:
    return Interaction.of("assistant", text, tool_calls=calls, **metadata)


def result(id_: str, text: str = "ok") -> Interaction:
    return Interaction.of("tool", text, tool_call_id=id_)


def user(text: str = "hi") -> Interaction:
    return Interaction.of("user", text)


def shown(turns: list[Interaction]) -> list[str]:
    """Each turn as its role, its text, and the ids of its calls or of its result."""
    return [
        ":".join([turn.role.value, turn.text, *(each.id for each in turn.calls), *filter(None, [_result_id(turn)])])
        for turn in turns
    ]


def _result_id(turn: Interaction) -> str | None:
    id_: str | None = turn.metadata.get("tool_call_id")
    return id_


@pytest.mark.parametrize(
    ("tool", "expected"),
    [
        (WEATHER, {"name": "weather", "description": "Tells it", "parameters": dict(WEATHER.parameters or {})}),
        (NOW, {"name": "now", "description": "", "parameters": {"type": "object", "properties": {}}}),
        (
            SUM,
            {
                "name": "sum",
                "description": "Adds\nThe input must match this Lark grammar:\nstart: /[0-9+]+/",
                "parameters": {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]},
            },
        ),
        (
            Tool("free", kind=ToolKind.CUSTOM),
            {
                "name": "free",
                "description": "",
                "parameters": {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]},
            },
        ),
        (
            Tool("word", kind=ToolKind.CUSTOM, grammar=TextGrammar("regex", "[a-z]+")),
            {
                "name": "word",
                "description": "The input must match this regular expression:\n[a-z]+",
                "parameters": {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]},
            },
        ),
    ],
)
def test_signatures(tool: Tool, expected: dict[str, Any]) -> None:
    assert signature(tool) == {"type": "function", "function": expected}


def test_results_stand_in_the_order_of_their_calls_and_name_their_tool() -> None:
    turns = [user(), calling(call("a"), call("b", "now", "")), result("b", "2"), result("a", "1"), user()]
    for each in FORMATS:
        if each.has_parallel_calls and each.num_id_chars is None:
            prepared = each.prepare(turns)
            assert shown(prepared) == ["user:hi", "assistant::a:b", "tool:1:a", "tool:2:b", "user:hi"]
            assert [turn.name for turn in prepared[2:4]] == ["weather", "now"]


def test_an_id_that_comes_again_belongs_to_the_latest_call() -> None:
    turns = [calling(call("a")), result("a"), calling(call("b"), call("a", "now", "")), result("a"), result("b")]
    prepared = by_name("chatml").prepare(turns)
    assert [turn.name for turn in prepared if turn.role is Role.TOOL] == ["weather", "weather", "now"]


@pytest.mark.parametrize(
    "turns", [[user(), result("a")], [calling(call("b")), result("a")], [user(), result("a"), calling(call("a"))]]
)
@pytest.mark.parametrize("reads_tools", [True, False])
def test_a_result_without_its_call_is_refused(turns: list[Interaction], reads_tools: bool) -> None:
    for each in FORMATS:
        with pytest.raises(InvalidRequest, match="no call before this result has the id 'a'") as caught:
            each.prepare(turns, template_reads_tools=reads_tools)
        assert caught.value.param == "messages"


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        (
            [calling(call("a"), call("b"), text="t"), result("b", "2"), result("a", "1")],
            ["assistant:t:a", "tool:1:a", "assistant::b", "tool:2:b"],
        ),
        (
            [calling(call("a"), call("b"), call("c")), result("c", "3"), user()],
            ["assistant::a", "assistant::b", "assistant::c", "tool:3:c", "user:hi"],
        ),
        (
            [calling(call("a"), call("b"), call("c")), result("a", "1"), user(), result("c", "3")],
            ["assistant::a", "tool:1:a", "assistant::b", "assistant::c", "user:hi", "tool:3:c"],
        ),
        ([calling(call("a")), result("a", "1"), result("a", "2")], ["assistant::a", "tool:1:a", "tool:2:a"]),
        ([calling(call("a"), call("b"))], ["assistant::a", "assistant::b"]),
    ],
)
@pytest.mark.parametrize("name", ["llama3", "harmony"])
def test_where_templates_read_one_call_a_turn_is_split(
    name: str, turns: list[Interaction], expected: list[str]
) -> None:
    assert shown(by_name(name).prepare(turns)) == expected


def test_mistral_ids_have_nine_digits_that_do_not_change_as_the_conversation_grows() -> None:
    turns = [user(), calling(call("call_x"), call("call_y")), result("call_y", "2"), result("call_x", "1")]
    expected = ["user:hi", "assistant::000000000:000000001", "tool:1:000000000", "tool:2:000000001"]
    assert shown(by_name("mistral").prepare(turns)) == expected
    more = [*turns, calling(call("call_x")), result("call_x", "3"), calling(call("z"))]
    longer = [*expected, "assistant::000000002", "tool:3:000000002", "assistant::000000003"]
    assert shown(by_name("mistral_args").prepare(more)) == longer


def test_a_template_without_tools_gets_them_in_words() -> None:
    turns = [Interaction.of("system", "Be kind."), user()]
    prepared = by_name("chatml").prepare(turns, [WEATHER, NOW], template_reads_tools=False)
    assert [turn.role for turn in prepared] == [Role.SYSTEM, Role.USER]
    assert prepared[0].text == (
        "Be kind.\n\nYou can call these functions:\n<tools>\n"
        '{"name": "weather", "description": "Tells it", "parameters": {"type": "object", "properties": {"city": '
        '{"type": "string"}}}}\n'
        '{"name": "now", "parameters": {"type": "object", "properties": {}}}\n'
        "</tools>\nTo call one, write exactly this, with its name and arguments:\n"
        '<tool_call>\n{"name": "name", "arguments": {"parameter": value}}\n</tool_call>\n'
        "Call one only where it helps. Several calls may follow each other. Its result comes in the next message."
    )
    assert by_name("chatml").prepare(turns, [WEATHER]) == turns
    assert by_name("chatml").prepare(turns, [], template_reads_tools=False) == turns


@pytest.mark.parametrize(
    ("name", "example"),
    [
        (
            "qwen3_coder",
            "<tool_call>\n<function=name>\n<parameter=parameter>\nvalue\n</parameter>\n</function>\n</tool_call>",
        ),
        ("gemma3", "```tool_code\nname(parameter=value)\n```"),
        ("mistral", '[TOOL_CALLS][{"name": "name", "arguments": {"parameter": value}}]'),
        (
            "harmony",
            '<|channel|>commentary to=functions.name <|constrain|>json<|message|>{"parameter": value}\n'
            "Call one only where it helps. Its result",
        ),
    ],
)
def test_the_words_show_the_family_s_own_way_to_call(name: str, example: str) -> None:
    prepared = by_name(name).prepare([user("hi")], [WEATHER], template_reads_tools=False)
    assert example in prepared[0].text
    assert prepared[0].role is (Role.USER if name == "gemma3" else Role.SYSTEM)
    assert prepared[-1].text.endswith("hi")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "chatml",
            [
                "user:hi",
                'assistant:Wait.\n<tool_call>\n{"name": "weather", "arguments": {"city": "Rom"}}\n</tool_call>\n'
                '<tool_call>\n{"name": "sum", "arguments": 1+1}\n</tool_call>',
                "user:<tool_response>\nsun\n</tool_response>\n<tool_response>\n2\n</tool_response>",
                "user:thanks",
            ],
        ),
        (
            "gemma3",
            [
                "user:hi",
                'assistant:Wait.\n```tool_code\nweather(city="Rom")\n```\n```tool_code\nsum(input=1+1)\n```',
                "user:```tool_output\nsun\n```\n```tool_output\n2\n```\n\nthanks",
            ],
        ),
    ],
)
def test_a_template_without_calls_gets_history_as_text(name: str, expected: list[str]) -> None:
    custom = ToolCall("b", "sum", "1+1", ToolKind.CUSTOM)
    turns = [
        user(),
        calling(call("a"), custom, text="Wait.", reasoning_content="Hm"),
        result("b", "2"),
        result("a", "sun"),
        user("thanks"),
    ]
    prepared = by_name(name).prepare(turns, [SUM], template_reads_tools=True, template_reads_calls=False)
    assert shown(prepared) == expected
    assert prepared[1].metadata == {"reasoning_content": "Hm"}


def test_a_call_without_text_has_none_written() -> None:
    turn = Interaction(Role.ASSISTANT, (), {"tool_calls": [call("a", "now", "")]})
    prepared = by_name("plain").prepare([turn], template_reads_tools=False)
    assert prepared[0].text == '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'


def test_images_beside_calls_are_not_lost() -> None:
    """They are refused later, where the model's abilities are known."""
    image = Content.from_json({"type": "image", "data": {"url": "x"}})
    turn = Interaction(Role.ASSISTANT, (image,), {"tool_calls": [call("a")]})
    answer = Interaction(Role.TOOL, (image,), {"tool_call_id": "a"})
    prepared = by_name("chatml").prepare([turn, answer], template_reads_tools=False)
    assert all(image in each.content for each in prepared)


def test_long_histories_take_linear_time() -> None:
    calls = [call(str(number), "now", "") for number in range(20_000)]
    turns = [calling(*calls), *(result(each.id) for each in reversed(calls))]
    start = time.thread_time()
    for name in ("llama3", "mistral", "chatml"):
        assert len(by_name(name).prepare(turns)) >= 20_001
    assert time.thread_time() - start < 30
