"""Messages to interactions: calls, their results and reasoning."""

from typing import Any

import pytest

from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.interaction import Interaction, Role, ToolCall, ToolKind
from proxy_inference_engine.served.ask import ChatPrompt
from proxy_inference_engine.server.apis.chat.schema import ChatRequest
from proxy_inference_engine.server.apis.shared.fields import validate
from proxy_inference_engine.server.apis.shared.messages import make_turns

USER = {"role": "user", "content": "Hello"}


def call(id_: str, name: str = "f", arguments: str = "{}") -> dict[str, Any]:
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}


def calling(*calls: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls), **fields}


def result(id_: str, content: Any = "3") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id_, "content": content}


def function_result(name: str) -> dict[str, Any]:
    return {"role": "function", "name": name, "content": "3"}


def turns(*messages: dict[str, Any]) -> list[Interaction]:
    return make_turns(validate(ChatRequest, {"model": "m", "messages": [USER, *messages]}).messages)


def refused_at(*messages: dict[str, Any]) -> str | None:
    with pytest.raises(InvalidRequest) as caught:
        turns(*messages)
    return caught.value.param


def test_calls_and_results() -> None:
    custom = {"id": "b", "type": "custom", "custom": {"name": "c", "input": "x\n"}}
    _, asked, second, first = turns(
        calling(call("a", arguments='{"x":1}'), custom), result("b", [{"type": "text", "text": "R"}]), result("a")
    )
    assert asked.role is Role.ASSISTANT and asked.text == "" and asked.content == ()
    assert asked.tool_calls == (ToolCall("a", "f", '{"x":1}'), ToolCall("b", "c", "x\n", ToolKind.CUSTOM))
    assert [(turn.role, turn.text, dict(turn.metadata)) for turn in (second, first)] == [
        (Role.TOOL, "R", {"tool_call_id": "b", "name": "c"}),
        (Role.TOOL, "3", {"tool_call_id": "a", "name": "f"}),
    ]


def test_text_beside_calls_stays() -> None:
    asked = turns(calling(call("a"), content="Let me see."))[1]
    assert asked.text == "Let me see." and len(asked.tool_calls) == 1


@pytest.mark.parametrize(
    ("fields", "thoughts"),
    [
        ({"reasoning_content": "hm"}, "hm"),
        ({"reasoning": "hm"}, "hm"),
        ({"reasoning": "hm", "reasoning_content": "hm"}, "hm"),
        ({"reasoning": "hm", "reasoning_content": ""}, "hm"),
        ({"reasoning": None}, None),
        ({"reasoning_content": ""}, None),
    ],
)
def test_reasoning_of_history(fields: dict[str, Any], thoughts: str | None) -> None:
    said = turns({"role": "assistant", "content": "x", **fields})[1]
    assert said.metadata.get("reasoning_content") == thoughts
    assert "reasoning" not in said.metadata and "tool_calls" not in said.metadata


def test_an_answer_that_was_all_reasoning_can_be_sent_back() -> None:
    assert turns({"role": "assistant", "content": None, "reasoning_content": "hm"})[1].text == ""


def test_a_function_message_answers_the_oldest_open_call_of_its_name() -> None:
    answered = turns(
        calling(call("a"), call("b", "g"), call("c")), function_result("g"), function_result("f"), function_result("f")
    )
    assert [turn.tool_call_id for turn in answered[2:]] == ["b", "a", "c"]
    assert all(turn.role is Role.TOOL for turn in answered[2:])


def test_an_id_may_come_again_in_a_later_turn() -> None:
    answered = turns(calling(call("a")), result("a"), calling(call("a", "g")), result("a"))
    assert [turn.metadata.get("name") for turn in answered] == [None, None, "f", None, "g"]


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([result("a")], "messages[1].tool_call_id"),
        ([result("a"), calling(call("a"))], "messages[1].tool_call_id"),
        ([calling(call("a")), result("b")], "messages[2].tool_call_id"),
        ([function_result("f")], "messages[1].name"),
        ([calling(call("a")), function_result("g")], "messages[2].name"),
        ([calling(call("a")), result("a"), function_result("f")], "messages[3].name"),
    ],
)
def test_a_result_without_its_call_is_refused(messages: list[dict[str, Any]], param: str) -> None:
    assert refused_at(*messages) == param


def test_all_text_counts_as_work() -> None:
    messages = [USER, calling(call("a", arguments="x" * 100), reasoning="y" * 1000), result("a", "z" * 10_000)]
    made = make_turns(validate(ChatRequest, {"model": "m", "messages": messages}).messages)
    assert ChatPrompt(made).num_chars == 5 + 100 + 1000 + 10_000
