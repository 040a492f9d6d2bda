"""What came while nobody read is read in small parts: others have their turns in between."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from proxy_inference_engine.engine.base import Item
from proxy_inference_engine.output.events import PromptRead, TextDelta
from proxy_inference_engine.runners.fake import ByteTokenizer
from proxy_inference_engine.served.stream import AnswerStream, ReadyRequest, Step
from proxy_inference_engine.types import Finished, Limits, Logprob, Prefilled, Request, Sampling, Timings, Token


class Backlog:
    """An engine whose whole answer is there at once. Stands for the engine, and for its one stream."""

    tokenizer = ByteTokenizer()

    def __init__(self, items: list[Item]) -> None:
        self._items = items

    def submit(self, _request: Request) -> "Backlog":
        return self

    def cancel(self, choice: int | None = None) -> None: ...

    async def __aiter__(self) -> AsyncIterator[list[Item]]:
        yield self._items


def made(items: list[Item], off_loop: Any = None) -> AnswerStream:
    request = Request("id", "anna", (1, 2, 3), Sampling(1), Limits(100_000))
    return AnswerStream(Backlog(items), [ReadyRequest(request, (), None)], off_loop=off_loop)  # type: ignore[arg-type]  # the part that is used


def answer(num_tokens: int) -> list[Item]:
    tokens = [Item(0, Token(ord("a"))) for _ in range(num_tokens)]
    return [Item(0, Prefilled(0)), *tokens, Item(0, Finished("stop", Timings(0.0, 1.0, 1.0)))]


async def test_a_backlog_is_read_in_parts() -> None:
    """A client that read nothing for a while, and then something, held up everybody with all that had come since."""
    turns: list[int] = []

    async def count() -> None:
        while True:
            turns.append(len(steps))
            await asyncio.sleep(0)

    steps: list[Step] = []
    counting = asyncio.ensure_future(count())
    async for step in made(answer(1000)).steps():
        steps.append(step)
    counting.cancel()
    text = "".join(event.text for step in steps for _, event in step if isinstance(event, TextDelta))
    assert text == "a" * 1000
    assert len(steps) >= 1000 // 64 and max(map(len, steps)) <= 66
    assert len(set(turns)) >= len(steps) - 1, "between two parts others had a turn"


@pytest.mark.parametrize("num_tokens", [3, 60])
async def test_what_a_step_brings_stays_together(num_tokens: int) -> None:
    steps = [step async for step in made(answer(num_tokens)).steps()]
    assert len(steps) == 1


async def test_a_prompt_that_was_scored_is_read_off_the_loop() -> None:
    sizes: list[int] = []

    async def off_loop(work: Callable[[], Step], *, num_chars: int) -> Step:
        sizes.append(num_chars)
        return await asyncio.to_thread(work)

    scores = (None, *(Logprob(97, -1.0, ()) for _ in range(4999)))
    items = [Item(0, Prefilled(0, scores)), *answer(3)[1:]]
    steps = [step async for step in made(items, off_loop).steps()]
    assert sizes == [500_000]
    (_, read), *_ = steps[0]
    assert isinstance(read, PromptRead) and len(read.prompt_logprobs or ()) == 5000
    assert [step for step in steps[1:] for _ in step]
