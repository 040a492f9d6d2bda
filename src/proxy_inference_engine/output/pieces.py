"""What a parser has labelled, in pieces. Knows how white space around labels is treated, not how labels are found."""

from collections import defaultdict
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol, assert_never

from proxy_inference_engine.output.events import CallDelta, CallEnded, CallStarted, ReasoningDelta
from proxy_inference_engine.output.source import SPACE, Alphabet


@dataclass(frozen=True, slots=True)
class VisibleText:
    """Visible content. `start` counts characters of the raw text, in which a marker that is a token counts as one."""

    text: str
    start: int
    is_marker: bool = False

    @property
    def end(self) -> int:
        return self.start + (1 if self.is_marker else len(self.text))


LabelledPiece = VisibleText | ReasoningDelta | CallStarted | CallDelta | CallEnded


class _Kind(Enum):
    """What the text of an open piece is."""

    CONTENT = auto()
    REASONING = auto()
    ARGUMENTS = auto()


class ArgumentSink(Protocol):
    """Where the arguments of a call go, piece by piece."""

    def arguments(self, text: str) -> None: ...


class Sink:
    """Collects pieces, joining neighbours of one kind.

    Reasoning is stripped at both ends, blocks of it are paragraphs. Content after reasoning or calls loses the white
    space before it; while `trims_content` is set, the white space after it waits until text follows.
    """

    def __init__(self, alphabet: Alphabet) -> None:
        self.trims_content = False
        self.num_calls = 0
        self._alphabet = alphabet
        self._pieces: list[LabelledPiece] = []
        self._kind: _Kind | None = None  # of the piece that is still open
        self._parts: list[str] = []
        self._start = 0  # of the open content
        self._end = 0
        self._space: list[str] = []  # held white space of content
        self._space_start = 0
        self._has_content = False
        self._is_after_label = False  # reasoning or a call came since the last content
        self._gap: list[str] = []  # held white space of reasoning
        self._has_reasoning = False
        self._is_block_begun = False

    def take(self) -> list[LabelledPiece]:
        """The pieces collected since they were last taken."""
        self._close()
        pieces, self._pieces = self._pieces, []
        return pieces

    def content(self, text: str, start: int) -> None:
        body = text.rstrip(SPACE)
        if body and not self.trims_content:
            body = text
        if body:
            self._show(body, start)
        elif self._has_content and not self.trims_content:
            self._write(text, start)
            return
        if len(body) < len(text):
            if not self._space:
                self._space_start = start + len(body)
            self._space.append(text[len(body) :])

    def drop_space(self) -> None:
        """Forget the white space held: a label follows, or a marker that says nothing."""
        self._space.clear()
        self._is_after_label = True

    def begin_reasoning(self) -> None:
        self.drop_space()
        self._gap.clear()
        self._is_block_begun = False

    def reasoning(self, text: str) -> None:
        body = text.rstrip(SPACE)
        if body:
            if self._is_block_begun:
                self._append(_Kind.REASONING, "".join(self._gap))
            else:
                body = body.lstrip(SPACE)
                self._append(_Kind.REASONING, "\n\n" if self._has_reasoning else "")
                self._is_block_begun = self._has_reasoning = True
            self._gap.clear()
            self._append(_Kind.REASONING, self._alphabet.spell(body))
        self._gap.append(text[len(text.rstrip(SPACE)) :])

    def start_call(self, name: str) -> None:
        self.drop_space()
        self._close()
        self._pieces.append(CallStarted(self.num_calls, name))
        self.num_calls += 1

    def arguments(self, text: str) -> None:
        """The next piece of the arguments of the call started last."""
        self._append(_Kind.ARGUMENTS, self._alphabet.spell(text))

    def end_call(self) -> None:
        self._close()
        self._pieces.append(CallEnded(self.num_calls - 1))

    def finish(self) -> None:
        """The answer is over: white space that ends the content is part of it."""
        if self._space and not self._is_after_label:
            self._write("".join(self._space), self._space_start)
        self._space.clear()

    def _show(self, body: str, start: int) -> None:
        if self._is_after_label and not self._has_content:
            stripped = body.lstrip(SPACE)
            start += len(body) - len(stripped)
            body = stripped
        elif self._space:
            self._write("".join(self._space), self._space_start)
        self._space.clear()
        self._has_content = True
        self._is_after_label = False
        self._write(body, start)

    def _write(self, text: str, start: int) -> None:
        for index, part in enumerate(self._alphabet.split(text)):
            if index % 2:
                self._close()
                self._pieces.append(VisibleText(part, start, is_marker=True))
                start += 1
            elif part:
                if self._kind is not _Kind.CONTENT or start != self._end:
                    self._close()
                    self._start = start
                self._append(_Kind.CONTENT, part)
                start += len(part)
                self._end = start

    def _append(self, kind: _Kind, text: str) -> None:
        if text:
            if kind is not self._kind:
                self._close()
                self._kind = kind
            self._parts.append(text)

    def _close(self) -> None:
        if self._kind is None:
            return
        text = "".join(self._parts)
        match self._kind:
            case _Kind.CONTENT:
                self._pieces.append(VisibleText(text, self._start))
            case _Kind.REASONING:
                self._pieces.append(ReasoningDelta(text))
            case _Kind.ARGUMENTS:
                self._pieces.append(CallDelta(self.num_calls - 1, text))
            case _:
                assert_never(self._kind)
        self._kind = None
        self._parts = []


CallPiece = CallStarted | CallDelta | CallEnded


class RepeatFilter:
    """Holds a call back while it could still be an earlier one: who repeats a call would do so up to the limit.

    Fed with the pieces of calls in order. Once `is_repeated`, the answer has nothing new to say.
    """

    def __init__(self) -> None:
        self.is_repeated = False
        self._made: defaultdict[str, set[str]] = defaultdict(set)  # by the tool's name: arguments of complete calls
        self._name = ""
        self._arguments = ""
        self._held: CallStarted | None = None  # the beginning of a call that may be an earlier one

    def feed(self, piece: CallPiece) -> list[CallPiece]:
        """What can be told now."""
        match piece:
            case CallStarted(_, name):
                self._name, self._arguments = name, ""
                self._held = piece if name in self._made else None
                return [] if self._held else [piece]
            case CallDelta(_, arguments):
                self._arguments += arguments
                if self._held is None:
                    return [piece]
                return [] if self._may_repeat() else self.release()
            case CallEnded():
                self.is_repeated = self._arguments in self._made[self._name]
                self._made[self._name].add(self._arguments)
                return [] if self.is_repeated else [*self.release(), piece]

    def cut(self) -> list[CallPiece]:
        """What is held of a call that was cut off: nothing where all that came of it was said before."""
        self.is_repeated = self._held is not None and self._arguments in self._made[self._name]
        return [] if self.is_repeated else self.release()

    def release(self) -> list[CallPiece]:
        """What is held, since it is news after all."""
        held, self._held = self._held, None
        if held is None:
            return []
        return [held, CallDelta(held.index, self._arguments)] if self._arguments else [held]

    def _may_repeat(self) -> bool:
        return any(made.startswith(self._arguments) for made in self._made[self._name])
