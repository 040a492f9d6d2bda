"""The items of an answer while they come: each says which events open it, go on with it and close it."""

from collections.abc import Sequence
from typing import Any, Literal, Protocol

from proxy_inference_engine.output.events import TokenLogprob
from proxy_inference_engine.server.convert.logprobs import chat_logprobs
from proxy_inference_engine.server.ids import new_id
from proxy_inference_engine.server.sealing import Sealer

WireEvent = dict[str, Any]  # without its sequence number
Ending = Literal["completed", "incomplete"]


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
        self._logprobs: list[dict[str, Any]] = []

    def opened(self) -> list[WireEvent]:
        part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        return [self._added(), self._part("content_part.added", part=part)]

    def grown(self, text: str, logprobs: Sequence[TokenLogprob]) -> list[WireEvent]:
        entries = chat_logprobs(logprobs)["content"]
        self._text += text
        self._logprobs += entries
        return [self._part("output_text.delta", delta=text, logprobs=entries)]

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

    def __init__(self, id_: str, index: int, name: str, is_custom: bool) -> None:
        kind, self._field = ("custom_tool_call", "input") if is_custom else ("function_call", "arguments")
        self._kind = "custom_tool_call_input" if is_custom else "function_call_arguments"
        self._names = {} if is_custom else {"name": name}
        wire = {"id": id_, "type": kind, "status": "in_progress", "call_id": new_id("call_"), "name": name}
        super().__init__(index, {**wire, self._field: ""})

    def opened(self) -> list[WireEvent]:
        return [self._added()]

    def grown(self, text: str) -> list[WireEvent]:
        self.wire[self._field] += text
        return [self._event(f"{self._kind}.delta", delta=text)]

    def closed(self, ending: Ending) -> list[WireEvent]:
        whole = {self._field: self.wire[self._field], **self._names}
        return [self._event(f"{self._kind}.done", **whole), self._done(ending)]
