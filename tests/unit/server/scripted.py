"""An engine at the seam that says what a test wrote down, and notes what was cancelled."""

import asyncio
from collections.abc import AsyncIterator, Sequence

from proxy_inference_engine.engine.base import Item, Stats
from proxy_inference_engine.errors import QueueFull
from proxy_inference_engine.runners.base import EmbeddingInfo, ModelInfo, Vector
from proxy_inference_engine.runners.fake import ByteTokenizer, FakeRunner
from proxy_inference_engine.server.metrics import Metrics
from proxy_inference_engine.types import Finished, Limits, Prefilled, Request, Sampling, Timings, Token

Script = Sequence[list[Item] | float]  # a step's items, or seconds of silence

TIMINGS = Timings(1.0, 20.0, 50.0)
NO_STATS = Stats(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)


def text_items(text: str, choice: int = 0) -> list[Item]:
    return [Item(choice, Token(byte)) for byte in text.encode()]


def whole(text: str, choice: int = 0) -> list[Item]:
    return [Item(choice, Prefilled(0)), *text_items(text, choice), Item(choice, Finished("stop", TIMINGS))]


def make_request(name: str = "r", num_choices: int = 1) -> Request:
    return Request(name, "local", (1, 2, 3), Sampling(seed=1), Limits(max_tokens=100), num_choices)


class ScriptedStream:
    def __init__(self, script: Script) -> None:
        self._script = script
        self.cancelled: list[int | None] = []

    async def __aiter__(self) -> AsyncIterator[list[Item]]:
        for step in self._script:
            if isinstance(step, list):
                yield step
            else:
                await asyncio.sleep(step)

    def cancel(self, choice: int | None = None) -> None:
        self.cancelled.append(choice)


class ScriptedEngine:
    """One script a request; a request beyond them is refused."""

    def __init__(self, *scripts: Script) -> None:
        self._scripts = list(scripts)
        self.streams: list[ScriptedStream] = []
        self.tokenizer = ByteTokenizer()
        self.context_tokens = 1000
        self.eyes = None
        self.is_ready = True

    @property
    def info(self) -> ModelInfo:
        return FakeRunner().info

    def submit(self, request: Request) -> ScriptedStream:
        if not self._scripts:
            raise QueueFull("full")
        self.streams.append(ScriptedStream(self._scripts.pop(0)))
        return self.streams[-1]

    @property
    def embedding(self) -> EmbeddingInfo:
        return FakeRunner().embedder.info

    async def embed(self, texts: Sequence[Sequence[int]], tenant: str) -> list[Vector]:
        raise QueueFull("full")

    def stats(self) -> Stats:
        return NO_STATS

    def metrics(self) -> Metrics:
        return Metrics(self.stats)
