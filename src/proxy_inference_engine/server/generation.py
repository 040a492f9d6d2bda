"""The engine's streams of one HTTP request, as one stream of events.

Choices are numbered through all prompts: prompt_index * num_choices + choice. Knows no wire format.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import NamedTuple, Protocol

from proxy_inference_engine.engine.base import Engine, Item, Stream
from proxy_inference_engine.errors import EngineFailure
from proxy_inference_engine.formats.labels import Labels
from proxy_inference_engine.output.events import Broken, CallDelta, CallStarted, Event, ReasoningDelta, TextDelta
from proxy_inference_engine.output.pipeline import Pipeline
from proxy_inference_engine.server.metrics import Metrics
from proxy_inference_engine.types import Request

_SAYING = (TextDelta, ReasoningDelta, CallStarted, CallDelta)

Step = list[tuple[int, Event]]  # what one step of the engine brought: (choice, event)


class Steps(Protocol):
    """Where the events of one answer come from, in steps. Has to be iterated or cancelled."""

    def cancel(self) -> None: ...

    def steps(self) -> AsyncGenerator[Step, None]: ...


class Asked(NamedTuple):
    """A request whose answers are read in its own way."""

    request: Request
    stop: Sequence[str]
    labels: Labels | None


class Generation:
    """Submits every request or none; afterwards it has to be iterated or cancelled.

    `stop` and `labels` are for the requests that bring none of their own; all have the same number of choices.
    """

    def __init__(
        self,
        engine: Engine,
        requests: Sequence[Request | Asked],
        stop: Sequence[str],
        metrics: Metrics,
        labels: Labels | None = None,
    ) -> None:
        asked = [each if isinstance(each, Asked) else Asked(each, stop, labels) for each in requests]
        self._num_choices = asked[0].request.num_choices
        self._pipelines = [
            Pipeline(engine.tokenizer, stop=each.stop, min_tokens=each.request.limits.min_tokens, labels=each.labels)
            for each in asked
            for _ in range(each.request.num_choices)
        ]
        self._metrics = metrics
        self._started = self._last_text = time.monotonic()
        self._has_text = False
        self._streams = _submit_all(engine, [each.request for each in asked])

    def cancel(self) -> None:
        """Harmless when everything is over."""
        for stream in self._streams:
            stream.cancel()

    async def steps(self) -> AsyncGenerator[Step, None]:
        """Events in steps, until every choice has Ended. Raises the error of a choice that broke."""
        async with aclosing(self._items()) as news:
            async for prompt, items in news:
                step = self._feed(prompt, items)
                if step:
                    yield step
        if not all(pipeline.is_over for pipeline in self._pipelines):
            raise EngineFailure("The engine ended the request before its answer was complete.")

    def _feed(self, prompt: int, items: list[Item]) -> Step:
        step: Step = []
        has_text = False
        for choice, output in items:
            index = prompt * self._num_choices + choice
            pipeline = self._pipelines[index]
            for event in pipeline.feed(output):
                if isinstance(event, Broken):
                    raise event.error
                has_text = has_text or isinstance(event, _SAYING)
                step.append((index, event))
            if pipeline.is_over:
                # A stop string ends a choice before the engine knows.
                self._streams[prompt].cancel(choice)
        if has_text:
            self._measure()
        return step

    def _measure(self) -> None:
        now = time.monotonic()
        if self._has_text:
            self._metrics.observe_gap(now - self._last_text)
        else:
            self._metrics.observe_first(now - self._started)
        self._has_text = True
        self._last_text = now

    async def _items(self) -> AsyncGenerator[tuple[int, list[Item]], None]:
        if len(self._streams) == 1:
            async for items in self._streams[0]:
                yield 0, items
            return
        async with aclosing(_merge(self._streams)) as merged:
            async for pair in merged:
                yield pair


def _submit_all(engine: Engine, requests: Sequence[Request]) -> list[Stream]:
    streams: list[Stream] = []
    try:
        for request in requests:
            streams.append(engine.submit(request))
    except BaseException:
        for stream in streams:
            stream.cancel()
        raise
    return streams


async def _merge(streams: Sequence[Stream]) -> AsyncGenerator[tuple[int, list[Item]], None]:
    """What comes from any of the streams, with the stream's number."""
    news: asyncio.Queue[tuple[int, list[Item]] | None] = asyncio.Queue()

    async def forward(number: int, stream: Stream) -> None:
        try:
            async for items in stream:
                news.put_nowait((number, items))
        finally:
            news.put_nowait(None)

    tasks = [asyncio.ensure_future(forward(number, stream)) for number, stream in enumerate(streams)]
    num_open = len(tasks)
    try:
        while num_open:
            pair = await news.get()
            if pair is None:
                num_open -= 1
            else:
                yield pair
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
