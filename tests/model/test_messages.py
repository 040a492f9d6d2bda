"""Anthropic's API on real weights, through its official client."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from anthropic import Anthropic

from proxy_inference_engine.runners.base import Lane
from tests.api.running import Running, running
from tests.model.conftest import make_runner

pytestmark = pytest.mark.model

TOOL: Any = {
    "name": "get_weather",
    "description": "The weather of a city.",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"enum": ["Paris", "Rome", "Oslo"]}},
        "required": ["city"],
        "additionalProperties": False,
    },
}


@pytest.fixture(scope="module")
def server(weights: Path) -> Iterator[Running]:
    with running(make_runner(weights, is_exact=True, lanes=(Lane(2, 2048),)), max_cache_bytes=64 << 20) as server:
        yield server


def system(code: str) -> list[Any]:
    billing = f"x-anthropic-billing-header: cc_version=2.1.37.fbe; cc_entrypoint=cli; cch={code};"
    return [{"type": "text", "text": billing}, {"type": "text", "text": "You are a helpful assistant."}]


def test_a_tool_loop(server: Running) -> None:
    """A call, its result, and a streamed answer, which finds the first turn in the cache."""
    messages: list[Any] = [{"role": "user", "content": "What is the weather in Paris?"}]
    fields: dict[str, Any] = {"model": "bundled", "max_tokens": 60, "tools": [TOOL], "extra_body": {"temperature": 0}}
    with Anthropic(base_url=server.url, api_key="none", max_retries=0, _strict_response_validation=True) as client:
        named: Any = {"type": "tool", "name": "get_weather"}
        first = client.messages.create(messages=messages, system=system("00000"), tool_choice=named, **fields)
        (call,) = first.content
        assert call.type == "tool_use" and call.input["city"] in ("Paris", "Rome", "Oslo")
        assert first.stop_reason == "tool_use"

        result = {"type": "tool_result", "tool_use_id": call.id, "content": "12 degrees, light rain"}
        messages += [{"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
        none: Any = {"type": "none"}
        with client.messages.stream(messages=messages, system=system("a3f91"), tool_choice=none, **fields) as events:
            text = "".join(events.text_stream)
            last = events.get_final_message()
        (block,) = last.content
        assert block.type == "text" and block.text == text and text.strip() and "tool_call" not in text
        count = client.messages.count_tokens(
            model="bundled",
            messages=messages,
            system=system("zzzzz"),
            tools=[TOOL],
            tool_choice=none,
        )
        num_cached = last.usage.cache_read_input_tokens or 0
        assert count.input_tokens == last.usage.input_tokens + num_cached
        assert num_cached >= first.usage.input_tokens + (first.usage.cache_read_input_tokens or 0) - 1
