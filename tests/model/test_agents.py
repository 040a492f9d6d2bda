"""OpenAI's Agents SDK runs its loop on the bundled weights: over Responses and over chat, tools and an output type."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    function_tool,
)
from openai import AsyncOpenAI
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


class Forecast(BaseModel):
    city: City
    weather: Literal["sunny", "rainy"]


@pytest.mark.parametrize("kind", [OpenAIResponsesModel, OpenAIChatCompletionsModel])
def test_the_loop(server: Running, kind: type[Any]) -> None:
    asked: list[str] = []

    # So small a model goes on calling what it may call; the first two requests have the tool and the output type.
    @function_tool(is_enabled=lambda _context, _agent: len(asked) < 2)
    def get_weather(city: City) -> str:
        """The weather in a city."""
        asked.append(city)
        return f"It is sunny in {city}."

    async def run() -> Any:
        async with AsyncOpenAI(
            base_url=f"{server.url}/v1", api_key="none", max_retries=0, _strict_response_validation=True
        ) as client:
            agent = Agent(
                name="weather",
                instructions="You look up the weather with the tool, then say what you found.",
                tools=[get_weather],
                output_type=Forecast,
                model=kind(model="bundled", openai_client=client),
                model_settings=ModelSettings(
                    tool_choice="required", parallel_tool_calls=False, temperature=0, max_tokens=200
                ),
            )
            config = RunConfig(tracing_disabled=True)
            return await Runner.run(agent, "What is the weather in Paris?", run_config=config)

    result = asyncio.run(run())
    assert asked[0] == "Paris" and isinstance(result.final_output, Forecast)
    assert result.final_output.city == "Paris" and len(result.raw_responses) > 1
