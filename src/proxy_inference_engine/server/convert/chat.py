"""Events to the wire format of chat completions: chunks while they come, or one answer at the end."""

from collections.abc import Iterator
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
from proxy_inference_engine.server.candidates import best
from proxy_inference_engine.server.convert.calls import CallDeltas, derived_ids, whole_calls
from proxy_inference_engine.server.convert.head import ChunkWriter, Head, ending
from proxy_inference_engine.server.convert.logprobs import chat_logprobs
from proxy_inference_engine.server.convert.usage import Tally
from proxy_inference_engine.server.generation import Step
from proxy_inference_engine.server.jsons import dumps

_ROLE = '"delta":{"role":"assistant","content":%s,"refusal":null},"logprobs":null,"finish_reason":null}'


@dataclass(frozen=True, slots=True)
class ChatShape:
    """What the client asked to see of one conversation."""

    num_choices: int
    has_logprobs: bool
    include_usage: bool
    hidden_stops: frozenset[str] = frozenset()  # the model family's own: nobody asked for them
    custom_names: frozenset[str] = frozenset()  # the tools that take text
    names_tool: bool = False  # the client said which tool: that it was called is no news
    may_call: bool = False  # calls may come instead of content
    num_candidates: int | None = None  # the choices are the best of so many; None: there are no others

    def ending(self, ended: Ended, has_calls: bool) -> dict[str, str]:
        """The limit is told before anything else: a call that ran into it is no call."""
        fields = ending(ended, self.hidden_stops)
        is_call = has_calls and ended.reason == "stop" and not self.names_tool
        return {**fields, "finish_reason": "tool_calls"} if is_call else fields


class ChatFrames:
    """Role first (every choice's, in order), what it says, finish reason, and the usage where it was asked for.

    An answer of calls has no content, so where calls may come, the first delta waits for what the choice says first.
    There is a shape for each conversation; they agree on how many choices there are and on the usage.
    """

    def __init__(self, head: Head, tally: Tally, *shapes: ChatShape) -> None:
        self._include_usage = shapes[0].include_usage
        self._writer = ChunkWriter(head, "chat.completion.chunk", self._include_usage)
        self._tally = tally
        self._shapes = [shape for shape in shapes for _ in range(shape.num_choices)]
        self._calls = [
            CallDeltas(shape.custom_names, derived_ids(head.id, choice)) for choice, shape in enumerate(self._shapes)
        ]
        self._num_begun = 0  # choices whose role was said
        self._lacking: set[int] = set()  # choices that have said nothing but their role, with no content, and thoughts

    def feed(self, step: Step) -> str:
        self._tally.feed(step)
        frames = self._roles()
        last = len(step) - 1 if self._tally.is_complete else None
        for number, (choice, event) in enumerate(step):
            frames += self._frame(choice, event, number == last)
        return frames

    def _roles(self) -> str:
        """Of the next choices that will have content."""
        frames = ""
        while self._num_begun < len(self._shapes) and not self._shapes[self._num_begun].may_call:
            frames += self._role(has_content=True)
        return frames

    def _roles_until(self, choice: int, *, has_content: bool) -> str:
        """Those of earlier choices come first, even if these have nothing to say yet."""
        frames = ""
        while self._num_begun < choice:
            frames += self._role(has_content=not self._shapes[self._num_begun].may_call)
        return frames if self._num_begun > choice else frames + self._role(has_content=has_content)

    def _role(self, *, has_content: bool) -> str:
        choice = self._num_begun
        self._num_begun += 1
        if not has_content:
            self._lacking.add(choice)
        role = _ROLE % ('""' if has_content else "null")
        return self._writer.chunk(f'{{"index":{choice},{role}')

    def _frame(self, choice: int, event: Event, is_last: bool) -> str:
        if isinstance(event, PromptRead):
            return ""
        roles = self._roles_until(choice, has_content=isinstance(event, TextDelta))
        if isinstance(event, TextDelta | CallStarted):
            self._lacking.discard(choice)
        return roles + self._said(choice, event, is_last)

    def _said(self, choice: int, event: Event, is_last: bool) -> str:
        match event:
            case TextDelta(text, logprobs):
                entries = dumps(chat_logprobs(logprobs)) if self._shapes[choice].has_logprobs else "null"
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
        nothing = self._delta(choice, '"content":""') if choice in self._lacking else ""
        end = self._shapes[choice].ending(ended, self._calls[choice].are_complete)
        chunk = dumps({"index": choice, "delta": {}, "logprobs": None, **end})
        last = self._writer.last_chunk(chunk, self._tally.timings()) if is_last else self._writer.chunk(chunk)
        return nothing + last

    def finish(self) -> str:
        return self._writer.usage_chunk(self._tally.usage()) if self._include_usage else ""


class ChatAnswer:
    """The same events, folded into the one answer. Of candidates, only the best become choices."""

    def __init__(self, head: Head, tally: Tally, *shapes: ChatShape) -> None:
        self._head = head
        self._tally = tally
        self._shapes = shapes
        self._answers = [Answer() for shape in shapes for _ in range(shape.num_candidates or shape.num_choices)]

    @property
    def is_complete(self) -> bool:
        return self._tally.is_complete

    def feed(self, step: Step) -> None:
        self._tally.feed(step)
        for choice, event in step:
            self._answers[choice].add(event)

    def finish(self) -> dict[str, Any]:
        metadata = {} if self._head.metadata is None else {"metadata": self._head.metadata}
        return {
            **self._head.fields("chat.completion"),
            **metadata,
            "choices": [self._choice(index, *chosen) for index, chosen in enumerate(self._chosen())],
            "usage": self._tally.usage(),
            "timings": self._tally.timings(),
        }

    def _chosen(self) -> Iterator[tuple[Answer, ChatShape]]:
        start = 0
        for shape in self._shapes:
            answers = self._answers[start : start + (shape.num_candidates or shape.num_choices)]
            start += len(answers)
            if shape.num_candidates is not None:
                ends = [answer.ended for answer in answers if answer.ended is not None]
                answers = [answers[number] for number in best(ends, shape.num_choices)]
            for answer in answers:
                yield answer, shape

    def _choice(self, index: int, answer: Answer, shape: ChatShape) -> dict[str, Any]:
        assert answer.ended is not None
        has_calls = bool(answer.calls) and all(call.is_complete for call in answer.calls)
        return {
            "index": index,
            "message": self._message(index, answer, shape),
            "logprobs": chat_logprobs(answer.logprobs) if shape.has_logprobs else None,
            **shape.ending(answer.ended, has_calls),
        }

    def _message(self, index: int, answer: Answer, shape: ChatShape) -> dict[str, Any]:
        content = None if answer.calls and not answer.text else answer.text
        message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
        if answer.reasoning:
            message["reasoning_content"] = answer.reasoning
        if answer.calls:
            ids = derived_ids(self._head.id, index)
            message["tool_calls"] = whole_calls(answer.calls, shape.custom_names, ids)
        return message
