"""The loops that the official clients run by themselves: their own tool runners and threads, from call to last word."""

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import pytest
from anthropic import Anthropic, AsyncAnthropic, beta_async_tool, beta_tool

from tests.api.clients import TYPESCRIPT, run
from tests.api.running import HELLO, MODEL, Running, running
from tests.api.writing import Writer, call

TEXTS = (f"Let me look.\n{call('get_weather', city='Paris')}", "It is sunny.")
RUNNER: dict[str, Any] = {"model": MODEL, "max_tokens": 400, "messages": HELLO}
HEAD = """
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { betaZodTool } from "@anthropic-ai/sdk/helpers/beta/zod";
import { z } from "zod";
const tool = betaZodTool({
  name: "get_weather",
  description: "The weather.",
  inputSchema: z.object({ city: z.string() }),
  run: ({ city }) => `12 degrees in ${city}`,
});
const asked = { model: "default", max_tokens: 400, messages: [{ role: "user", content: "Hello" }] };
"""
ANTHROPIC = """
const client = new Anthropic({ baseURL: process.env.URL, apiKey: "none", maxRetries: 0 });
const stream = process.env.STREAM === "yes";
const message = await client.beta.messages.toolRunner({ ...asked, stream, tools: [tool] });
"""
OPENAI = """
const client = new OpenAI({ baseURL: process.env.URL + "/v1", apiKey: "none", maxRetries: 0 });
const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const called = { name: "get_weather", parameters, parse: JSON.parse, function: tool.run };
const stream = process.env.STREAM === "yes";
const runner = client.chat.completions.runTools({ ...asked, stream, tools: [{ type: "function", function: called }] });
"""
# What each ends with: the last message of the loop, as one text.
PROGRAMS = {
    "anthropic": HEAD
    + ANTHROPIC
    + 'console.log(message.content.filter((each) => each.type === "text").map((each) => each.text).join(""));',
    "openai": HEAD + OPENAI + "console.log(await runner.finalContent());",
}


@pytest.fixture
def writer() -> Writer:
    return Writer(TEXTS)


@pytest.fixture
def live(writer: Writer) -> Iterator[Running]:
    with running(writer) as found:
        yield found
        found.wait_idle()


def assert_whole(writer: Writer) -> None:
    """The second prompt has all of the conversation: the question, the call and its result."""
    first, second = writer.prompts
    assert second.startswith(first)
    assert "Let me look." in second and '"city": "Paris"' in second and "12 degrees in Paris" in second


@pytest.mark.parametrize("is_streamed", [False, True])
def test_in_python(live: Running, writer: Writer, is_streamed: bool) -> None:
    @beta_tool
    def get_weather(city: str) -> str:
        """The weather.

        Args:
            city: Where.
        """
        return f"12 degrees in {city}"

    with Anthropic(base_url=live.url, api_key="none", max_retries=0) as client:
        runner: Any = client.beta.messages.tool_runner(**RUNNER, tools=[get_weather], stream=is_streamed)
        last = runner.until_done()
    assert last.content[-1].text == "It is sunny."
    assert_whole(writer)


async def test_in_python_that_does_not_wait(live: Running, writer: Writer) -> None:
    @beta_async_tool
    async def get_weather(city: str) -> str:
        """The weather.

        Args:
            city: Where.
        """
        return f"12 degrees in {city}"

    async with AsyncAnthropic(base_url=live.url, api_key="none", max_retries=0) as client:
        last = await client.beta.messages.tool_runner(**RUNNER, tools=[get_weather]).until_done()
    assert last.content[-1].text == "It is sunny."
    assert_whole(writer)


def test_a_thread_goes_on_with_all_that_was_said(live: Running, writer: Writer) -> None:
    """It is refused by a name that the client knows: then it sends the whole conversation each time."""
    with Anthropic(base_url=live.url, api_key="none", max_retries=0) as client:
        options: dict[str, Any] = {"model": MODEL, "max_tokens": 400}
        with pytest.raises(anthropic.BadRequestError, match="whole conversation"):
            client.beta.messages.thread(**options).send({"role": "user", "content": "Hello"})
        thread = client.beta.messages.thread(**options, unsupported_request_behavior="continue_unthreaded")
        thread.send({"role": "user", "content": "Hello"})
        thread.send({"role": "user", "content": "Go on."})
    first, second = writer.prompts
    assert second.startswith(first) and "Let me look." in second and "Go on." in second


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_in_typescript(live: Running, writer: Writer, name: str, is_streamed: bool, tmp_path: Any) -> None:
    words = ["node", "--input-type=module", "--eval", PROGRAMS[name]]
    stream = "yes" if is_streamed else "no"
    printed = run(words, TYPESCRIPT.folder(), tmp_path, {"URL": live.url, "STREAM": stream})
    assert "It is sunny." in printed, json.dumps(writer.prompts)
    assert_whole(writer)
