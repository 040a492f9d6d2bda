"""The full answer of one choice: a fold over the same events that a stream sends."""

from dataclasses import dataclass, field
from typing import assert_never

from proxy_inference_engine.output.events import Broken, Ended, Event, PromptRead, TextDelta, TokenLogprob


@dataclass(slots=True)
class Answer:
    text: str = ""
    logprobs: list[TokenLogprob] = field(default_factory=list)
    prompt: PromptRead | None = None
    ended: Ended | None = None

    def add(self, event: Event) -> None:
        """Take the next event. Raises the error of a Broken one."""
        match event:
            case TextDelta(text, logprobs):
                self.text += text
                self.logprobs.extend(logprobs)
            case PromptRead():
                self.prompt = event
            case Ended():
                self.ended = event
            case Broken(error):
                raise error
            case _:
                assert_never(event)
