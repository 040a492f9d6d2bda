"""Events to Ollama's format: an object a line while they come, or the whole answer at the end."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, assert_never

from proxy_inference_engine.output.answer import Answer, AnsweredCall
from proxy_inference_engine.output.events import (
    Broken,
    CallDelta,
    CallEnded,
    CallStarted,
    Ended,
    Event,
    PromptRead,
    ReasoningDelta,
    TextDelta,
    TokenLogprob,
)
from proxy_inference_engine.served.stream import Counts, Step
from proxy_inference_engine.server.apis.ollama.errors import line
from proxy_inference_engine.server.apis.shared.arguments import parsed_arguments
from proxy_inference_engine.server.apis.shared.chunks import LEAST_CHARS, ChatLogprobs
from proxy_inference_engine.server.http.wire import new_id

_NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class Stopwatch:
    """When a request came, and how long its model took to be there."""

    began_ns: int
    load_ns: int

    def durations(self) -> dict[str, int]:
        return {"total_duration": time.monotonic_ns() - self.began_ns, "load_duration": self.load_ns}


@dataclass(frozen=True, slots=True)
class OllamaReply:
    """What is the same in every object of an answer, and how what is said is wrapped."""

    model: str  # as the client calls it
    is_chat: bool
    watch: Stopwatch
    has_logprobs: bool = False

    def part(self, *, done: bool, text: str = "", thinking: str = "", calls: Sequence[Any] = ()) -> dict[str, Any]:
        said = {"thinking": thinking} if thinking else {}
        if self.is_chat:
            message = {"role": "assistant", "content": text, **said}
            body: dict[str, Any] = {"message": {**message, "tool_calls": list(calls)} if calls else message}
        else:
            body = {"response": text, **said}
        return {"model": self.model, "created_at": timestamp(), **body, "done": done}

    def idle(self, reason: str) -> dict[str, Any]:
        """Nothing was asked but that the model be there."""
        return {**self.part(done=True), "done_reason": reason}


def timestamp(seconds: float | None = None) -> str:
    moment = datetime.now(UTC) if seconds is None else datetime.fromtimestamp(seconds, UTC)
    return moment.isoformat().replace("+00:00", "Z")


def _end(ended: Ended, counts: Counts, watch: Stopwatch) -> dict[str, Any]:
    return {
        "done_reason": ended.reason,
        **watch.durations(),
        "prompt_eval_count": counts.num_prompt_tokens,
        "prompt_eval_duration": round(counts.prompt_ms * _NS_PER_MS),
        "eval_count": counts.num_tokens,
        "eval_duration": round(counts.predicted_ms * _NS_PER_MS),
    }


def _call(index: int, call: AnsweredCall) -> dict[str, Any]:
    function = {"index": index, "name": call.name, "arguments": parsed_arguments(call.arguments)}
    return {"id": new_id("call_"), "function": function}


class OllamaLines:
    """A call is said when it is complete: one that the limit cuts off was never made."""

    def __init__(self, reply: OllamaReply, counts: Counts) -> None:
        self._reply = reply
        self._counts = counts
        self._calls: list[AnsweredCall] = []
        self._logprobs = ChatLogprobs()
        self._ended: Ended | None = None

    def feed(self, step: Step) -> str:
        return "".join(self._line(event) for _, event in step)

    def _line(self, event: Event) -> str:
        match event:
            case TextDelta(text, logprobs):
                return self._text(text, logprobs)
            case ReasoningDelta(text):
                return line(self._reply.part(done=False, thinking=text)) if text else ""
            case CallStarted(_, name):
                self._calls.append(AnsweredCall(name))
            case CallDelta(index, arguments):
                self._calls[index].arguments += arguments
            case CallEnded(index):
                return line(self._reply.part(done=False, calls=[_call(index, self._calls[index])]))
            case Ended():
                self._ended = event
            case PromptRead():
                pass
            case Broken(error):
                raise error
            case _:
                assert_never(event)
        return ""

    def _text(self, text: str, logprobs: Sequence[TokenLogprob]) -> str:
        part = self._reply.part(done=False, text=text)
        if self._reply.has_logprobs and logprobs:
            start = len(self._logprobs)
            self._logprobs.extend(logprobs)
            return line({**part, "logprobs": self._logprobs[start:]})
        return line(part) if text else ""

    def finish(self) -> str:
        assert self._ended is not None
        return line({**self._reply.part(done=True), **_end(self._ended, self._counts, self._reply.watch)})


class OllamaWhole:
    def __init__(self, reply: OllamaReply, counts: Counts) -> None:
        self._reply = reply
        self._counts = counts
        self._answer = Answer()
        self._logprobs = ChatLogprobs()

    @property
    def num_chars(self) -> int:
        return len(self._answer.text) + len(self._answer.reasoning) + LEAST_CHARS * self._logprobs.num_logprobs

    def feed(self, step: Step) -> str:
        for _, event in step:
            if isinstance(event, TextDelta):
                if self._reply.has_logprobs:
                    self._logprobs.extend(event.logprobs)
                event = TextDelta(event.text)
            self._answer.add(event)
        return ""

    def finish(self) -> str:
        return line(self.body())[:-1]

    def body(self) -> dict[str, Any]:
        answer = self._answer
        assert answer.ended is not None
        calls = [_call(index, call) for index, call in enumerate(answer.calls) if call.is_complete]
        part = self._reply.part(done=True, text=answer.text, thinking=answer.reasoning, calls=calls)
        scores = {"logprobs": self._logprobs} if self._reply.has_logprobs else {}
        return {**part, **_end(answer.ended, self._counts, self._reply.watch), **scores}
