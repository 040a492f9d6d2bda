"""Events of the engine to those of Anthropic's format: written as frames while they come, or folded into one answer.

The answer is made from the same wire events that a stream sends, as a client would make it.
"""

from dataclasses import dataclass
from typing import Any, Literal, assert_never

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
from proxy_inference_engine.served.stream import Counts, Step
from proxy_inference_engine.server.apis.messages.errors import frame
from proxy_inference_engine.server.apis.shared.arguments import parsed_arguments
from proxy_inference_engine.server.apis.shared.sealer import Sealer
from proxy_inference_engine.server.http.wire import WireEvent, dumps, new_id

BlockKind = Literal["text", "thinking", "tool_use"]


@dataclass(frozen=True, slots=True)
class MessageShape:
    """What is said of every message of a request, and what the client asked to see of it."""

    id: str
    model: str
    is_clamped: bool = False  # less room is left than the client allowed
    sealer: Sealer | None = None  # where thoughts are not shown: their signature is what they were

    def stop(self, ended: Ended, has_calls: bool) -> dict[str, str | None]:
        """The limit comes before anything else: a call that ran into it is no call."""
        if ended.reason == "length":
            reason = "model_context_window_exceeded" if self.is_clamped else "max_tokens"
        elif has_calls:
            reason = "tool_use"
        elif ended.stop_str is not None:
            return {"stop_reason": "stop_sequence", "stop_sequence": ended.stop_str}
        else:
            reason = "end_turn"
        return {"stop_reason": reason, "stop_sequence": None}


class MessageEvents:
    """The wire events of one message: blocks never overlap, and each is opened and closed once."""

    def __init__(self, shape: MessageShape, counts: Counts) -> None:
        self._shape = shape
        self._counts = counts
        self._has_begun = False
        self._num_blocks = 0
        self._open: BlockKind | None = None
        self._has_calls = False
        self._ended: Ended | None = None
        self._thought = ""  # that is not shown

    def feed(self, step: Step) -> list[WireEvent]:
        events: list[WireEvent] = []
        if not self._has_begun:
            self._has_begun = True
            events.append({"type": "message_start", "message": self._start()})
        for _, event in step:
            events += self._events(event)
        return events

    def _start(self) -> dict[str, Any]:
        return {
            "id": self._shape.id,
            "type": "message",
            "role": "assistant",
            "model": self._shape.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {**self._usage(), "output_tokens": 0},
        }

    def _events(self, event: Event) -> list[WireEvent]:
        match event:
            case TextDelta(text):
                return self._delta("text", {"type": "text_delta", "text": text}) if text else []
            case ReasoningDelta(text):
                delta = {"type": "thinking_delta", "thinking": text}
                if self._shape.sealer is None:
                    return self._delta("thinking", delta)
                self._thought += text
                return self._enter("thinking")
            case CallStarted(_, name):
                self._has_calls = True
                return [*self._close(), self._begin("tool_use", id=new_id("toolu_"), name=name, input={})]
            case CallDelta(_, arguments):
                return self._delta("tool_use", {"type": "input_json_delta", "partial_json": arguments})
            case CallEnded():
                return self._close()
            case Ended():
                self._ended = event
                return self._close()
            case PromptRead():
                return []
            case Broken(error):
                raise error
            case _:
                assert_never(event)

    def _delta(self, kind: BlockKind, delta: dict[str, str]) -> list[WireEvent]:
        return [*self._enter(kind), self._about_block("content_block_delta", delta=delta)]

    def _enter(self, kind: BlockKind) -> list[WireEvent]:
        """Open a block of this kind, unless one is open."""
        if self._open == kind:
            return []
        fields = {"thinking": "", "signature": ""} if kind == "thinking" else {"text": ""}
        return [*self._close(), self._begin(kind, **fields)]

    def _begin(self, kind: BlockKind, **fields: Any) -> WireEvent:
        self._open = kind
        self._num_blocks += 1
        return self._about_block("content_block_start", content_block={"type": kind, **fields})

    def _close(self) -> list[WireEvent]:
        kind, self._open = self._open, None
        if kind is None:
            return []
        stop = self._about_block("content_block_stop")
        if kind != "thinking":
            return [stop]
        signature = {"type": "signature_delta", "signature": self._signature()}
        return [self._about_block("content_block_delta", delta=signature), stop]

    def _signature(self) -> str:
        """The format wants one. That of a text means nothing here."""
        if self._shape.sealer is None:
            return new_id("sig_")
        thought, self._thought = self._thought, ""
        return self._shape.sealer.seal("reasoning", thought)

    def _about_block(self, kind: str, **fields: Any) -> WireEvent:
        return {"type": kind, "index": self._num_blocks - 1, **fields}

    def finish(self) -> list[WireEvent]:
        assert self._ended is not None
        stop = self._shape.stop(self._ended, self._has_calls)
        return [{"type": "message_delta", "delta": stop, "usage": self._usage()}, {"type": "message_stop"}]

    def _usage(self) -> dict[str, Any]:
        """Here, what came from the cache is not counted as input."""
        counts = self._counts
        return {
            "input_tokens": counts.num_prompt_tokens - counts.num_cached_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": counts.num_cached_tokens,
            "output_tokens": counts.num_tokens,
            "output_tokens_details": {"thinking_tokens": counts.num_reasoning_tokens},
        }


class MessageFrames:
    def __init__(self, events: MessageEvents) -> None:
        self._events = events

    def feed(self, step: Step) -> str:
        return "".join(map(frame, self._events.feed(step)))

    def finish(self) -> str:
        return "".join(map(frame, self._events.finish()))


class MessageWhole:
    """Folds the wire events as a client would, and says the whole message at the end."""

    def __init__(self, events: MessageEvents) -> None:
        self._events = events
        self._message: dict[str, Any] = {}
        self._arguments = ""  # of the call that is open

    def feed(self, step: Step) -> str:
        for event in self._events.feed(step):
            self._take(event)
        return ""

    @property
    def num_chars(self) -> int:
        blocks = self._message["content"]
        return sum(len(block.get("text", "")) + len(block.get("thinking", "")) for block in blocks)

    def finish(self) -> str:
        return dumps(self.body())

    def body(self) -> dict[str, Any]:
        for event in self._events.finish():
            self._take(event)
        return self._message

    def _take(self, event: WireEvent) -> None:
        match event["type"]:
            case "message_start":
                self._message = event["message"]
            case "content_block_start":
                self._message["content"].append(event["content_block"])
                self._arguments = ""
            case "content_block_delta":
                self._add(event["delta"])
            case "content_block_stop":
                block = self._message["content"][-1]
                if block["type"] == "tool_use":
                    block["input"] = parsed_arguments(self._arguments, ": ask for a stream")
            case "message_delta":
                self._message |= {**event["delta"], "usage": event["usage"]}

    def _add(self, delta: dict[str, str]) -> None:
        block = self._message["content"][-1]
        match delta["type"]:
            case "text_delta":
                block["text"] += delta["text"]
            case "thinking_delta":
                block["thinking"] += delta["thinking"]
            case "signature_delta":
                block["signature"] = delta["signature"]
            case "input_json_delta":
                self._arguments += delta["partial_json"]
