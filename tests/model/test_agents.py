"""OpenAI's Agents SDK runs its loop on the bundled weights, over Responses and over chat.

The model itself decides to call a tool and then to answer, in requests that have tools and an output type.
"""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from agents import (
    Agent,
    Model,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    RunResult,
    RunResultStreaming,
    function_tool,
)
from httpx import Request
from openai import AsyncOpenAI, DefaultAsyncHttpxClient
from pydantic import BaseModel

from proxy_inference_engine.runners.base import Lane
from tests.api.running import Running, running
from tests.model.conftest import make_runner

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def server(weights: Path) -> Iterator[Running]:
    with running(make_runner(weights, lanes=(Lane(2, 2048),)), max_cache_bytes=200 << 20) as server:
        yield server


# A small model is held on a short lead: everything it writes has an end.
City = Literal["Paris", "Rome"]
UNTRACED = RunConfig(tracing_disabled=True)

# The turn before: without an example, so small a model calls the tool again and again.
BEFORE: list[Any] = [
    {"role": "user", "content": "What is the weather in Rome?"},
    {"type": "function_call", "call_id": "call_1", "name": "get_weather", "arguments": '{"city": "Rome"}'},
    {"type": "function_call_output", "call_id": "call_1", "output": "It is rainy in Rome."},
    {"role": "assistant", "content": '{"city": "Rome", "weather": "rainy"}'},
]


class Forecast(BaseModel):
    city: City
    weather: Literal["sunny", "rainy"]


def make_agent(model: Model, asked: list[str]) -> Agent[Any]:
    @function_tool
    def get_weather(city: City) -> str:
        """The weather in a city."""
        asked.append(city)
        return f"It is sunny in {city}."

    return Agent(
        name="weather",
        instructions="You look up the weather with the tool, then say what you found.",
        tools=[get_weather],
        output_type=Forecast,
        model=model,
        model_settings=ModelSettings(temperature=0, max_tokens=200),
    )


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("kind", [OpenAIResponsesModel, OpenAIChatCompletionsModel])
def test_the_loop(server: Running, kind: type[Any], is_streamed: bool) -> None:
    asked: list[str] = []
    sent: list[dict[str, Any]] = []

    async def keep(request: Request) -> None:
        sent.append(json.loads(request.content))

    async def run() -> RunResult | RunResultStreaming:
        http = DefaultAsyncHttpxClient(event_hooks={"request": [keep]})
        async with AsyncOpenAI(
            base_url=f"{server.url}/v1",
            api_key="none",
            max_retries=0,
            http_client=http,
            _strict_response_validation=True,
        ) as client:
            agent = make_agent(kind(model="bundled", openai_client=client), asked)
            question = [*BEFORE, {"role": "user", "content": "What is the weather in Paris?"}]
            if not is_streamed:
                return await Runner.run(agent, question, run_config=UNTRACED)
            result = Runner.run_streamed(agent, question, run_config=UNTRACED)
            async for _ in result.stream_events():
                pass
            return result

    result = asyncio.run(run())
    assert asked == ["Paris"]
    assert result.final_output == Forecast(city="Paris", weather="sunny")
    assert len(sent) == len(result.raw_responses) == 2
    for body in sent:
        shape = body["text"]["format"] if kind is OpenAIResponsesModel else body["response_format"]
        assert shape["type"] == "json_schema" and len(body["tools"]) == 1 and "tool_choice" not in body
