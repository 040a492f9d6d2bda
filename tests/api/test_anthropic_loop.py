"""Agents over Anthropic's API: loops with tools, thinking that goes back and forth, and traffic as Claude Code's.

The model writes what a test wrote down, so what comes out and what finds its way into the next prompt is known.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from anthropic import Anthropic
from anthropic.types import Message

from tests.api.running import MODEL, Running, running
from tests.api.test_anthropic import PING, WEATHER, claude, said, stream, total_input
from tests.api.writing import Writer, call


@contextmanager
def writing(*texts: str, family: str = "qwen3") -> Iterator[tuple[Running, Anthropic]]:
    with running(Writer(texts, family=family)) as live, claude(live) as client:
        yield live, client
        live.wait_idle()


def ask(client: Anthropic, messages: list[Any], *, is_streamed: bool, **fields: Any) -> Message:
    given = {"messages": messages, "max_tokens": 2000, "tools": [WEATHER, PING], **fields}
    if is_streamed:
        return stream(client, **given)
    answer: Message = client.messages.create(model=MODEL, **given, extra_body={"temperature": 0})
    return answer


def results(message: Message, *texts: str) -> dict[str, Any]:
    calls = [block for block in message.content if block.type == "tool_use"]
    return {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": block.id, "content": text}
            for block, text in zip(calls, texts, strict=True)
        ],
    }


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_loop_of_three_turns(is_streamed: bool) -> None:
    first = "Let me look.\n" + call("get_weather", city="Paris", days=2) + "\n" + call("ping")
    second = call("get_weather", city="Rome", days=1)
    with writing(first, second, "Sunny in Paris, rain in Rome.", family="chatml") as (_, client):
        messages: list[Any] = [{"role": "user", "content": "Paris and Rome?"}]
        answer = ask(client, messages, is_streamed=is_streamed)
        assert answer.stop_reason == "tool_use"
        blocks = said(answer)
        assert [block["type"] for block in blocks] == ["text", "tool_use", "tool_use"]
        assert blocks[0]["text"].strip() == "Let me look."
        assert [(block["name"], block["input"]) for block in blocks[1:]] == [
            ("get_weather", {"city": "Paris", "days": 2}),
            ("ping", {}),
        ]

        messages += [{"role": "assistant", "content": answer.content}, results(answer, "sunny", "pong")]
        before = total_input(answer) + answer.usage.output_tokens
        answer = ask(client, messages, is_streamed=is_streamed)
        assert (answer.stop_reason, len(answer.content)) == ("tool_use", 1)
        assert said(answer)[0]["input"] == {"city": "Rome", "days": 1}
        # The turns before are found in the cache: what was sent back renders as what was written.
        assert (answer.usage.cache_read_input_tokens or 0) >= before - 1

        messages += [{"role": "assistant", "content": answer.content}, results(answer, "rain")]
        before = total_input(answer) + answer.usage.output_tokens
        answer = ask(client, messages, is_streamed=is_streamed)
        assert answer.stop_reason == "end_turn"
        assert said(answer) == [{"type": "text", "text": "Sunny in Paris, rain in Rome."}]
        assert (answer.usage.cache_read_input_tokens or 0) >= before - 1


THINKING = {"type": "enabled", "budget_tokens": 1024}
THOUGHT = "<think>\nParis, then.\n</think>\n\n"


@pytest.mark.parametrize("is_streamed", [False, True])
def test_thinking_goes_back_and_forth(is_streamed: bool) -> None:
    with writing(THOUGHT + call("ping"), "Done.") as (_, client):
        messages: list[Any] = [{"role": "user", "content": "Go."}]
        answer = ask(client, messages, is_streamed=is_streamed, thinking=THINKING)
        thought, used = answer.content
        assert thought.type == "thinking" and thought.thinking.strip() == "Paris, then." and thought.signature
        assert used.type == "tool_use" and answer.stop_reason == "tool_use"
        assert answer.usage.output_tokens_details is not None
        assert 0 < answer.usage.output_tokens_details.thinking_tokens < answer.usage.output_tokens

        plain = client.messages.count_tokens(model=MODEL, messages=messages, tools=[PING], thinking=THINKING)  # type: ignore[list-item,arg-type]
        messages += [{"role": "assistant", "content": answer.content}, results(answer, "pong")]
        answer = ask(client, messages, is_streamed=is_streamed, thinking=THINKING)
        assert said(answer) == [{"type": "text", "text": "Done."}]
        assert total_input(answer) > plain.input_tokens + len("Paris, then.")


def test_without_being_asked_it_does_not_think() -> None:
    with writing("Hello.") as (live, client):
        messages = [{"role": "user", "content": "Hi"}]
        for thinking in ({}, {"thinking": {"type": "disabled"}}):
            answer = ask(client, messages, is_streamed=False, **thinking)
            assert said(answer) == [{"type": "text", "text": "Hello."}]
        counts = [
            client.messages.count_tokens(model=MODEL, messages=messages, **fields).input_tokens  # type: ignore[arg-type]
            for fields in ({}, {"thinking": {"type": "adaptive"}})
        ]
        assert counts[0] > counts[1]  # the empty block that tells it so
        assert live.runner.info.name == MODEL


def test_a_budget_ends_the_thinking() -> None:
    with writing("<think>\n" + "x" * 500) as (_, client):
        fields: dict[str, Any] = {"thinking": {"type": "enabled", "budget_tokens": 20}, "max_tokens": 100}
        answer = ask(client, [{"role": "user", "content": "Hi"}], is_streamed=True, tools=[], **fields)
        thought = answer.content[0]
        assert thought.type == "thinking" and 0 < len(thought.thinking) <= 20


# As Claude Code does it

CODE_HEADERS = {
    "anthropic-version": "2023-06-01",
    "anthropic-beta": "claude-code-20250219,interleaved-thinking-2025-05-14,fine-grained-tool-streaming-2025-05-14",
    "x-app": "cli",
    "user-agent": "claude-cli/2.1.37 (external, cli)",
}
EPHEMERAL = {"cache_control": {"type": "ephemeral"}}


def code_body(code: str, messages: list[Any]) -> dict[str, Any]:
    """A request as Claude Code writes it: `code` is what changes from one to the next."""
    billing = f"x-anthropic-billing-header: cc_version=2.1.37.fbe; cc_entrypoint=cli; cch={code};"
    parameters = {
        "type": "object",
        "properties": {"path": {"type": "string"}, "limit": {"type": "integer", "minimum": 1}},
        "required": ["path"],
        "additionalProperties": False,
        "$schema": "https://json-schema.org/draft/2020-12/schema",
    }
    tools = [
        {"name": f"Tool{index}", "description": "Does it. " * 5, "input_schema": parameters} for index in range(24)
    ]
    return {
        "model": MODEL,
        "max_tokens": 32000,
        "stream": True,
        "system": [
            {"type": "text", "text": billing},
            {"type": "text", "text": "You are a coding agent.", **EPHEMERAL},
            {"type": "text", "text": "Be brief. " * 20, **EPHEMERAL},
        ],
        "messages": messages,
        "tools": [{**tool, "eager_input_streaming": True} for tool in tools],
        "metadata": {"user_id": "user_x_account__session_y"},
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "medium"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    }


def test_traffic_of_claude_code() -> None:
    text = THOUGHT + "I will read it.\n" + call("Tool3", path="a.py", limit=5)
    reminder = {"type": "text", "text": "<system-reminder>\nBe careful.\n</system-reminder>"}
    question = {"type": "text", "text": "Read a.py", **EPHEMERAL}
    with writing(text, "It is empty.") as (live, _), live.http(headers=CODE_HEADERS) as http:
        messages: list[Any] = [{"role": "user", "content": [reminder, question]}]
        first = http.post("/v1/messages?beta=true", json=code_body("00000", messages))
        assert first.status_code == 200, first.text
        assert first.headers["x-pie-ignored"].split(", ") == [
            "context_management",
            "tools.eager_input_streaming",
            "output_config.effort",
        ]
        blocks, end = read(first.text)
        assert [block["type"] for block in blocks] == ["thinking", "text", "tool_use"]
        assert blocks[2]["input"] == {"path": "a.py", "limit": 5} and end["delta"]["stop_reason"] == "tool_use"

        result = {"type": "tool_result", "tool_use_id": blocks[2]["id"], "content": [{"type": "text", "text": ""}]}
        messages += [
            {"role": "assistant", "content": blocks},
            {"role": "user", "content": [{**result, **EPHEMERAL}]},
            {"role": "system", "content": "The file was changed by the user."},
        ]
        body = code_body("a3f91", messages)
        count = http.post("/v1/messages/count_tokens?beta=true", json={**body, "stream": None}).json()["input_tokens"]
        blocks, end = read(http.post("/v1/messages?beta=true", json=body).text)
        assert blocks[-1] == {"type": "text", "text": "It is empty."} and end["delta"]["stop_reason"] == "end_turn"
        usage = end["usage"]
        assert usage["input_tokens"] + usage["cache_read_input_tokens"] == count
        assert usage["cache_read_input_tokens"] > 0.9 * count  # the changed line is gone


def read(text: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The blocks of a stream as a client keeps them, and its message_delta."""
    events = [json.loads(frame.split("\ndata: ")[1]) for frame in text.split("\n\n")[:-1]]
    assert [events[0]["type"], events[-2]["type"], events[-1]["type"]] == [
        "message_start",
        "message_delta",
        "message_stop",
    ]
    blocks: list[dict[str, Any]] = []
    for event in events:
        if event["type"] == "content_block_start":
            blocks.append(event["content_block"])
            partial = ""
        elif event["type"] == "content_block_delta":
            delta = event["delta"]
            key = delta["type"].removesuffix("_delta")
            if key == "input_json":
                partial += delta["partial_json"]
                continue
            blocks[-1][key] += delta[key]
        elif event["type"] == "content_block_stop" and blocks[-1]["type"] == "tool_use":
            blocks[-1]["input"] = json.loads(partial)
    return blocks, events[-2]
