"""Events to the wire format of chat completions: chunks while they come, or one answer at the end."""

from dataclasses import dataclass
from typing import Any

from proxy_inference_engine.output.answer import Answer
from proxy_inference_engine.output.events import Ended, Event, PromptRead, TextDelta
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


class ChatFrames:
    """Role first (every choice's, in order), text, finish reason, and the usage where it was asked for."""

    def __init__(self, head: Head, tally: Tally, shape: ChatShape) -> None:
        self._writer = ChunkWriter(head, "chat.completion.chunk", shape.include_usage)
        self._tally = tally
        self._shape = shape
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
        if isinstance(event, TextDelta):
            logprobs = dumps(chat_logprobs(event.logprobs)) if self._shape.has_logprobs else "null"
            delta = f'"delta":{{"content":{dumps(event.text)}}},"logprobs":{logprobs},"finish_reason":null}}'
            return self._writer.chunk(f'{{"index":{choice},{delta}')
        if isinstance(event, Ended):
            last = dumps({"index": choice, "delta": {}, "logprobs": None, **ending(event, self._shape.hidden_stops)})
            return self._writer.last_chunk(last, self._tally.timings()) if is_last else self._writer.chunk(last)
        assert isinstance(event, PromptRead)
        return ""

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
        return {
            "index": index,
            "message": {"role": "assistant", "content": answer.text, "refusal": None},
            "logprobs": chat_logprobs(answer.logprobs) if self._shape.has_logprobs else None,
            **ending(answer.ended, self._shape.hidden_stops),
        }
