"""Events to the wire format of chat completions: chunks while they come, or the whole answer at the end."""

import hashlib
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import partial
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
from proxy_inference_engine.served.stream import Counts, Step, best
from proxy_inference_engine.server.apis.shared.chunks import (
    LEAST_CHARS,
    AnswerHead,
    ChatLogprobs,
    ChatTexts,
    ChunkWriter,
    ending,
    prompt_progress,
    running_timings,
    timings_body,
    usage_body,
)
from proxy_inference_engine.server.http.wire import dumps, new_id

_ROLE = '"delta":{"role":"assistant","content":%s,"refusal":null},"logprobs":null,"finish_reason":null}'

CallIds = Callable[[int], str]  # the id of a choice's call, from its number


def fresh_ids(_index: int) -> str:
    return new_id("call_")


def derived_ids(answer_id: str, choice: int) -> CallIds:
    """Made from the answer's own random id: the same wherever the answer is written once more."""
    return lambda index: "call_" + hashlib.sha256(f"{answer_id}/{choice}/{index}".encode()).hexdigest()[:32]


class CallDeltas:
    """The deltas of one choice. Id, type and name come once: clients join what is repeated."""

    def __init__(self, custom_names: Set[str], ids: CallIds = fresh_ids) -> None:
        self._custom_names = custom_names
        self._ids = ids
        self._are_custom: list[bool] = []
        self._num_complete = 0

    @property
    def are_complete(self) -> bool:
        """Whether there were calls, and none of them was cut off."""
        return 0 < len(self._are_custom) == self._num_complete

    def feed(self, event: CallStarted | CallDelta | CallEnded) -> dict[str, Any] | None:
        """The entry of `delta.tool_calls`; None when there is nothing to say."""
        match event:
            case CallStarted(index, name):
                self._are_custom.append(name in self._custom_names)
                return {"index": index, **_call(self._ids(index), name, "", self._are_custom[index])}
            case CallDelta(index, arguments):
                return {"index": index, **_arguments(arguments, self._are_custom[index])}
            case CallEnded():
                self._num_complete += 1
                return None


def whole_calls(
    calls: Sequence[AnsweredCall], custom_names: Set[str], ids: CallIds = fresh_ids
) -> list[dict[str, Any]]:
    return [_call(ids(index), call.name, call.arguments, call.name in custom_names) for index, call in enumerate(calls)]


def _call(id_: str, name: str, arguments: str, is_custom: bool) -> dict[str, Any]:
    kind = "custom" if is_custom else "function"
    return {"id": id_, "type": kind, kind: {"name": name, **_arguments(arguments, is_custom)[kind]}}


def _arguments(arguments: str, is_custom: bool) -> dict[str, dict[str, str]]:
    return {"custom": {"input": arguments}} if is_custom else {"function": {"arguments": arguments}}


@dataclass(frozen=True, slots=True)
class ChatShape:
    """What the client asked to see of one conversation."""

    num_choices: int
    has_logprobs: bool
    include_usage: bool
    custom_names: frozenset[str] = frozenset()  # the tools that take text
    names_tool: bool = False  # the client said which tool: that it was called is no news
    may_call: bool = False  # calls may come instead of content
    num_candidates: int | None = None  # the choices are the best of so many; None: there are no others
    tells_timings: bool = False  # in every chunk
    tells_progress: bool = False  # when the prompt was read
    is_oldest: bool = False  # calls in their first form: one, without an id

    def ending(self, ended: Ended, has_calls: bool) -> dict[str, str]:
        """The limit comes before anything else: a call that ran into it is no call."""
        fields = ending(ended)
        is_call = has_calls and ended.reason == "stop" and not self.names_tool
        return {**fields, "finish_reason": "function_call" if self.is_oldest else "tool_calls"} if is_call else fields


class ChatFrames:
    """Role first (every choice's, in order), what it says, finish reason, and the usage where it was asked for.

    An answer of calls has no content, so where calls may come, the first delta waits for what the choice says first.
    There is a shape for each conversation; they agree on how many choices there are and on the usage.
    """

    def __init__(self, head: AnswerHead, counts: Counts, *shapes: ChatShape) -> None:
        self._include_usage = shapes[0].include_usage
        told = partial(running_timings, counts) if shapes[0].tells_timings else None
        self._writer = ChunkWriter(head, "chat.completion.chunk", self._include_usage, told)
        self._counts = counts
        self._tells_progress = shapes[0].tells_progress
        self._shapes = [shape for shape in shapes for _ in range(shape.num_choices)]
        self._calls = [
            CallDeltas(shape.custom_names, derived_ids(head.id, choice)) for choice, shape in enumerate(self._shapes)
        ]
        self._logprobs = ChatTexts()
        self._num_begun = 0  # choices whose role was said
        self._lacking: set[int] = set()  # choices that have said nothing but their role, with no content, and thoughts
        # What stands around the text of those that have begun to say it, where nothing else changes.
        self._around: dict[int, tuple[str, str]] = {}
        self._tells_timings = told is not None

    def feed(self, step: Step) -> str:
        frames = self._roles()
        last = len(step) - 1 if self._counts.are_final else None
        for number, (choice, event) in enumerate(step):
            around = self._around.get(choice)
            if around is not None and isinstance(event, TextDelta):  # nearly always
                frames += f"{around[0]}{dumps(event.text)}{around[1]}"
            else:
                frames += self._frame(choice, event, number == last)
        return frames

    def _roles(self) -> str:
        """The frames that name the role of the next choices, as far as these will have content."""
        frames = ""
        while self._num_begun < len(self._shapes) and not self._shapes[self._num_begun].may_call:
            frames += self._role(has_content=True)
        return frames

    def _roles_until(self, choice: int, *, has_content: bool) -> str:
        """The roles of all choices up to this one that have none yet: the first chunk of each, in order."""
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
            return self._writer.telling_chunk("", prompt_progress(self._counts)) if self._tells_progress else ""
        roles = self._roles_until(choice, has_content=isinstance(event, TextDelta))
        if isinstance(event, TextDelta | CallStarted):
            self._lacking.discard(choice)
        return roles + self._said(choice, event, is_last)

    def _said(self, choice: int, event: Event, is_last: bool) -> str:
        match event:
            case TextDelta(text, logprobs):
                self._note_around(choice)
                return self._delta(choice, f'"content":{dumps(text)}', self._entries(choice, logprobs))
            case ReasoningDelta(text):
                return self._delta(choice, f'"reasoning_content":{dumps(text)}')
            case CallStarted() | CallDelta() | CallEnded():
                call = self._calls[choice].feed(event)
                if call is not None and self._shapes[choice].is_oldest:
                    return self._delta(choice, f'"function_call":{dumps(call["function"])}')
                return "" if call is None else self._delta(choice, f'"tool_calls":[{dumps(call)}]')
            case Ended():
                return self._last(choice, event, is_last)
            case PromptRead():
                return ""
            case Broken(error):
                raise error
            case _:
                assert_never(event)

    def _note_around(self, choice: int) -> None:
        if not self._tells_timings and not self._shapes[choice].has_logprobs:
            before = f'{{"index":{choice},"delta":{{"content":'
            self._around[choice] = self._writer.around(before, '},"logprobs":null,"finish_reason":null}')

    def _entries(self, choice: int, logprobs: Sequence[TokenLogprob]) -> str:
        if not self._shapes[choice].has_logprobs:
            return "null"
        return f'{{"content":{self._logprobs.json(logprobs)},"refusal":null}}'

    def _delta(self, choice: int, fields: str, logprobs: str = "null") -> str:
        delta = f'"delta":{{{fields}}},"logprobs":{logprobs},"finish_reason":null}}'
        return self._writer.chunk(f'{{"index":{choice},{delta}')

    def _last(self, choice: int, ended: Ended, is_last: bool) -> str:
        nothing = self._delta(choice, '"content":""') if choice in self._lacking else ""
        end = self._shapes[choice].ending(ended, self._calls[choice].are_complete)
        chunk = dumps({"index": choice, "delta": {}, "logprobs": None, **end})
        last = self._writer.last_chunk(chunk, timings_body(self._counts)) if is_last else self._writer.chunk(chunk)
        return nothing + last

    def finish(self) -> str:
        return self._writer.usage_chunk(usage_body(self._counts)) if self._include_usage else ""


class ChatWhole:
    """Says nothing until the end, then the whole answer. Of candidates, only the best become choices."""

    def __init__(self, head: AnswerHead, counts: Counts, *shapes: ChatShape) -> None:
        self._head = head
        self._counts = counts
        self._shapes = shapes
        self._answers = [Answer() for shape in shapes for _ in range(shape.num_candidates or shape.num_choices)]
        self._logprobs = [ChatLogprobs() for _ in self._answers]
        self._has_logprobs = any(shape.has_logprobs for shape in shapes)
        self.num_chars = 0  # of what was said, in JSON: at least, but for candidates that are not chosen

    @property
    def least_chars(self) -> int:
        return 0 if any(shape.num_candidates is not None for shape in self._shapes) else self.num_chars

    def feed(self, step: Step) -> str:
        for choice, event in step:
            if isinstance(event, TextDelta):
                self._keep(choice, event.logprobs if self._has_logprobs else ())
                event = TextDelta(event.text)
            if isinstance(event, TextDelta | ReasoningDelta):
                self.num_chars += len(event.text)
            self._answers[choice].add(event)
        return ""

    def _keep(self, choice: int, entries: Sequence[TokenLogprob]) -> None:
        self._logprobs[choice].extend(entries)
        self.num_chars += sum(LEAST_CHARS * (1 + len(entry.top)) for entry in entries)

    def finish(self) -> str:
        return dumps(self.body())

    def body(self) -> dict[str, Any]:
        metadata = {} if self._head.metadata is None else {"metadata": self._head.metadata}
        return {
            **self._head.fields("chat.completion"),
            **metadata,
            "choices": [self._choice(index, *chosen) for index, chosen in enumerate(self._chosen())],
            "usage": usage_body(self._counts),
            "timings": timings_body(self._counts),
        }

    def _chosen(self) -> Iterator[tuple[int, ChatShape]]:
        """The numbers of what is answered."""
        start = 0
        for shape in self._shapes:
            numbers = range(start, start + (shape.num_candidates or shape.num_choices))
            start = numbers.stop
            if shape.num_candidates is None:
                yield from ((number, shape) for number in numbers)
            else:
                ends = [self._answers[number].ended for number in numbers]
                found = best([ended for ended in ends if ended is not None], shape.num_choices)
                yield from ((numbers[place], shape) for place in found)

    def _choice(self, index: int, number: int, shape: ChatShape) -> dict[str, Any]:
        answer = self._answers[number]
        assert answer.ended is not None
        has_calls = bool(answer.calls) and all(call.is_complete for call in answer.calls)
        return {
            "index": index,
            "message": self._message(index, answer, shape),
            "logprobs": {"content": self._logprobs[number], "refusal": None} if shape.has_logprobs else None,
            **shape.ending(answer.ended, has_calls),
        }

    def _message(self, index: int, answer: Answer, shape: ChatShape) -> dict[str, Any]:
        content = None if answer.calls and not answer.text else answer.text
        message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
        if answer.reasoning:
            message["reasoning_content"] = answer.reasoning
        if answer.calls:
            ids = derived_ids(self._head.id, index)
            calls = whole_calls(answer.calls, shape.custom_names, ids)
            message |= {"function_call": calls[0]["function"]} if shape.is_oldest else {"tool_calls": calls}
        return message
