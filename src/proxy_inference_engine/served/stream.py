"""What a served model answers, as one stream of events, with its counts. Knows no wire format.

Choices are numbered through all prompts: prompt_index * num_choices + choice.
"""

import asyncio
import time
from bisect import bisect_left
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from typing import NamedTuple, Protocol, Self

from proxy_inference_engine.engine.base import Answerer, AnswererStream, Item, Place
from proxy_inference_engine.errors import EngineFailure
from proxy_inference_engine.formats.base import Labels
from proxy_inference_engine.output.events import (
    Broken,
    CallDelta,
    CallStarted,
    Ended,
    Event,
    PromptRead,
    ReasoningDelta,
    TextDelta,
)
from proxy_inference_engine.output.pipeline import Pipeline
from proxy_inference_engine.types import Prefilled, Request

_SAYING = (TextDelta, ReasoningDelta, CallStarted, CallDelta)

_MAX_ITEMS = 64  # that are read at a time: what came while a client did not read may be very many
_SCORED_CHARS = 100  # what reading one scored token of a prompt counts for

Step = list[tuple[int, Event]]  # what one step of the engine brought, or a part of it: (choice, event)


class OffLoop(Protocol):
    """Does work that goes through so much text where nobody waits for it."""

    def __call__(self, work: Callable[[], Step], *, num_chars: int) -> Awaitable[Step]: ...


class Observer(Protocol):
    """Whoever measures how fast answers come, in seconds, and how much there was of them."""

    def observe_first(self, seconds: float) -> None: ...

    def observe_gap(self, seconds: float) -> None: ...

    def observe_end(self, tenant: str, counts: "Counts", num_tokens: int) -> None:
        """Once, when an answer is over, whole or not."""
        ...


class DurationCounts:
    """How many durations there were between bounds in seconds, which rise, and how long they were together.

    For what an `Observer` sees at every token: a search and two additions, in one event loop, without locks.
    """

    __slots__ = ("_bounds", "counts", "sum_s")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)  # up to each bound, and above the last
        self.sum_s = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(self._bounds, seconds)] += 1
        self.sum_s += seconds


class SkippedImage(NamedTuple):
    """An image that the model cannot see and was only told of."""

    ask: int  # of which ask
    param: str


class ReadyRequest(NamedTuple):
    """An ask that holds against the model, and how its answers are read."""

    request: Request
    stop: Sequence[str]
    labels: Labels | None
    relaxed: tuple[str, ...] = ()  # "path:keyword" of every schema keyword that does not bind


class Counts:
    """Tokens and times of all choices, up to date with the step that was read last."""

    def __init__(self, requests: Sequence[Request]) -> None:
        self.num_prompt_tokens = sum(len(request.prompt_ids) for request in requests)
        self.num_cached_tokens = 0
        self.num_tokens = 0
        self.num_reasoning_tokens = 0
        self.num_accepted = 0
        self.num_rejected = 0
        self.prompt_ms = 0.0
        self.predicted_ms = 0.0
        self.ended: list[Ended] = []  # choices
        self.began = time.monotonic()
        self.read_at: float | None = None  # when the first prompt was
        self.num_so_far: Callable[[], int] = lambda: 0  # tokens, while they come
        self._num_choices = requests[0].num_choices
        self._num_all = len(requests) * self._num_choices

    @property
    def num_ended(self) -> int:
        return len(self.ended)

    @property
    def are_final(self) -> bool:
        """Every choice has ended."""
        return self.num_ended == self._num_all

    def add(self, choice: int, event: Event) -> None:
        if isinstance(event, Ended):
            self.ended.append(event)
            self.num_tokens += event.num_tokens
            self.num_reasoning_tokens += event.num_reasoning_tokens
            self.num_accepted += event.num_accepted
            self.num_rejected += event.num_rejected
            if choice % self._num_choices == 0:
                self.num_cached_tokens += event.num_cached_tokens
            self.prompt_ms = max(self.prompt_ms, event.timings.prompt_ms)
            self.predicted_ms = max(self.predicted_ms, event.timings.predicted_ms)
        elif isinstance(event, PromptRead) and choice % self._num_choices == 0:
            self.read_at = self.read_at or time.monotonic()
            # Siblings find the prompt that the first choice computed: that is sharing, not an earlier request.
            self.num_cached_tokens += event.num_cached_tokens


class AnswerStream:
    """Submits every request or none; afterwards it has to be iterated or cancelled. All have as many choices."""

    def __init__(
        self,
        engine: Answerer,
        prepared: Sequence[ReadyRequest],
        observer: Observer | None = None,
        skipped_images: Sequence[SkippedImage] = (),
        off_loop: OffLoop | None = None,  # None: nothing takes long
    ) -> None:
        self._off_loop = off_loop
        self.requests = [each.request for each in prepared]
        self.relaxed = list(dict.fromkeys(path for each in prepared for path in each.relaxed))
        self.skipped_images = skipped_images
        self.counts = Counts(self.requests)
        self._num_choices = self.requests[0].num_choices
        self._pipelines = [
            Pipeline(engine.tokenizer, stop=each.stop, min_tokens=each.request.limits.min_tokens, labels=each.labels)
            for each in prepared
            for _ in range(each.request.num_choices)
        ]
        self.counts.num_so_far = lambda: self.num_tokens
        self._observer = observer
        self._started = self._last_text = time.monotonic()
        self._has_text = False
        self._streams = _submit_all(engine, self.requests)

    def __enter__(self) -> Self:
        """What is raised inside cancels it. Who leaves in peace has handed it on."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_rest: object) -> None:
        if kind is not None:
            self.cancel()

    @property
    def num_tokens(self) -> int:
        """How many tokens all choices have, also those that have not ended."""
        open_ones = (pipeline.num_tokens for pipeline in self._pipelines if not pipeline.is_over)
        return self.counts.num_tokens + sum(open_ones)

    def place(self) -> Place | None:
        """Where it stands in the line; None: it does not wait, or nobody knows."""
        return self._streams[0].place()

    def cancel(self) -> None:
        """Harmless when everything is over; whoever reads it calls this in the end."""
        for stream in self._streams:
            stream.cancel()
        self._settle()

    def _settle(self) -> None:
        num_tokens = self.num_tokens
        self.counts.num_so_far = lambda: num_tokens  # who keeps the counts need not hold all of this, with its images
        observer, self._observer = self._observer, None
        if observer is not None:
            observer.observe_end(self.requests[0].tenant, self.counts, self.num_tokens)

    async def steps(self) -> AsyncGenerator[Step, None]:
        """Events in steps, until every choice has Ended. Raises the error of a choice that broke."""
        async with aclosing(self._items()) as news:
            async for prompt, items in news:
                for number, part in enumerate(_parts(items)):
                    if number:
                        await asyncio.sleep(0)  # others have their turn
                    num_scored = _num_scored(part[0])
                    step = await self._fed(prompt, part, num_scored) if num_scored else self._feed(prompt, part)
                    if self.counts.are_final:
                        self._settle()  # before anybody sees the end
                    if step:
                        yield step
        if not all(pipeline.is_over for pipeline in self._pipelines):
            raise EngineFailure("The engine ended the request before its answer was complete.")

    async def _fed(self, prompt: int, items: list[Item], num_scored: int) -> Step:
        if self._off_loop is None:
            return self._feed(prompt, items)
        return await self._off_loop(lambda: self._feed(prompt, items), num_chars=num_scored * _SCORED_CHARS)

    def _feed(self, prompt: int, items: list[Item]) -> Step:
        step: Step = []
        counted: Step = []
        has_text = False
        for choice, output in items:
            index = prompt * self._num_choices + choice
            pipeline = self._pipelines[index]
            for event in pipeline.feed(output):
                if isinstance(event, _SAYING):
                    has_text = True
                elif isinstance(event, Broken):
                    raise event.error
                else:
                    counted.append((index, event))
                step.append((index, event))
            if pipeline.is_over:
                # A stop string ends a choice before the engine knows.
                self._streams[prompt].cancel(choice)
        for index, event in counted:  # not before: of a step that broke, nothing is handed out
            self.counts.add(index, event)
        if has_text and self._observer is not None:
            self._measure(self._observer)
        return step

    def _measure(self, observer: Observer) -> None:
        now = time.monotonic()
        if self._has_text:
            observer.observe_gap(now - self._last_text)
        else:
            observer.observe_first(now - self._started)
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


def _parts(items: list[Item]) -> Sequence[list[Item]]:
    """Items in parts, in order. A prompt that was scored is apart: reading that takes long."""
    if len(items) == 1:  # nearly always
        return (items,)
    return list(_cut(items))


def _cut(items: list[Item]) -> Iterator[list[Item]]:
    part: list[Item] = []
    for item in items:
        if part and (len(part) == _MAX_ITEMS or _num_scored(item) or _num_scored(part[0])):
            yield part
            part = []
        part.append(item)
    yield part


def _num_scored(item: Item) -> int:
    """How many tokens of a prompt it has log-probabilities of."""
    return len(item.output.prompt_logprobs or ()) if isinstance(item.output, Prefilled) else 0


def _submit_all(engine: Answerer, requests: Sequence[Request]) -> list[AnswererStream]:
    streams: list[AnswererStream] = []
    try:
        for request in requests:
            streams.append(engine.submit(request))
    except BaseException:
        for stream in streams:
            stream.cancel()
        raise
    return streams


async def _merge(streams: Sequence[AnswererStream]) -> AsyncGenerator[tuple[int, list[Item]], None]:
    """What comes from any of the streams, with the stream's number."""
    news: asyncio.Queue[tuple[int, list[Item]] | None] = asyncio.Queue()

    async def forward(number: int, stream: AnswererStream) -> None:
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


def best(candidates: Sequence[Ended], num_wanted: int) -> list[int]:
    """The numbers of the candidates whose tokens the model found likeliest on average, the best first.

    A mean, so that a long answer is not worse for its length. An answer without tokens has nothing against it.
    """
    means = [0.0 if ended.mean_logprob is None else ended.mean_logprob for ended in candidates]
    return sorted(range(len(means)), key=lambda number: -means[number])[:num_wanted]
