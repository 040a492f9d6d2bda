"""Events to the wire format of chat completions: chunks while they come, or one answer at the end."""

from dataclasses import dataclass
from typing import Any, assert_never

from proxy_inference_engine.output.answer import Answer
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
)
from proxy_inference_engine.server.convert.calls import CallDeltas, whole_calls
from proxy_inference_engine.server.convert.head import ChunkWriter, Head, ending
from proxy_inference_engine.server.convert.logprobs import chat_logprobs
from proxy_inference_engine.server.convert.usage import Tally
from proxy_inference_engine.server.generation import Step
from proxy_inference_engine.server.jsons import dumps

_ROLE = '"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}'


@dataclass(frozen=True, slots=True)
class ChatShape:
    """What the client asked to see."""

    num_choices: int
    has_logprobs: bool
    include_usage: bool
    hidden_stops: frozenset[str] = frozenset()  # the model family's own: nobody asked for them
    custom_names: frozenset[str] = frozenset()  # the tools that take text
    names_tool: bool = False  # the client said which tool: that it was called is no news

    def ending(self, ended: Ended, has_calls: bool) -> dict[str, str]:
        """The limit is told before anything else: a call that ran into it is no call."""
        fields = ending(ended, self.hidden_stops)
        is_call = has_calls and ended.reason == "stop" and not self.names_tool
        return {**fields, "finish_reason": "tool_calls"} if is_call else fields


class ChatFrames:
    """Role first (every choice's, in order), what it says, finish reason, and the usage where it was asked for."""

    def __init__(self, head: Head, tally: Tally, shape: ChatShape) -> None:
        self._writer = ChunkWriter(head, "chat.completion.chunk", shape.include_usage)
        self._tally = tally
        self._shape = shape
        self._calls = [CallDeltas(shape.custom_names) for _ in range(shape.num_choices)]
        self._has_begun = False

    def feed(self, step: Step) -> str:
        self._tally.feed(step)
        frames = "" if self._has_begun else self._roles()
        last = len(step) - 1 if self._tally.is_complete else None
        for number, (choice, event) in enumerate(step):
            frames += self._frame(choice, event, number == last)
        return frames

    def _roles(self) -> str:
        self._has_begun = True
        return "".join(self._writer.chunk(f'{{"index":{choice},{_ROLE}') for choice in range(self._shape.num_choices))

    def _frame(self, choice: int, event: Event, is_last: bool) -> str:
        match event:
            case TextDelta(text, logprobs):
                entries = dumps(chat_logprobs(logprobs)) if self._shape.has_logprobs else "null"
                return self._delta(choice, f'"content":{dumps(text)}', entries)
            case ReasoningDelta(text):
                return self._delta(choice, f'"reasoning_content":{dumps(text)}')
            case CallStarted() | CallDelta() | CallEnded():
                call = self._calls[choice].feed(event)
                return "" if call is None else self._delta(choice, f'"tool_calls":[{dumps(call)}]')
            case Ended():
                return self._last(choice, event, is_last)
            case PromptRead():
                return ""
            case Broken(error):
                raise error
            case _:
                assert_never(event)

    def _delta(self, choice: int, fields: str, logprobs: str = "null") -> str:
        delta = f'"delta":{{{fields}}},"logprobs":{logprobs},"finish_reason":null}}'
        return self._writer.chunk(f'{{"index":{choice},{delta}')

    def _last(self, choice: int, ended: Ended, is_last: bool) -> str:
        end = self._shape.ending(ended, self._calls[choice].are_complete)
        chunk = dumps({"index": choice, "delta": {}, "logprobs": None, **end})
        return self._writer.last_chunk(chunk, self._tally.timings()) if is_last else self._writer.chunk(chunk)

    def finish(self) -> str:
        return self._writer.usage_chunk(self._tally.usage()) if self._shape.include_usage else ""


class ChatAnswer:
    """The same events, folded into the one answer."""

    def __init__(self, head: Head, tally: Tally, shape: ChatShape) -> None:
        self._head = head
        self._tally = tally
        self._shape = shape
        self._answers = [Answer() for _ in range(shape.num_choices)]

    def feed(self, step: Step) -> None:
        self._tally.feed(step)
        for choice, event in step:
            self._answers[choice].add(event)

    def finish(self) -> dict[str, Any]:
        metadata = {} if self._head.metadata is None else {"metadata": self._head.metadata}
        return {
            **self._head.fields("chat.completion"),
            **metadata,
            "choices": [self._choice(index, answer) for index, answer in enumerate(self._answers)],
            "usage": self._tally.usage(),
            "timings": self._tally.timings(),
        }

    def _choice(self, index: int, answer: Answer) -> dict[str, Any]:
        assert answer.ended is not None
        has_calls = bool(answer.calls) and all(call.is_complete for call in answer.calls)
        return {
            "index": index,
            "message": self._message(answer),
            "logprobs": chat_logprobs(answer.logprobs) if self._shape.has_logprobs else None,
            **self._shape.ending(answer.ended, has_calls),
        }

    def _message(self, answer: Answer) -> dict[str, Any]:
        content = None if answer.calls and not answer.text else answer.text
        message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
        if answer.reasoning:
            message["reasoning_content"] = answer.reasoning
        if answer.calls:
            message["tool_calls"] = whole_calls(answer.calls, self._shape.custom_names)
        return message
