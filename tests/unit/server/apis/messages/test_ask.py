"""Bodies in Anthropic's format: the turns they become, the demand on the answer, what is refused, what is ignored."""

from typing import Any

import pytest

from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.formats import by_name
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.served.ask import ChatPrompt
from proxy_inference_engine.server.apis.messages.ask import (
    DemandNames,
    make_demand,
    make_reasoning,
    make_turns,
    not_honoured,
)
from proxy_inference_engine.server.apis.messages.schema import CountRequest, MessageRequest
from proxy_inference_engine.server.apis.shared.fields import validate
from proxy_inference_engine.server.apis.shared.reasoning import ReasoningWishes
from proxy_inference_engine.server.apis.shared.route import ignored_headers
from proxy_inference_engine.state_machine.demand import InvalidDemand, JsonSchema, ToolChoice
from tests.unit.served.scripted import ScriptedEngine, served, served_as

HELLO = {"role": "user", "content": "Hello"}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
USE = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": 1, "b": "ü"}}
CALLED = {"role": "assistant", "content": [USE]}
QWEN, CHATML, DEEPSEEK = by_name("qwen3"), by_name("chatml"), by_name("deepseek_r1")
SWITCHED = frozenset({"enable_thinking"})


def text(value: str, **fields: Any) -> dict[str, Any]:
    return {"type": "text", "text": value, **fields}


def tool(name: str = "f", **fields: Any) -> dict[str, Any]:
    return {"name": name, "input_schema": SCHEMA, **fields}


def body(**fields: Any) -> MessageRequest:
    return validate(MessageRequest, {"model": "m", "max_tokens": 10, "messages": [HELLO], **fields})


def turns(*messages: dict[str, Any], **fields: Any) -> list[tuple[str, str]]:
    found = make_turns(body(messages=list(messages) or [HELLO], **fields))
    return [(turn.role.value, turn.text) for turn in found]


TURNS: list[tuple[list[dict[str, Any]], Any, list[tuple[str, str]]]] = [
    ([HELLO], "Be kind.", [("system", "Be kind."), ("user", "Hello")]),
    ([HELLO], [text("A", cache_control={"type": "ephemeral"}), text("B")], [("system", "A\nB"), ("user", "Hello")]),
    ([HELLO], "", [("user", "Hello")]),
    ([HELLO], [], [("user", "Hello")]),
    ([{"role": "user", "content": [text("A"), text("B")]}], None, [("user", "A\nB")]),
    ([{"role": "system", "content": "S"}, HELLO], None, [("system", "S"), ("user", "Hello")]),
    (
        [HELLO, {"role": "system", "content": [text("Now briefly.")]}, HELLO],
        None,
        [("user", "Hello"), ("user", "<system-reminder>\nNow briefly.\n</system-reminder>"), ("user", "Hello")],
    ),
    (
        [HELLO, {"role": "assistant", "content": "Hi"}, HELLO],
        None,
        [("user", "Hello"), ("assistant", "Hi"), ("user", "Hello")],
    ),
    ([HELLO, {"role": "assistant", "content": []}], None, [("user", "Hello")]),
    ([HELLO, {"role": "assistant", "content": " "}], None, [("user", "Hello")]),
]


@pytest.mark.parametrize(("messages", "system", "expected"), TURNS)
def test_turns(messages: list[dict[str, Any]], system: Any, expected: list[tuple[str, str]]) -> None:
    assert turns(*messages, system=system) == expected


BILLING = "x-anthropic-billing-header: cc_version=2.1.37.fbe; cc_entrypoint=cli; cch={};"


@pytest.mark.parametrize(
    "system",
    [
        [text(BILLING), text("Be kind.", cache_control={"type": "ephemeral"})],
        [text(BILLING + "\nBe kind.")],
        BILLING + "\n\nBe kind.",
        [text("Be kind.\n" + BILLING)],
    ],
)
def test_the_billing_line_is_no_part_of_the_prompt(system: Any) -> None:
    def with_code(code: str) -> list[tuple[str, str]]:
        blocks = [text(system)] if isinstance(system, str) else system
        filled = [{**block, "text": block["text"].replace("{}", code)} for block in blocks]
        return turns(HELLO, system=filled[0]["text"] if isinstance(system, str) else filled)

    assert with_code("00000") == with_code("a3f91")
    assert with_code("00000")[0][1].strip() == "Be kind." and len(with_code("00000")) == 2


def test_only_the_billing_line_goes() -> None:
    assert turns(HELLO, system=[text(BILLING)]) == [("user", "Hello")]
    quoted = f"Explain {BILLING}"
    assert turns({"role": "user", "content": BILLING}, system=quoted) == [("system", quoted), ("user", BILLING)]


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ({}, ""),
        ({"content": "12"}, "12"),
        ({"content": [text("1"), text("2")]}, "1\n2"),
        ({"content": "no such file", "is_error": True}, "Error:\nno such file"),
        ({"content": "12", "is_error": False}, "12"),
    ],
)
def test_results_of_calls(result: dict[str, Any], expected: str) -> None:
    answer = {
        "role": "user",
        "content": [text("And now?"), {"type": "tool_result", "tool_use_id": "toolu_1", **result}],
    }
    _, called, result_turn, asked = make_turns(body(messages=[HELLO, CALLED, answer]))
    (call,) = called.tool_calls
    assert (call.id, call.name, call.arguments) == ("toolu_1", "f", '{"a":1,"b":"ü"}')
    assert (result_turn.role.value, result_turn.text) == ("tool", expected)
    assert (result_turn.tool_call_id, result_turn.name) == ("toolu_1", "f")
    assert asked.text == "And now?"


def test_thinking_of_history_is_kept_whatever_its_signature() -> None:
    blocks = [
        {"type": "thinking", "thinking": "A", "signature": "anything"},
        {"type": "redacted_thinking", "data": "opaque"},
        {"type": "thinking", "thinking": "B"},
        text("Hi"),
    ]
    _, said, _ = make_turns(body(messages=[HELLO, {"role": "assistant", "content": blocks}, HELLO]))
    assert said.reasoning_content == "A\n\nB" and said.text == "Hi"


def test_size_counts_all_that_is_written() -> None:
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [text("123")]}
    thought = {"type": "thinking", "thinking": "1234", "signature": ""}
    messages = [HELLO, {"role": "assistant", "content": [thought, USE]}, {"role": "user", "content": [result]}]
    prompt = ChatPrompt(make_turns(body(messages=messages, system="12")))
    assert prompt.num_chars == 5 + 4 + len('{"a":1,"b":"ü"}') + 3 + 2


PNG = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"max_tokens": None}, "max_tokens"),
    ({"max_tokens": -1}, "max_tokens"),
    ({"model": 5}, "model"),
    ({"messages": []}, "messages"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": []}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "messages[0].content[0].source"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "file", "file_id": "x"}}]}]},
        "messages[0].content[0].source",
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "image", "source": {**PNG, "media_type": "image/tiff"}}]}]},
        "messages[0].content[0].source.media_type",
    ),
    (
        {"messages": [HELLO, {"role": "assistant", "content": [{"type": "image", "source": PNG}]}]},
        "messages[1].content",
    ),
    ({"messages": [{"role": "system", "content": [{"type": "image", "source": PNG}]}, HELLO]}, "messages[0].content"),
    ({"system": [{"type": "document"}]}, "system[0]"),
    ({"messages": [{"role": "user", "content": [{"type": "strange"}]}]}, "messages[0].content[0]"),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
    ({"messages": [{"role": "user", "content": [USE]}]}, "messages[0].content"),
    ({"messages": [HELLO, {"role": "assistant", "content": [{**USE, "input": "{}"}]}]}, "messages[1].content[0].input"),
    (
        {"messages": [HELLO, CALLED, {"role": "assistant", "content": [{"type": "tool_result", "tool_use_id": "x"}]}]},
        "messages[2].content",
    ),
    (
        {
            "messages": [
                HELLO,
                CALLED,
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "image", "source": {}}]}
                    ],
                },
            ]
        },
        "messages[2].content[0].content[0].source",
    ),
    (
        {"messages": [HELLO, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x"}]}]},
        "messages[1].content[0].tool_use_id",
    ),
    ({"system": 5}, "system"),
    ({"system": [{"type": "image"}]}, "system[0].type"),
    ({"temperature": 1.5}, "temperature"),
    ({"temperature": "1"}, "temperature"),
    ({"top_k": -1}, "top_k"),
    ({"stop_sequences": [""]}, "stop_sequences[0]"),
    ({"stop_sequences": ["x"] * 17}, "stop_sequences"),
    ({"tools": [{"name": "f"}]}, "tools[0].input_schema"),
    ({"tools": [tool("no spaces")]}, "tools[0].name"),
    ({"tools": [tool(), tool()]}, "tools[1].name"),
    ({"tools": [tool(f"f{index}") for index in range(129)]}, "tools"),
    ({"tools": [tool()], "tool_choice": {"type": "tool"}}, "tool_choice.name"),
    ({"tools": [tool()], "tool_choice": {"type": "tool", "name": "g"}}, "tool_choice.name"),
    ({"tools": [tool()], "tool_choice": {"type": "must"}}, "tool_choice.type"),
    ({"tool_choice": {"type": "any"}}, "tool_choice"),
    ({"tools": [{"type": "bash_20250124", "name": "bash"}], "tool_choice": {"type": "any"}}, "tool_choice"),
    ({"thinking": {"type": "enabled"}}, "thinking.budget_tokens"),
    ({"thinking": {"type": "enabled", "budget_tokens": 0}}, "thinking.budget_tokens"),
    ({"thinking": {"type": "always"}}, "thinking.type"),
    ({"output_config": {"format": {"type": "xml"}}}, "output_config.format.type"),
    ({"output_format": {"type": "xml"}, "output_config": {"effort": "low"}}, "output_config.format"),
    ({"stream": "yes"}, "stream"),
]


@pytest.mark.parametrize(("fields", "param"), REFUSED)
def test_what_is_wrong_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        asked = body(**fields)
        make_turns(asked)
        make_demand(asked, ReasoningWishes({}))
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("choice", "expected", "is_parallel"),
    [
        (None, ToolChoice(), True),
        ({"type": "auto"}, ToolChoice(), True),
        ({"type": "auto", "disable_parallel_tool_use": True}, ToolChoice(), False),
        ({"type": "any"}, ToolChoice("required"), True),
        ({"type": "any", "disable_parallel_tool_use": True}, ToolChoice("required"), False),
        ({"type": "tool", "name": "f"}, ToolChoice("required", frozenset({"f"})), False),
        ({"type": "none"}, ToolChoice("none"), True),
    ],
)
def test_tool_choice(choice: Any, expected: ToolChoice, is_parallel: bool) -> None:
    demand = make_demand(body(tools=[tool(), tool("g", strict=True)], tool_choice=choice), ReasoningWishes({}))
    assert demand.tool_choice == expected and demand.is_parallel is is_parallel
    assert [(one.name, one.is_strict, one.parameters) for one in demand.tools] == [
        ("f", False, SCHEMA),
        ("g", True, SCHEMA),
    ]


def test_a_format_and_the_names_of_what_is_refused() -> None:
    hosted = {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}
    asked = body(tools=[hosted, tool()], output_config={"format": {"type": "json_schema", "schema": SCHEMA}})
    demand, name = make_demand(asked, ReasoningWishes({})), DemandNames(asked)
    assert demand.output == JsonSchema(SCHEMA) and [one.name for one in demand.tools] == ["f"]
    assert name(InvalidDemand("", "tool", 0), demand) == "tools[1].input_schema"
    assert name(InvalidDemand("", "output"), demand) == "output_config.format.schema"
    assert name(InvalidDemand("", "tool_choice"), demand) == "tool_choice"
    assert name(InvalidDemand("", "reasoning"), demand) == "thinking"


BUDGET = {"type": "enabled", "budget_tokens": 7}
REASONINGS: list[tuple[Any, Any, frozenset[str], ReasoningWishes, bool]] = [
    (None, QWEN, SWITCHED, ReasoningWishes({"enable_thinking": False}, is_wanted=False), False),
    ({"type": "disabled"}, QWEN, SWITCHED, ReasoningWishes({"enable_thinking": False}, is_wanted=False), False),
    ({"type": "between_tools"}, QWEN, SWITCHED, ReasoningWishes({"enable_thinking": False}, is_wanted=False), False),
    ({"type": "between_tools"}, DEEPSEEK, frozenset(), ReasoningWishes({}), True),
    ({"type": "adaptive"}, QWEN, SWITCHED, ReasoningWishes({"enable_thinking": True}), False),
    (BUDGET, QWEN, SWITCHED, ReasoningWishes({"enable_thinking": True}, max_tokens=7), False),
    (None, DEEPSEEK, frozenset(), ReasoningWishes({}), False),
    ({"type": "disabled"}, DEEPSEEK, frozenset(), ReasoningWishes({}), True),
    (BUDGET, DEEPSEEK, frozenset(), ReasoningWishes({}, max_tokens=7), False),
    (None, CHATML, frozenset(), ReasoningWishes({}, is_wanted=False), False),
    ({"type": "disabled"}, CHATML, frozenset(), ReasoningWishes({}, is_wanted=False), False),
    (BUDGET, CHATML, frozenset(), ReasoningWishes({}, max_tokens=7), True),
]


@pytest.mark.parametrize(("thinking", "format", "readable", "expected", "is_ignored"), REASONINGS)
def test_thinking(
    thinking: Any, format: Any, readable: frozenset[str], expected: ReasoningWishes, is_ignored: bool
) -> None:
    asked, model = body(thinking=thinking), served_as(format, readable)
    assert make_reasoning(asked, model) == expected
    assert ignored_headers(not_honoured(asked, model)) == ({"x-pie-ignored": "thinking"} if is_ignored else {})


@pytest.mark.parametrize(
    ("thinking", "expected"),
    [
        ({"type": "disabled"}, ReasoningWishes({}, is_wanted=False)),
        ({"type": "between_tools"}, ReasoningWishes({}, is_wanted=False)),
        (None, ReasoningWishes({})),
    ],
)
def test_a_block_that_the_prompt_opens_is_closed_for_whoever_says_so(thinking: Any, expected: ReasoningWishes) -> None:
    model = served(ScriptedEngine(runner=FakeRunner(chat_template=DEEPSEEK.template)))
    asked = body(thinking=thinking)
    assert make_reasoning(asked, model) == expected and not_honoured(asked, model) == []


def test_effort_reaches_a_template_that_reads_it() -> None:
    asked, reading = body(output_config={"effort": "max"}), served_as(CHATML, {"reasoning_effort"})
    assert make_reasoning(asked, reading).variables == {"reasoning_effort": "max"}
    assert ignored_headers(not_honoured(asked, reading)) == {}
    ignored = ignored_headers(not_honoured(asked, served_as(CHATML, ())))
    assert ignored == {"x-pie-ignored": "output_config.effort"}


def test_what_is_not_honoured_is_named_once() -> None:
    asked = body(
        betas=["x"],
        context_management={"edits": []},
        speed=None,
        metadata={"user_id": "u", "more": 1},
        cache_control={"type": "ephemeral", "ttl": "1h"},
        messages=[{"role": "user", "content": [text("a", citations=[1]), text("b", citations=[], new=1)]}],
        tools=[
            tool(defer_loading=True, cache_control={"type": "ephemeral"}),
            {"type": "bash_20250124", "name": "bash"},
        ],
        thinking={"type": "adaptive", "display": "omitted"},
        **{"odd, name": 1},
    )
    names = ignored_headers(not_honoured(asked, served_as(QWEN, SWITCHED)))["x-pie-ignored"].split(", ")
    expected = ["betas", "context_management", "odd%2C%20name", "messages.content.citations", "messages.content.new"]
    assert names == [*expected, "tools.bash_20250124"]


def test_the_header_is_bounded() -> None:
    asked = body(**{f"field_{index}_{'x' * 500}": 1 for index in range(1000)})
    assert len(ignored_headers(not_honoured(asked, served_as(CHATML, ())))["x-pie-ignored"]) <= 2048


def test_counting_needs_no_limit() -> None:
    assert validate(CountRequest, {"model": "m", "messages": [HELLO]}).messages[0].blocks[0].type == "text"


def test_a_field_may_have_any_name() -> None:
    names = ["_unknown", "unknown", "model_extra", "blocks"]
    assert body(**dict.fromkeys(names, 1), messages=[{**HELLO, "blocks": 1}]).unknown == (*names, "messages.blocks")
