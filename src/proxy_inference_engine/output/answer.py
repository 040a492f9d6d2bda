"""The full answer of one choice: a fold over the same events that a stream sends."""

from dataclasses import dataclass, field
from typing import assert_never

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


@dataclass(slots=True)
class AnsweredCall:
    """`arguments` is JSON text, or the input of a custom tool; a beginning of it where the call was cut off."""

    name: str
    arguments: str = ""
    is_complete: bool = False


@dataclass(slots=True)
class Answer:
    text: str = ""
    logprobs: list[TokenLogprob] = field(default_factory=list)
    prompt: PromptRead | None = None
    ended: Ended | None = None
    reasoning: str = ""
    calls: list[AnsweredCall] = field(default_factory=list)

    def add(self, event: Event) -> None:
        """Take the next event. Raises the error of a Broken one."""
        match event:
            case TextDelta(text, logprobs):
                self.text += text
                self.logprobs.extend(logprobs)
            case ReasoningDelta(text):
                self.reasoning += text
            case CallStarted(_, name):
                self.calls.append(AnsweredCall(name))
            case CallDelta(index, arguments):
                self.calls[index].arguments += arguments
            case CallEnded(index):
                self.calls[index].is_complete = True
            case PromptRead():
                self.prompt = event
            case Ended():
                self.ended = event
            case Broken(error):
                raise error
            case _:
                assert_never(event)
