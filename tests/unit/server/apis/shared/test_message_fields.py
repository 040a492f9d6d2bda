"""Messages of chat and of the tokenizer's routes: what is refused, by its place, and what is text."""

from typing import Any

import pytest

from proxy_inference_engine.server.apis.chat.schema import ChatRequest
from proxy_inference_engine.server.apis.shared.fields import RequestSchema, validate
from proxy_inference_engine.server.apis.tokens.schema import TemplateRequest, TokenizeRequest
from tests.unit.server.apis.shared.refusals import CHAT, HELLO, refusal

CALL: dict[str, Any] = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def with_call(**fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [{"id": "c", **fields}]}


MESSAGES: list[tuple[Any, str]] = [
    (None, "messages"),
    ([], "messages"),
    ("hello", "messages"),
    ({}, "messages"),
    ([1], "messages[0]"),
    (["x"], "messages[0]"),
    (HELLO * 4097, "messages"),
    ([{"content": "x"}], "messages[0].role"),
    ([{"role": "root", "content": "x"}], "messages[0].role"),
    ([{"role": ["user"], "content": "x"}], "messages[0].role"),
    ([{"role": "tool", "content": "x"}], "messages[0].tool_call_id"),
    ([{"role": "tool", "content": "x", "tool_call_id": ""}], "messages[0].tool_call_id"),
    ([{"role": "tool", "content": "x", "tool_call_id": "c" * 257}], "messages[0].tool_call_id"),
    ([{"role": "tool", "tool_call_id": "c"}], "messages[0].content"),
    ([{"role": "user", "content": "x", "tool_call_id": "c"}], "messages[0].tool_call_id"),
    ([{"role": "function", "content": "x", "name": "f", "tool_call_id": "c"}], "messages[0].tool_call_id"),
    ([{"role": "function", "content": "x"}], "messages[0].name"),
    ([{"role": "user"}], "messages[0].content"),
    ([*HELLO, {"role": "user", "content": None}], "messages[1].content"),
    ([{"role": "user", "content": 5}], "messages[0].content"),
    ([{"role": "user", "content": []}], "messages[0].content"),
    ([{"role": "user", "content": {}}], "messages[0].content"),
    ([{"role": "user", "content": ["x"]}], "messages[0].content[0]"),
    ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text"),
    ([{"role": "user", "content": [{"type": "text", "text": 5}]}], "messages[0].content[0].text"),
    ([{"role": "user", "content": [{"type": "poem", "text": "x"}]}], "messages[0].content[0].type"),
    ([{"role": "user", "content": [{"type": "text", "text": "x"}] * 1025}], "messages[0].content"),
    ([{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}], "messages[0].content[0].image_url"),
    ([{"role": "user", "content": [{"type": "image_url"}]}], "messages[0].content[0].image_url"),
    ([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}], "messages[0].content[0].image_url.url"),
    (
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x", "detail": "most"}}]}],
        "messages[0].content[0].image_url.detail",
    ),
    ([{"role": "system", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}], "messages[0].content"),
    ([{"role": "assistant", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}], "messages[0].content"),
    ([{"role": "user", "content": [{"type": "image"}]}], "messages[0].content[0]"),
    ([{"role": "user", "content": [{"type": "input_audio"}]}], "messages[0].content[0]"),
    ([{"role": "user", "content": [{"type": "file"}]}], "messages[0].content[0]"),
    ([{"role": "user", "content": "x", "name": "n" * 1_000_000}], "messages[0].name"),
    ([{"role": "user", "content": "x", "tool_calls": [CALL]}], "messages[0].tool_calls"),
    ([{"role": "user", "content": "x", "reasoning_content": "hm"}], "messages[0].reasoning_content"),
    ([{"role": "system", "content": "x", "reasoning": "hm"}], "messages[0].reasoning"),
    ([{"role": "assistant", "content": "x", "reasoning": 5}], "messages[0].reasoning"),
    ([{"role": "assistant", "content": "x", "reasoning": "a", "reasoning_content": "b"}], "messages[0].reasoning"),
    ([{"role": "user", "content": "x", "function_call": CALL["function"]}], "messages[0].function_call"),
    ([{"role": "assistant", "function_call": {"name": "f"}}], "messages[0].function_call.arguments"),
    ([{"role": "assistant", "tool_calls": [CALL] * 1025}], "messages[0].tool_calls"),
    ([{"role": "assistant", "tool_calls": {}}], "messages[0].tool_calls"),
    ([{"role": "assistant", "tool_calls": [5]}], "messages[0].tool_calls[0]"),
    ([{"role": "assistant", "tool_calls": [{"id": "c"}]}], "messages[0].tool_calls[0].function"),
    ([{"role": "assistant", "tool_calls": [CALL, {**CALL, "id": ""}]}], "messages[0].tool_calls[1].id"),
    ([{"role": "assistant", "tool_calls": [{**CALL, "type": "web"}]}], "messages[0].tool_calls[0]"),
    ([with_call(function={"name": "f"})], "messages[0].tool_calls[0].function.arguments"),
    ([with_call(function={"name": "f", "arguments": {}})], "messages[0].tool_calls[0].function.arguments"),
    ([with_call(function={"name": "f g", "arguments": ""})], "messages[0].tool_calls[0].function.name"),
    ([with_call(type="custom")], "messages[0].tool_calls[0].custom"),
    ([with_call(type="custom", custom={"name": "f"})], "messages[0].tool_calls[0].custom.input"),
    ([{"role": "assistant", "content": "x", "audio": {"id": "a"}}], "messages[0].audio"),
    ([HELLO, HELLO], "messages"),
]


@pytest.mark.parametrize(("messages", "param"), MESSAGES)
@pytest.mark.parametrize("schema", [ChatRequest, TemplateRequest, TokenizeRequest])
def test_messages_are_refused_by_place(schema: type[RequestSchema], messages: Any, param: str) -> None:
    error = refusal(schema, {"model": "m", "messages": messages})
    assert error.param == param


def test_a_message_of_the_sdk_can_be_sent_back() -> None:
    message: dict[str, Any] = {
        "role": "assistant", "content": "hi", "refusal": None, "annotations": [], "audio": None,
        "function_call": None, "tool_calls": None,
    }  # fmt: skip
    body = validate(ChatRequest, {**CHAT, "messages": [*HELLO, message]})
    assert body.messages[1].texts == ["hi"]


def test_content_parts_and_refusals_are_text() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "refusal", "refusal": "b"}]
    messages = [{"role": "assistant", "content": parts}, {"role": "assistant", "content": None, "refusal": "c"}]
    body = validate(ChatRequest, {**CHAT, "messages": messages})
    assert [message.texts for message in body.messages] == [["a", "b"], ["c"]]
