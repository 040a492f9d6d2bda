"""Events to the wire format of text completions, with echo and offsets: chunks, or one answer at the end."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from proxy_inference_engine.output.events import Ended, Event, PromptRead, TextDelta
from proxy_inference_engine.runners.base import Tokenizer
from proxy_inference_engine.server.candidates import best
from proxy_inference_engine.server.convert.head import ChunkWriter, Head, ending
from proxy_inference_engine.server.convert.logprobs import TextLogprobs, empty_lists, extend_lists
from proxy_inference_engine.server.convert.usage import Tally
from proxy_inference_engine.server.generation import Step
from proxy_inference_engine.server.jsons import dumps


@dataclass(frozen=True, slots=True)
class EchoedPrompt:
    """A prompt as it is repeated before its answers."""

    text: str
    pieces: tuple[tuple[bytes, bool], ...]  # each token's bytes, and whether it is part of the text


def echoed_prompt(ids: Sequence[int], text: str | None, tokenizer: Tokenizer) -> EchoedPrompt:
    """`text` is what the client wrote; None when it sent token ids."""
    pieces = tuple((tokenizer.token_bytes(id_), id_ not in tokenizer.control_ids) for id_ in ids)
    if text is None:
        text = b"".join(piece for piece, is_text in pieces if is_text).decode("utf-8", "replace")
    return EchoedPrompt(text, pieces)


class _Choice:
    """Turns the events of one choice into the text and the log-probabilities they add."""

    def __init__(self, echo: EchoedPrompt | None, has_logprobs: bool) -> None:
        self._echo = echo
        self._logprobs = TextLogprobs() if has_logprobs else None

    def feed(self, event: Event) -> tuple[str, dict[str, Any] | None] | None:
        if isinstance(event, TextDelta):
            return event.text, None if self._logprobs is None else self._logprobs.text(event.logprobs)
        if isinstance(event, PromptRead) and self._echo is not None:
            return self._echo.text, self._prompt_logprobs(self._echo, event)
        return None

    def _prompt_logprobs(self, echo: EchoedPrompt, event: PromptRead) -> dict[str, Any] | None:
        if self._logprobs is None:
            return None
        return self._logprobs.prompt(echo.pieces, event.prompt_logprobs or (None,) * len(echo.pieces))


@dataclass(frozen=True, slots=True)
class Shape:
    """What the client asked to see: `echoes` has one entry a prompt.

    With `num_candidates`, the choices of a prompt are the best of so many.
    """

    num_choices: int
    echoes: tuple[EchoedPrompt | None, ...]
    has_logprobs: bool
    include_usage: bool = False
    num_candidates: int | None = None

    @property
    def num_generated(self) -> int:
        return self.num_candidates or self.num_choices

    def choices(self) -> list[_Choice]:
        return [_Choice(echo, self.has_logprobs) for echo in self.echoes for _ in range(self.num_generated)]


class CompletionFrames:
    def __init__(self, head: Head, tally: Tally, shape: Shape) -> None:
        self._writer = ChunkWriter(head, "text_completion", shape.include_usage)
        self._tally = tally
        self._choices = shape.choices()
        self._include_usage = shape.include_usage

    def feed(self, step: Step) -> str:
        self._tally.feed(step)
        last = len(step) - 1 if self._tally.is_complete else None
        return "".join(self._frame(index, event, number == last) for number, (index, event) in enumerate(step))

    def _frame(self, index: int, event: Event, is_last: bool) -> str:
        if isinstance(event, Ended):
            choice = dumps({"text": "", "index": index, "logprobs": None, **ending(event)})
            return self._writer.last_chunk(choice, self._tally.timings()) if is_last else self._writer.chunk(choice)
        added = self._choices[index].feed(event)
        if added is None:
            return ""
        text, logprobs = added
        lists = "null" if logprobs is None else dumps(logprobs)
        return self._writer.chunk(f'{{"text":{dumps(text)},"index":{index},"logprobs":{lists},"finish_reason":null}}')

    def finish(self) -> str:
        return self._writer.usage_chunk(self._tally.usage()) if self._include_usage else ""


class CompletionAnswer:
    """The same events, folded into the one answer."""

    def __init__(self, head: Head, tally: Tally, shape: Shape) -> None:
        self._head = head
        self._tally = tally
        self._shape = shape
        self._choices = shape.choices()
        self._texts = [""] * len(self._choices)
        self._logprobs = [empty_lists() if shape.has_logprobs else None for _ in self._choices]
        self._ends: list[Ended | None] = [None] * len(self._choices)

    def feed(self, step: Step) -> None:
        self._tally.feed(step)
        for index, event in step:
            if isinstance(event, Ended):
                self._ends[index] = event
            else:
                self._add(index, self._choices[index].feed(event))

    def _add(self, index: int, added: tuple[str, dict[str, Any] | None] | None) -> None:
        if added is None:
            return
        text, logprobs = added
        self._texts[index] += text
        lists = self._logprobs[index]
        if lists is not None and logprobs is not None:
            extend_lists(lists, logprobs)

    def finish(self) -> dict[str, Any]:
        return {
            **self._head.fields("text_completion"),
            "choices": [self._choice(index, number) for index, number in enumerate(self._chosen())],
            "usage": self._tally.usage(),
            "timings": self._tally.timings(),
        }

    def _chosen(self) -> list[int]:
        """The numbers of what is answered."""
        if self._shape.num_candidates is None:
            return list(range(len(self._choices)))
        ends = [ended for ended in self._ends if ended is not None]
        num_each, num_wanted = self._shape.num_candidates, self._shape.num_choices
        starts = range(0, len(ends), num_each)
        return [start + number for start in starts for number in best(ends[start : start + num_each], num_wanted)]

    def _choice(self, index: int, number: int) -> dict[str, Any]:
        ended = self._ends[number]
        assert ended is not None
        return {
            "text": self._texts[number],
            "index": index,
            "logprobs": self._logprobs[number],
            **ending(ended),
        }
