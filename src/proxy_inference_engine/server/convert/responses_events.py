"""Events to the event stream of the Responses API. The whole answer is the object of its last event."""

import time
from collections.abc import Set
from dataclasses import dataclass
from typing import Any, assert_never

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
)
from proxy_inference_engine.server.convert.responses_object import Head, error_of, usage_of
from proxy_inference_engine.server.convert.responses_output import (
    CallOutput,
    Ending,
    MessageOutput,
    OpenItem,
    ReasoningOutput,
    WireEvent,
)
from proxy_inference_engine.server.convert.usage import Tally
from proxy_inference_engine.server.failures import error_body
from proxy_inference_engine.server.generation import Step
from proxy_inference_engine.server.sealing import Sealer


@dataclass(frozen=True, slots=True)
class Shape:
    """What the client asked to see."""

    custom_names: Set[str] = frozenset()  # the tools that take text
    sealer: Sealer | None = None  # where reasoning is wanted sealed
    is_background: bool = False


class ResponseEvents:
    """`start`, `feed` for every step, then one of `finish`, `fail` and `cancel`: the last event holds the end.

    Items never overlap: one opens when the one before it is closed, so their indexes are dense and in order.
    """

    def __init__(self, head: Head, tally: Tally, shape: Shape) -> None:
        self._head = head
        self._tally = tally
        self._shape = shape
        self._item: OpenItem | None = None
        self._output: list[dict[str, Any]] = []
        self._ended: Ended | None = None
        self._status = "queued" if shape.is_background else "in_progress"

    def start(self) -> list[WireEvent]:
        return [self._state("created"), self._state("queued" if self._shape.is_background else "in_progress")]

    def snapshot(self) -> dict[str, Any]:
        """The object while it is being made: items that are not complete yet are not shown, and neither is its end."""
        done = self._output[:-1] if self._item is not None else self._output
        return self._head.at(self._status, list(done))

    def feed(self, step: Step) -> list[WireEvent]:
        self._tally.feed(step)
        events: list[WireEvent] = []
        if self._status == "queued":
            self._status = "in_progress"
            events.append(self._state("in_progress"))
        for _, event in step:
            events += self._take(event)
        return events

    def finish(self) -> list[WireEvent]:
        assert self._ended is not None
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
                events = self._switch(MessageOutput)
                assert isinstance(self._item, MessageOutput)
                return events + self._item.grown(text, logprobs)
            case ReasoningDelta(text):
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
                is_custom = name in self._shape.custom_names
                index, id_ = self._next(), self._id("ctc" if is_custom else "fc")
                return self._close("completed") + self._open(CallOutput(id_, index, name, is_custom))
            case CallDelta(_, arguments):
                assert isinstance(self._item, CallOutput)
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
        """From the response's own id: a reference to an item says where it is stored."""
        return f"{prefix}_{self._head.id.removeprefix('resp_')}{self._next():04x}"

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
        return {"type": f"response.{name}", "response": self._head.at(self._status, [])}

    def _end(self, status: str, error: PieError | None = None) -> WireEvent:
        completed_at = int(time.time()) if status == "completed" else None
        shown = None if error is None else error_of(error)
        usage = usage_of(self._tally.usage())
        response = self._head.at(status, self._output, usage, completed_at, shown)
        return {"type": f"response.{status}", "response": response}


def lost_events(response: dict[str, Any]) -> tuple[list[WireEvent], list[WireEvent]]:
    """How the stream of a response began that the end of its server cut off, and how it ends."""
    begun = {**response, "status": "queued", "output": [], "error": None, "usage": None}
    error = EngineFailure(response["error"]["message"])
    return (
        [{"type": f"response.{name}", "response": begun} for name in ("created", "queued")],
        [{"type": "error", **error_body(error)}, {"type": "response.failed", "response": response}],
    )
