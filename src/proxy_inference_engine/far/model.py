"""A model that vLLM computes, here or on another machine. Implements `engine.base.Answerer`."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from proxy_inference_engine.engine.base import Stats
from proxy_inference_engine.engine.queue import Admission
from proxy_inference_engine.errors import PARAM, InvalidRequest, Unavailable
from proxy_inference_engine.far.choice import FarChoice
from proxy_inference_engine.far.embedding import embed_far
from proxy_inference_engine.far.engines import Engines, FarEngine
from proxy_inference_engine.far.failures import unavailable
from proxy_inference_engine.far.images import FarImageEncoder, draw
from proxy_inference_engine.far.lacks import refuse_lacking
from proxy_inference_engine.far.monitor import Monitor
from proxy_inference_engine.far.stream import FarStream
from proxy_inference_engine.runners.base import EmbeddingInfo, ModelInfo, Tokenizer, Vector
from proxy_inference_engine.types import Failed, Request

_WATCH_S = 1.0
_SILENT_S = 5.0  # a stream of an engine that is silent has this long to say something


@dataclass(frozen=True, slots=True)
class FarWords:
    """What is known of the model here: everything but its weights."""

    tokenizer: Tokenizer
    info: ModelInfo
    embedding: EmbeddingInfo
    image_encoder: FarImageEncoder | None = None  # None: how many tokens an image has there is not known here


@dataclass(frozen=True, slots=True)
class FarLimits:
    context_tokens: int | None  # the operator's; None: what the engines say
    num_slots: int  # answers that one engine is taken to compute at once
    silence_s: float  # after which a stream that brings nothing has failed


class FarModel:
    """Submitting, reading and cancelling belong to one event loop; the rest may be called from anywhere."""

    def __init__(
        self, words: FarWords, engines: Sequence[FarEngine], monitor: Monitor, admission: Admission, limits: FarLimits
    ) -> None:
        self._words = words
        self.engines = Engines(engines)
        self._monitor = monitor
        self._admission = admission
        self._limits = limits
        self._streams: dict[str, FarStream] = {}
        self._unanswered: dict[str, Request] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._attending: asyncio.Task[None] | None = None
        self._is_stopped = False
        self._stats = Stats()

    # What it is

    @property
    def info(self) -> ModelInfo:
        facts = self.engines.facts
        if facts is None:
            return self._words.info
        description = f"vLLM {facts.version}".strip()
        return self._words.info._replace(description=description, can_generate=facts.can_generate)

    @property
    def tokenizer(self) -> Tokenizer:
        return self._words.tokenizer

    @property
    def image_encoder(self) -> FarImageEncoder | None:
        return self._words.image_encoder

    @property
    def context_tokens(self) -> int:
        facts = self.engines.facts
        said = None if facts is None else facts.context_tokens
        found = [each for each in (said, self._limits.context_tokens) if each is not None]
        return min(found, default=self._words.info.context_tokens)

    @property
    def walks_grammars(self) -> bool:
        return False

    @property
    def can_draft(self) -> bool:
        return False

    @property
    def embedding(self) -> EmbeddingInfo:
        return self._words.embedding._replace(max_tokens=self.context_tokens)

    @property
    def is_ready(self) -> bool:
        return not self._is_stopped and bool(self.engines.up)

    def stats(self) -> Stats:
        num_open = sum(len(stream.choices) for stream in list(self._streams.values()))
        num_waiting = sum(request.num_choices for request in list(self._unanswered.values()))
        loads = [engine.load for engine in self.engines.up]
        return replace(
            self._stats,
            num_running=max(0, num_open - num_waiting),
            num_waiting=num_waiting,
            num_slots=self._num_slots,
            num_far_engines=len(self.engines.all),
            num_far_engines_up=len(loads),
            num_far_running=sum(load.num_running for load in loads),
            num_far_waiting=sum(load.num_waiting for load in loads),
        )

    @property
    def _num_slots(self) -> int:
        return self._limits.num_slots * len(self.engines.all)

    # What it does

    def check(self, request: Request) -> None:
        refuse_lacking(request)
        if not any(engine.takes(request) for engine in self.engines.up or self.engines.all):
            raise InvalidRequest(
                f"Invalid value for {PARAM}: the engine that computes this model has no place for images; start vLLM "
                "with --enable-scale-out.",
                param="messages",
                code="unsupported_content",
            )

    def submit(self, request: Request) -> FarStream:
        self._check_up()
        if not self.info.can_generate:
            raise InvalidRequest("This model does not generate text: it makes embeddings or ranks.", param="model")
        self._admission.check_request(request, self._unanswered.values(), self._num_slots)
        self._begin()
        choices = [
            FarChoice(request, number, self.engines, self.tokenizer.end_ids, self._stats)
            for number in range(request.num_choices)
        ]

        def answered() -> None:
            self._unanswered.pop(request.id, None)

        def end() -> None:
            self._unanswered.pop(request.id, None)
            self._streams.pop(request.id, None)

        stream = FarStream(request, choices, answered, end)
        self._unanswered[request.id] = request
        self._streams[request.id] = stream
        stream.start(self._drawer(request))
        return stream

    def _drawer(self, request: Request) -> Callable[[], tuple[str, ...]] | None:
        image_encoder = self._words.image_encoder
        if image_encoder is None or not request.images:
            return None
        return partial(draw, [span.image for span in request.images], image_encoder)

    async def embed(self, texts: Sequence[Sequence[int]], tenant: str, priority: int = 0) -> list[Vector]:
        self._check_up()
        if not any(engine.can_embed for engine in self.engines.up):
            raise InvalidRequest(
                "The engine that computes this model makes no embeddings: start vLLM with --runner pooling.",
                param="model",
            )
        self._begin()
        self._stats.num_embedding += 1
        try:
            vectors = await embed_far(self.engines, texts, self._limits.silence_s)
        finally:
            self._stats.num_embedding -= 1
        self._stats.total_embedded_tokens += sum(map(len, texts))
        return vectors

    def stop(self) -> None:
        self._is_stopped = True
        self._monitor.stop()
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._end_all)

    def _check_up(self) -> None:
        if self._is_stopped:
            raise Unavailable("the server is shutting down", code="shutting_down")
        if not self.engines.up:
            raise unavailable()

    def _end_all(self) -> None:
        error = Unavailable("the server is shutting down", code="shutting_down")
        for stream in list(self._streams.values()):
            stream.fail(Failed(error))
        if self._attending is not None:
            self._attending.cancel()  # which closes the connections

    # The event loop's own

    def _begin(self) -> None:
        """The first request that comes to an event loop begins what lasts as long as that."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop = loop
            self._attending = loop.create_task(self._attend())

    async def _attend(self) -> None:
        try:
            while True:
                await asyncio.sleep(_WATCH_S)
                self._look()
        finally:  # of the loop, or of the model
            for engine in self.engines.all:
                engine.connections.close()
            await asyncio.sleep(0)

    def _look(self) -> None:
        """A host that is gone closes no connection: streams that bring nothing for too long are given up."""
        now = asyncio.get_running_loop().time()
        for stream in list(self._streams.values()):
            for choice in stream.choices:
                silence = 0.0 if choice.is_paused else now - choice.heard_at
                if silence > self._limits.silence_s or (choice.has_silent_engine and silence > _SILENT_S):
                    choice.give_up("it fell silent")
