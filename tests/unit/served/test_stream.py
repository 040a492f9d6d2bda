"""A served model's answers as one stream: its steps, its choices, its failures, its counts."""

import asyncio
import math

import pytest

from proxy_inference_engine.engine.base import Item
from proxy_inference_engine.errors import EngineFailure, QueueFull
from proxy_inference_engine.formats.base import Labels
from proxy_inference_engine.formats.syntax import Thinking
from proxy_inference_engine.output.events import Ended, PromptRead, ReasoningDelta, TextDelta
from proxy_inference_engine.served.stream import AnswerStream, ReadyRequest, Step, best
from proxy_inference_engine.types import Failed, Prefilled
from tests.polling import HANG_S
from tests.unit.served.scripted import TIMINGS, Script, ScriptedEngine, make_request, text_items, whole


async def run(engine: ScriptedEngine, num_prompts: int, num_choices: int = 1, stop: tuple[str, ...] = ()) -> list[Step]:
    prepared = [ReadyRequest(make_request(str(number), num_choices), stop, None) for number in range(num_prompts)]
    return [step async for step in AnswerStream(engine, prepared, engine.observer()).steps()]


def texts(steps: list[Step], num_choices: int) -> list[str]:
    result = [""] * num_choices
    for choice, event in (pair for step in steps for pair in step):
        if isinstance(event, TextDelta):
            result[choice] += event.text
    return result


async def test_one_stream_keeps_its_steps() -> None:
    steps = await run(ScriptedEngine([[Item(0, Prefilled(3))], text_items("ab"), whole("")[1:]]), 1)
    assert [[type(event) for _, event in step] for step in steps] == [[PromptRead], [TextDelta, TextDelta], [Ended]]


async def test_choices_are_numbered_through_all_prompts() -> None:
    scripts: list[Script] = [[0.01, whole("a"), whole("b", 1)], [whole("d", 1), 0.02, whole("c")]]
    steps = await run(ScriptedEngine(*scripts), num_prompts=2, num_choices=2)
    assert texts(steps, 4) == ["a", "b", "c", "d"]


async def test_a_stop_string_cancels_its_choice_only() -> None:
    engine = ScriptedEngine([whole("a", 1), [Item(0, Prefilled(0)), *text_items("xSTOPy")]])
    steps = await run(engine, 1, 2, stop=("STOP",))
    assert texts(steps, 2) == ["x", "a"]
    assert 0 in engine.streams[0].cancelled


@pytest.mark.parametrize("num_prompts", [1, 3])
async def test_a_failed_choice_fails_the_request(num_prompts: int) -> None:
    error = EngineFailure("broken")
    scripts: list[Script] = [[whole("a")], [[Item(0, Failed(error))]], [2 * HANG_S]]
    engine = ScriptedEngine(*(scripts[1:2] if num_prompts == 1 else scripts))
    async with asyncio.timeout(HANG_S):
        with pytest.raises(EngineFailure, match="broken"):
            await run(engine, num_prompts)


@pytest.mark.parametrize("num_prompts", [1, 2])
async def test_an_early_end_is_an_error(num_prompts: int) -> None:
    scripts = [[whole("a")], [[Item(0, Prefilled(0)), *text_items("a")]]]
    with pytest.raises(EngineFailure, match="before its answer"):
        await run(ScriptedEngine(*scripts[-num_prompts:]), num_prompts)


async def test_submits_all_or_nothing() -> None:
    engine = ScriptedEngine([whole("a")], [whole("b")])
    with pytest.raises(QueueFull):
        await run(engine, 3)
    assert [stream.cancelled for stream in engine.streams] == [[None], [None]]


async def test_observes_first_text_and_gaps() -> None:
    engine = ScriptedEngine([[Item(0, Prefilled(0))], text_items("a"), text_items("b"), whole("")[1:]])
    metrics = engine.metrics()
    async for _ in AnswerStream(engine, [ReadyRequest(make_request(), (), None)], metrics.of("m")).steps():
        pass
    rendered = metrics.render().decode()
    assert 'pie_time_to_first_token_seconds_count{model="m"} 1.0' in rendered
    assert 'pie_inter_token_seconds_count{model="m"} 1.0' in rendered


async def test_labels_say_what_is_reasoning_and_its_first_piece_counts() -> None:
    engine = ScriptedEngine([[Item(0, Prefilled(0))], text_items("hm</think>"), whole("so")[1:]])
    metrics = engine.metrics()
    labels = Labels(thinking=Thinking(), starts_in_reasoning=True)
    stream = AnswerStream(engine, [ReadyRequest(make_request(), (), labels)], metrics.of("m"))
    steps = [step async for step in stream.steps()]
    pieces = [event for step in steps for _, event in step if isinstance(event, ReasoningDelta)]
    assert "".join(piece.text for piece in pieces) == "hm" and texts(steps, 1) == ["so"]
    rendered = metrics.render().decode()
    assert 'pie_time_to_first_token_seconds_count{model="m"} 1.0' in rendered
    assert 'pie_inter_token_seconds_count{model="m"} 1.0' in rendered


def ended(mean: float | None) -> Ended:
    return Ended("stop", None, 3, TIMINGS, mean_logprob=mean)


@pytest.mark.parametrize(
    ("means", "num_wanted", "numbers"),
    [
        ([-1.0, -0.5, -2.0], 1, [1]),
        ([-1.0, -0.5, -2.0], 2, [1, 0]),
        ([-1.0, -0.5, -2.0], 3, [1, 0, 2]),
        ([-1.0, -1.0, -1.0], 2, [0, 1]),
        ([-math.inf, -9.0], 1, [1]),
        ([None, None], 1, [0]),
    ],
)
def test_the_likeliest_come_first(means: list[float | None], num_wanted: int, numbers: list[int]) -> None:
    assert best([ended(mean) for mean in means], num_wanted) == numbers
