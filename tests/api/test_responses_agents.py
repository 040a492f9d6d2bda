"""OpenAI's Agents SDK over both APIs: a loop of tools, with an output type in the same request."""

import asyncio
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
    function_tool,
)
from openai import AsyncOpenAI
from pydantic import BaseModel

from tests.api.running import MODEL, Running

UNTRACED = RunConfig(tracing_disabled=True)


class Forecast(BaseModel):
    city: Literal["Paris", "Rome"]
    days: Literal[1, 2]


def make_agent(model: Model, seen: list[str]) -> Agent[Any]:
    @function_tool
    def get_weather(city: Literal["Paris", "Rome"]) -> str:
        """The weather in a city."""
        seen.append(city)
        return "sunny"

    # Required in the first turn only: the SDK takes it back once a tool was called.
    settings = ModelSettings(tool_choice="required", max_tokens=500, extra_body={"seed": 1})
    return Agent(
        name="weather",
        instructions="Use the tool.",
        tools=[get_weather],
        output_type=Forecast,
        model=model,
        model_settings=settings,
    )


@pytest.mark.parametrize("kind", [OpenAIResponsesModel, OpenAIChatCompletionsModel])
@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_loop_with_an_output_type(server: Running, kind: type[Any], is_streamed: bool) -> None:
    async def run() -> Any:
        address = f"{server.url}/v1"
        async with AsyncOpenAI(base_url=address, api_key="none", _strict_response_validation=True) as client:
            agent = make_agent(kind(model=MODEL, openai_client=client), seen)
            if not is_streamed:
                return (await Runner.run(agent, "The weather?", run_config=UNTRACED)).final_output
            result = Runner.run_streamed(agent, "The weather?", run_config=UNTRACED)
            async for _ in result.stream_events():
                pass
            return result.final_output

    seen: list[str] = []
    assert isinstance(asyncio.run(run()), Forecast)
    assert seen and set(seen) <= {"Paris", "Rome"}
