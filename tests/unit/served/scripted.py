"""An engine at the seam that says what a test wrote down, and notes what was cancelled."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import replace

from proxy_inference_engine.config import Config
from proxy_inference_engine.config.kinds import FormatName
from proxy_inference_engine.engine.base import Item, Stats
from proxy_inference_engine.errors import QueueFull
from proxy_inference_engine.formats import Format
from proxy_inference_engine.runners.base import EmbeddingInfo, ModelInfo, Vector
from proxy_inference_engine.runners.fake import ByteTokenizer, FakeRunner
from proxy_inference_engine.served.model import ServedModel
from proxy_inference_engine.served.stream import AnswerStream, Counts, ReadyRequest, Step
from proxy_inference_engine.server.http.access import UsageBook
from proxy_inference_engine.server.metrics import AnswerMetrics, Metrics
from proxy_inference_engine.types import Finished, Limits, Prefilled, Request, Sampling, Timings, Token

Script = Sequence[list[Item] | float | Exception]  # a step's items, seconds of silence, or what goes wrong

TIMINGS = Timings(1.0, 20.0, 50.0)
NO_STATS = Stats()


def text_items(text: str, choice: int = 0) -> list[Item]:
    return [Item(choice, Token(byte)) for byte in text.encode()]


def whole(text: str, choice: int = 0) -> list[Item]:
    return [Item(choice, Prefilled(0)), *text_items(text, choice), Item(choice, Finished("stop", TIMINGS))]


def make_request(name: str = "r", num_choices: int = 1, num_prompt_tokens: int = 3) -> Request:
    ids = tuple(range(1, num_prompt_tokens + 1))
    return Request(name, "local", ids, Sampling(seed=1), Limits(max_tokens=100), num_choices)


def make_counts(*num_prompt_tokens: int, num_choices: int = 1) -> Counts:
    """Of prompts with so many tokens each."""
    return Counts([make_request(num_choices=num_choices, num_prompt_tokens=num) for num in num_prompt_tokens])


def counted(counts: Counts, step: Step) -> Step:
    """A step as a stream hands it out: its counts are up to date with it."""
    for choice, event in step:
        counts.add(choice, event)
    return step


class ScriptedStream:
    def __init__(self, script: Script) -> None:
        self._script = script
        self.cancelled: list[int | None] = []

    def place(self) -> None:
        """Nobody knows."""

    async def __aiter__(self) -> AsyncIterator[list[Item]]:
        for step in self._script:
            if isinstance(step, list):
                yield step
            elif isinstance(step, Exception):
                raise step
            else:
                await asyncio.sleep(step)

    def cancel(self, choice: int | None = None) -> None:
        self.cancelled.append(choice)


class ScriptedEngine:
    """One script a request; a request beyond them is refused."""

    def __init__(self, *scripts: Script, runner: FakeRunner | None = None) -> None:
        self._runner = runner or FakeRunner()
        self._scripts = list(scripts)
        self.streams: list[ScriptedStream] = []
        self.requests: list[Request] = []
        self.tokenizer: ByteTokenizer = self._runner.tokenizer
        self.context_tokens = 1000
        self.can_draft = self.walks_grammars = True
        self.image_encoder = self._runner.image_encoder
        self.is_ready = True

    @property
    def info(self) -> ModelInfo:
        return self._runner.info

    def check(self, request: Request) -> None:
        """It can do everything."""

    def submit(self, request: Request) -> ScriptedStream:
        if not self._scripts:
            raise QueueFull("full")
        self.requests.append(request)
        self.streams.append(ScriptedStream(self._scripts.pop(0)))
        return self.streams[-1]

    @property
    def embedding(self) -> EmbeddingInfo:
        return self._runner.embedder.info

    async def embed(self, texts: Sequence[Sequence[int]], tenant: str, priority: int = 0) -> list[Vector]:
        raise QueueFull("full")

    def stats(self) -> Stats:
        return NO_STATS

    def stop(self) -> None:
        self.is_ready = False

    def metrics(self) -> Metrics:
        return Metrics(lambda: {"scripted": self.stats()}, UsageBook())

    def observer(self) -> AnswerMetrics:
        return self.metrics().of("scripted")

    @property
    def was_cancelled(self) -> bool:
        """The whole of the first request."""
        return self.streams[0].cancelled[-1:] == [None]


def stream_of(script: Script) -> tuple[ScriptedEngine, AnswerStream]:
    """The answer to one request."""
    engine = ScriptedEngine(script)
    return engine, AnswerStream(engine, [ReadyRequest(make_request(), (), None)], engine.observer())


def served(
    engine: ScriptedEngine | None = None, *, format: FormatName | None = None, name: str | None = None
) -> ServedModel:
    return ServedModel.of(engine or ScriptedEngine(), Config(format=format), name=name)


def served_as(format: Format, readable: Iterable[str]) -> ServedModel:
    """A model of a family, whose chat template reads these variables."""
    template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    reading = "".join(f"{{% if {name} %}}{{% endif %}}" for name in sorted(readable))
    model = served(ScriptedEngine(runner=FakeRunner(chat_template=template + reading)))
    assert model.renderer.variables == frozenset(readable)
    return replace(model, format=format)
