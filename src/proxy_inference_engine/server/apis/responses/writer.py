"""Events to the event stream of the Responses API. The whole answer is the object of its last event."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, assert_never

from proxy_inference_engine.errors import EngineFailure, PieError
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
from proxy_inference_engine.server.apis.responses.object import ResponseHead, error_of, response_usage
from proxy_inference_engine.server.apis.responses.offer import CallName
from proxy_inference_engine.server.apis.shared.arguments import parsed_arguments
from proxy_inference_engine.server.apis.shared.chunks import LEAST_CHARS, ChatLogprobs
from proxy_inference_engine.server.apis.shared.sealer import Sealer
from proxy_inference_engine.server.http.errors import error_body
from proxy_inference_engine.server.http.wire import WireEvent, new_id

Ending = Literal["completed", "incomplete"]
_PREFIXES = {"function": "fc", "custom": "ctc", "search": "tsc"}


class OpenItem(Protocol):
    """An item whose `wire` grows."""

    wire: dict[str, Any]

    def opened(self) -> list[WireEvent]: ...

    def closed(self, ending: Ending) -> list[WireEvent]: ...


class _Item:
    def __init__(self, index: int, wire: dict[str, Any]) -> None:
        self.wire = wire
        self._index = index

    def _event(self, kind: str, **fields: Any) -> WireEvent:
        return {"type": f"response.{kind}", "item_id": self.wire["id"], "output_index": self._index, **fields}

    def _part(self, kind: str, **fields: Any) -> WireEvent:
        return self._event(kind, content_index=0, **fields)

    def _added(self) -> WireEvent:
        # A copy: what is sent later must not show what has come since.
        item = {name: list(value) if isinstance(value, list) else value for name, value in self.wire.items()}
        return {"type": "response.output_item.added", "output_index": self._index, "item": item}

    def _done(self, ending: Ending) -> WireEvent:
        self.wire["status"] = ending
        return {"type": "response.output_item.done", "output_index": self._index, "item": self.wire}


class ReasoningOutput(_Item):
    def __init__(self, id_: str, index: int, sealer: Sealer | None) -> None:
        """`sealer`: the client wants the reasoning sealed too."""
        super().__init__(index, {"id": id_, "type": "reasoning", "status": "in_progress", "summary": [], "content": []})
        self._sealer = sealer
        self._text = ""

    def opened(self) -> list[WireEvent]:
        return [self._added(), self._part("content_part.added", part={"type": "reasoning_text", "text": ""})]

    def grown(self, text: str) -> list[WireEvent]:
        self._text += text
        return [self._part("reasoning_text.delta", delta=text)]

    def closed(self, ending: Ending) -> list[WireEvent]:
        part = {"type": "reasoning_text", "text": self._text}
        self.wire["content"] = [part]
        if self._sealer is not None:
            self.wire["encrypted_content"] = self._sealer.seal("reasoning", self._text)
        return [
            self._part("reasoning_text.done", text=self._text),
            self._part("content_part.done", part=part),
            self._done(ending),
        ]


class MessageOutput(_Item):
    def __init__(self, id_: str, index: int) -> None:
        super().__init__(
            index, {"id": id_, "type": "message", "status": "in_progress", "role": "assistant", "content": []}
        )
        self._text = ""
        self._logprobs = ChatLogprobs()

    def opened(self) -> list[WireEvent]:
        part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        return [self._added(), self._part("content_part.added", part=part)]

    def grown(self, text: str, logprobs: Sequence[TokenLogprob]) -> list[WireEvent]:
        self._text += text
        start = len(self._logprobs)
        self._logprobs.extend(logprobs)
        return [self._part("output_text.delta", delta=text, logprobs=self._logprobs[start:])]

    def closed(self, ending: Ending) -> list[WireEvent]:
        part = {"type": "output_text", "text": self._text, "annotations": [], "logprobs": self._logprobs}
        self.wire["content"] = [part]
        return [
            self._part("output_text.done", text=self._text, logprobs=self._logprobs),
            self._part("content_part.done", part=part),
            self._done(ending),
        ]


class CallOutput(_Item):
    """A call of a function, or of a custom tool: the same life under other names."""

    def __init__(self, id_: str, index: int, called: CallName) -> None:
        is_custom = called.kind == "custom"
        kind, self._field = ("custom_tool_call", "input") if is_custom else ("function_call", "arguments")
        self._kind = "custom_tool_call_input" if is_custom else "function_call_arguments"
        self._names = {} if is_custom else {"name": called.name}
        wire = {"id": id_, "type": kind, "status": "in_progress", "call_id": new_id("call_"), "name": called.name}
        named = {} if called.namespace is None else {"namespace": called.namespace}
        super().__init__(index, {**wire, **named, self._field: ""})

    def opened(self) -> list[WireEvent]:
        return [self._added()]

    def grown(self, text: str) -> list[WireEvent]:
        self.wire[self._field] += text
        return [self._event(f"{self._kind}.delta", delta=text)]

    def closed(self, ending: Ending) -> list[WireEvent]:
        whole = {self._field: self.wire[self._field], **self._names}
        return [self._event(f"{self._kind}.done", **whole), self._done(ending)]


class SearchOutput(_Item):
    """A search for tools, which the client makes. What it is to find is told at its end."""

    def __init__(self, id_: str, index: int) -> None:
        wire = {"id": id_, "type": "tool_search_call", "status": "in_progress", "call_id": new_id("call_")}
        super().__init__(index, {**wire, "execution": "client", "arguments": {}})
        self._arguments = ""

    def opened(self) -> list[WireEvent]:
        return [self._added()]

    def grown(self, text: str) -> list[WireEvent]:
        self._arguments += text
        return []

    def closed(self, ending: Ending) -> list[WireEvent]:
        self.wire["arguments"] = parsed_arguments(self._arguments)
        return [self._done(ending)]


@dataclass(frozen=True, slots=True)
class ResponseShape:
    """What the client asked to see."""

    names: Mapping[str, CallName] = field(default_factory=dict)  # of the tools, by the model's own
    sealer: Sealer | None = None  # where reasoning is wanted sealed
    is_background: bool = False
    generates: bool = True  # False: the prompt is only made ready


class ResponseWriter:
    """`start`, `feed` for every step, then one of `finish`, `fail` and `cancel`: the last event holds the end.

    Items never overlap: one opens when the one before it is closed, so their indexes are dense and in order.
    """

    def __init__(self, head: ResponseHead, counts: Counts, shape: ResponseShape) -> None:
        self.head = head
        self._counts = counts
        self._shape = shape
        self._item: OpenItem | None = None
        self._output: list[dict[str, Any]] = []
        self._ended: Ended | None = None
        self._status = "queued" if shape.is_background else "in_progress"
        self.num_chars = 0  # of what was said, at least, in JSON

    def start(self) -> list[WireEvent]:
        return [self._state("created"), self._state("queued" if self._shape.is_background else "in_progress")]

    def snapshot(self) -> dict[str, Any]:
        """The object while it is being made: items that are not complete yet are not shown, and neither is its end."""
        done = self._output[:-1] if self._item is not None else self._output
        return self.head.at(self._status, list(done))

    def feed(self, step: Step) -> list[WireEvent]:
        events: list[WireEvent] = []
        if self._status == "queued":
            self._status = "in_progress"
            events.append(self._state("in_progress"))
        for _, event in step:
            events += self._take(event)
        return events

    def finish(self) -> list[WireEvent]:
        assert self._ended is not None
        if not self._shape.generates:
            return [self._end("completed")]
        ending: Ending = "incomplete" if self._ended.reason == "length" else "completed"
        events = [] if self._output else self._open(MessageOutput(self._id("msg"), 0))
        return [*events, *self._close(ending), self._end(ending)]

    def fail(self, error: PieError) -> list[WireEvent]:
        """An `error` event has the shape of an error's body: clients raise it at once."""
        self._abandon()
        return [{"type": "error", **error_body(error)}, self._end("failed", error)]

    def cancel(self) -> list[WireEvent]:
        self._abandon()
        return [{**self._end("cancelled"), "type": "response.incomplete"}]

    def _take(self, event: Event) -> list[WireEvent]:
        match event:
            case TextDelta(text, logprobs):
                self.num_chars += len(text) + sum(LEAST_CHARS * (1 + len(each.top)) for each in logprobs)
                events = self._switch(MessageOutput)
                assert isinstance(self._item, MessageOutput)
                return events + self._item.grown(text, logprobs)
            case ReasoningDelta(text):
                self.num_chars += len(text)
                events = self._switch(ReasoningOutput)
                assert isinstance(self._item, ReasoningOutput)
                return events + self._item.grown(text)
            case CallStarted() | CallDelta() | CallEnded():
                return self._call(event)
            case Ended():
                self._ended = event
                return []
            case PromptRead():
                return []
            case Broken(error):
                raise error
            case _:
                assert_never(event)

    def _call(self, event: CallStarted | CallDelta | CallEnded) -> list[WireEvent]:
        match event:
            case CallStarted(_, name):
                called = self._shape.names.get(name, CallName("function", name))
                index, id_ = self._next(), self._id(_PREFIXES[called.kind])
                is_search = called.kind == "search"
                item = SearchOutput(id_, index) if is_search else CallOutput(id_, index, called)
                return self._close("completed") + self._open(item)
            case CallDelta(_, arguments):
                assert isinstance(self._item, CallOutput | SearchOutput)
                return self._item.grown(arguments)
            case CallEnded():
                return self._close("completed")

    def _switch(self, kind: type[MessageOutput] | type[ReasoningOutput]) -> list[WireEvent]:
        """An item of this kind is open afterwards."""
        if isinstance(self._item, kind):
            return []
        fresh: MessageOutput | ReasoningOutput
        if kind is MessageOutput:
            fresh = MessageOutput(self._id("msg"), self._next())
        else:
            fresh = ReasoningOutput(self._id("rs"), self._next(), self._shape.sealer)
        return self._close("completed") + self._open(fresh)

    def _next(self) -> int:
        return len(self._output)

    def _id(self, prefix: str) -> str:
        """The id of an item, made from the response's own, so that a reference to the item says where it is stored."""
        return f"{prefix}_{self.head.id.removeprefix('resp_')}{self._next():04x}"

    def _open(self, item: OpenItem) -> list[WireEvent]:
        self._item = item
        self._output.append(item.wire)
        return item.opened()

    def _close(self, ending: Ending) -> list[WireEvent]:
        item, self._item = self._item, None
        return [] if item is None else item.closed(ending)

    def _abandon(self) -> None:
        """What was being said is part of the object, without further events."""
        if self._item is not None:
            self._close("incomplete")

    def _state(self, name: str) -> WireEvent:
        return {"type": f"response.{name}", "response": self.head.at(self._status, [])}

    def _end(self, status: str, error: PieError | None = None) -> WireEvent:
        completed_at = int(time.time()) if status == "completed" else None
        shown = None if error is None else error_of(error)
        usage = response_usage(self._counts)
        response = self.head.at(status, self._output, usage, completed_at, shown)
        return {"type": f"response.{status}", "response": response}


def lost_events(response: dict[str, Any]) -> tuple[list[WireEvent], list[WireEvent]]:
    """How the stream of a response began that the end of its server cut off, and how it ends."""
    begun = {**response, "status": "queued", "output": [], "error": None, "usage": None}
    error = EngineFailure(response["error"]["message"])
    return (
        [{"type": f"response.{name}", "response": begun} for name in ("created", "queued")],
        [{"type": "error", **error_body(error)}, {"type": "response.failed", "response": response}],
    )
