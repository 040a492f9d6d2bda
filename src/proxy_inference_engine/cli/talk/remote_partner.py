"""A model on a running server, spoken to over `/v1/chat/completions`."""

from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from typing import Any

from proxy_inference_engine.cli.remote.running_server import RunningServer
from proxy_inference_engine.cli.talk.partner import AnswerEnd, Saying
from proxy_inference_engine.output.events import CallDelta, CallStarted, ReasoningDelta, TextDelta
from proxy_inference_engine.python.answer import TokenCounts

_PATH = "/v1/chat/completions"


class RemotePartner:
    def __init__(self, server: RunningServer, name: str | None) -> None:
        """`name` None: the server's default. Raises StartupError for a model that it has not."""
        self._server = server
        self._model = server.model(name)

    @property
    def name(self) -> str:
        return self._model.id

    @property
    def place(self) -> str:
        return f"on {self._server.url}"

    @property
    def context_tokens(self) -> int | None:
        return self._model.context_tokens

    def names(self) -> list[str]:
        return self._server.names

    def choose(self, name: str) -> None:
        self._model = self._server.model(name)

    def ask(self, body: Mapping[str, Any]) -> Generator[Saying, None, None]:
        whole = {**body, "model": self._model.id, "stream": True, "stream_options": {"include_usage": True}}
        chunks = ChunkReader()
        with closing(self._server.connection.events(_PATH, whole)) as events:
            for chunk in events:
                yield from chunks.feed(chunk)
        yield chunks.end()

    def progress(self) -> str:
        return self._server.progress(self._model.id)

    def close(self) -> None:
        """Nothing is held."""


class ChunkReader:
    """The chunks of a streamed chat completion as events."""

    def __init__(self) -> None:
        self._reason = "stop"
        self._counts = TokenCounts()
        self._timings: Mapping[str, Any] = {}
        self._ignored: tuple[str, ...] = ()

    def feed(self, chunk: Mapping[str, Any]) -> Iterator[Saying]:
        if "ignored" in chunk:
            self._ignored = chunk["ignored"]
        for choice in chunk.get("choices") or ():
            self._reason = choice.get("finish_reason") or self._reason
            yield from _events(choice.get("delta") or {})
        self._timings = chunk.get("timings") or self._timings  # they come one chunk before the usage
        if chunk.get("usage"):
            self._counts = _counts(chunk["usage"], self._timings)

    def end(self) -> AnswerEnd:
        return AnswerEnd(self._reason, self._counts, self._ignored)


def _events(delta: Mapping[str, Any]) -> Iterator[Saying]:
    if delta.get("reasoning_content"):
        yield ReasoningDelta(delta["reasoning_content"])
    if delta.get("content"):
        yield TextDelta(delta["content"])
    for call in delta.get("tool_calls") or ():
        function = call.get("function") or {}
        if function.get("name"):
            yield CallStarted(call["index"], function["name"])
        if function.get("arguments"):
            yield CallDelta(call["index"], function["arguments"])


def _counts(usage: Mapping[str, Any], timings: Mapping[str, Any]) -> TokenCounts:
    return TokenCounts(
        num_prompt_tokens=usage["prompt_tokens"],
        num_cached_tokens=(usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0),
        num_tokens=usage["completion_tokens"],
        num_reasoning_tokens=(usage.get("completion_tokens_details") or {}).get("reasoning_tokens", 0),
        prompt_ms=timings.get("prompt_ms", 0.0),
        predicted_ms=timings.get("predicted_ms", 0.0),
    )
