"""Events to the wire format of text completions, with echo and offsets: chunks, or one answer at the end."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from proxy_inference_engine.output.events import Ended, Event, PromptRead, TextDelta
from proxy_inference_engine.runners.base import Tokenizer
from proxy_inference_engine.served.stream import Counts, Step, best
from proxy_inference_engine.server.apis.shared.chunks import (
    LEAST_CHARS,
    AnswerHead,
    ChunkWriter,
    TextColumns,
    TextLogprobs,
    ending,
    prompt_progress,
    running_timings,
    timings_body,
    usage_body,
)
from proxy_inference_engine.server.http.wire import dumps


@dataclass(frozen=True, slots=True)
class EchoedPrompt:
    """A prompt as it is repeated before its answers."""

    text: str
    pieces: tuple[tuple[bytes, bool], ...]  # each token's bytes, and whether it is part of the text


def echoed_prompt(ids: Sequence[int], text: str | None, tokenizer: Tokenizer) -> EchoedPrompt:
    """`text` is what the client wrote; None when it sent token ids."""
    if text is not None:
        return EchoedPrompt(text, _pieces_of(text, ids, tokenizer))
    pieces = tuple((tokenizer.token_bytes(id_), id_ not in tokenizer.control_ids) for id_ in ids)
    return EchoedPrompt(b"".join(piece for piece, is_text in pieces if is_text).decode("utf-8", "replace"), pieces)


def _pieces_of(text: str, ids: Sequence[int], tokenizer: Tokenizer) -> tuple[tuple[bytes, bool], ...]:
    """All tokens spell the text, but for a BOS that was put before it."""
    pieces = [tokenizer.token_bytes(id_) for id_ in ids]
    has_bos = bool(ids) and ids[0] == tokenizer.bos_id and not text.encode().startswith(pieces[0])
    return tuple((piece, index > 0 or not has_bos) for index, piece in enumerate(pieces))


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
class CompletionShape:
    """What the client asked to see: `echoes` has one entry a prompt.

    With `num_candidates`, the choices of a prompt are the best of so many.
    """

    num_choices: int
    echoes: tuple[EchoedPrompt | None, ...]
    has_logprobs: bool
    include_usage: bool = False
    num_candidates: int | None = None
    tells_timings: bool = False
    tells_progress: bool = False

    @property
    def num_generated(self) -> int:
        return self.num_candidates or self.num_choices

    def choices(self) -> list[_Choice]:
        return [_Choice(echo, self.has_logprobs) for echo in self.echoes for _ in range(self.num_generated)]


class CompletionFrames:
    def __init__(self, head: AnswerHead, counts: Counts, shape: CompletionShape) -> None:
        told = partial(running_timings, counts) if shape.tells_timings else None
        self._writer = ChunkWriter(head, "text_completion", shape.include_usage, told)
        self._tells_progress = shape.tells_progress
        self._counts = counts
        self._choices = shape.choices()
        self._include_usage = shape.include_usage

    def feed(self, step: Step) -> str:
        last = len(step) - 1 if self._counts.are_final else None
        return "".join(self._frame(index, event, number == last) for number, (index, event) in enumerate(step))

    def _frame(self, index: int, event: Event, is_last: bool) -> str:
        if isinstance(event, Ended):
            choice = dumps({"text": "", "index": index, "logprobs": None, **ending(event)})
            return (
                self._writer.last_chunk(choice, timings_body(self._counts)) if is_last else self._writer.chunk(choice)
            )
        progress = ""
        if self._tells_progress and isinstance(event, PromptRead):
            progress = self._writer.telling_chunk("", prompt_progress(self._counts))
        added = self._choices[index].feed(event)
        if added is None:
            return progress
        text, logprobs = added
        lists = "null" if logprobs is None else dumps(logprobs)
        choice = f'{{"text":{dumps(text)},"index":{index},"logprobs":{lists},"finish_reason":null}}'
        return progress + self._writer.chunk(choice)

    def finish(self) -> str:
        return self._writer.usage_chunk(usage_body(self._counts)) if self._include_usage else ""


class CompletionWhole:
    """Says nothing until the end, then the whole answer. Of candidates, only the best become choices."""

    def __init__(self, head: AnswerHead, counts: Counts, shape: CompletionShape) -> None:
        self._head = head
        self._counts = counts
        self._shape = shape
        self._choices = shape.choices()
        self._texts = [""] * len(self._choices)
        self._logprobs = [TextColumns() if shape.has_logprobs else None for _ in self._choices]
        self._ends: list[Ended | None] = [None] * len(self._choices)

    def feed(self, step: Step) -> str:
        for index, event in step:
            if isinstance(event, Ended):
                self._ends[index] = event
            else:
                self._add(index, self._choices[index].feed(event))
        return ""

    def _add(self, index: int, added: tuple[str, dict[str, Any] | None] | None) -> None:
        if added is None:
            return
        text, logprobs = added
        self._texts[index] += text
        columns = self._logprobs[index]
        if columns is not None and logprobs is not None:
            columns.extend(logprobs)

    @property
    def num_chars(self) -> int:
        """How long the answer is in JSON, about."""
        num_logprobs = sum(columns.num_logprobs for columns in self._logprobs if columns is not None)
        return sum(map(len, self._texts)) + LEAST_CHARS * num_logprobs

    def finish(self) -> str:
        return dumps(self.body())

    def body(self) -> dict[str, Any]:
        return {
            **self._head.fields("text_completion"),
            "choices": [self._choice(index, number) for index, number in enumerate(self._chosen())],
            "usage": usage_body(self._counts),
            "timings": timings_body(self._counts),
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
        ended, columns = self._ends[number], self._logprobs[number]
        assert ended is not None
        return {
            "text": self._texts[number],
            "index": index,
            "logprobs": None if columns is None else columns.wire(),
            **ending(ended),
        }
