"""Calls in the text of an answer, read from behind their opening on. Knows nothing of the text around them.

A grammar may hold calls to their family's syntax: they are streamed as they come. It may allow them and any other text
too, in reasoning that only text ends: they are read on trial. Or there is no grammar: the text is held to the end of a
call and read whole, tolerantly.
"""

import json
from collections.abc import Mapping, Sequence
from typing import assert_never

from proxy_inference_engine.formats.signature import INPUT, is_raw_input
from proxy_inference_engine.formats.syntax import WORD, ArgumentStyle, CallSyntax
from proxy_inference_engine.interaction import Tool, ToolKind
from proxy_inference_engine.output.calls.elements import read_elements
from proxy_inference_engine.output.calls.keywords import read_keywords
from proxy_inference_engine.output.calls.strings import JsonScan, UniqueArguments, read_json
from proxy_inference_engine.output.calls.tolerant import ReadCall, read_calls
from proxy_inference_engine.output.events import CallDelta, CallEnded, CallStarted, ReasoningDelta
from proxy_inference_engine.output.pieces import ArgumentSink, LabelledPiece, Sink, VisibleText
from proxy_inference_engine.output.source import SPACE, Alphabet, Finder, Reading, Source

# Each trial that fails reads its text once more; a bound keeps the work of an answer linear.
_MAX_FAILURES = 16


class BoundReader:
    """Calls that a grammar held to the family's syntax, streamed as they come. What does not follow it was no call."""

    def __init__(self, source: Source, sink: Sink, syntax: CallSyntax, tools: Mapping[str, Tool]) -> None:
        self._source = source
        self._sink = sink
        self._syntax = syntax
        self._heads = {name + syntax.between: tool for name, tool in tools.items()}
        first = syntax.begin + syntax.before_name
        assert first.startswith(syntax.opening), "the opening begins a call"
        self._lead = first[len(syntax.opening) :]
        following = (syntax.separator + syntax.before_name, syntax.before_name) if syntax.can_repeat else ()
        self._ends = (syntax.end,) if syntax.end else ()
        self._following = dict.fromkeys(filter(None, following))
        # What begins like the other comes first.
        is_end_first = any(syntax.end.startswith(text) for text in self._following)
        texts = (*self._ends, *self._following) if is_end_first else (*self._following, *self._ends)
        self._next = tuple(dict.fromkeys(texts))

    def read(self) -> Reading[str]:
        """The calls of a row, to its end; gives what was read at last, the opening included, if that is text."""
        source = self._source
        before = self._syntax.opening
        lead = yield from source.expect(self._lead)
        if lead is None:
            return self._text_unless_cut(before, self._lead)
        before += source.taken if lead else ""
        while True:
            head = yield from source.expect(*self._heads)
            if head is None:
                return self._text_unless_cut(before, *self._heads)
            tool = self._heads[head]
            self._sink.start_call(tool.name)
            if not (yield from _read_arguments(source, self._sink, self._syntax, tool)):
                source.take()
                return ""
            self._sink.end_call()
            marker = yield from source.expect(*self._next)
            if marker is None:
                return self._text_unless_cut("", *self._next)
            if marker in self._ends:
                return ""
            before = source.taken

    def _text_unless_cut(self, before: str, *expected: str) -> str:
        """A call cut off before its name was complete is nothing to show."""
        if self._source.is_over and self._source.begins(*expected):
            self._source.take()
            return ""
        return before


def _read_arguments(source: Source, sink: Sink, syntax: CallSyntax, tool: Tool) -> Reading[bool]:
    """Read the arguments and the text after them; True when the call is complete."""
    unique: ArgumentSink = sink if tool.kind is ToolKind.CUSTOM else UniqueArguments(sink)
    if syntax.style in (ArgumentStyle.TAGS, ArgumentStyle.MARKED):
        assert syntax.parameter is not None, "this style says how a parameter is written"
        return (yield from read_elements(source, unique, syntax, tool))
    if is_raw_input(tool):
        if syntax.style is ArgumentStyle.PYTHON and (yield from source.expect(f"{INPUT}=")) is None and source.is_over:
            return False
        return (yield from _read_raw(source, sink, syntax))
    match syntax.style:
        case ArgumentStyle.JSON:
            is_whole = yield from read_json(source, sink, tool)
        case ArgumentStyle.PYTHON:
            is_whole = yield from read_keywords(source, unique, syntax, tool)
        case ArgumentStyle.TAGS | ArgumentStyle.MARKED:
            raise AssertionError("read above")
        case _:
            assert_never(syntax.style)
    # Where the text after the arguments does not follow, the call is over all the same.
    return is_whole and ((yield from source.expect(syntax.after)) is not None or not source.is_over)


def _read_raw(source: Source, sink: Sink, syntax: CallSyntax) -> Reading[bool]:
    finder = Finder((syntax.after or syntax.before_name).partition(WORD)[0])
    while True:
        text, marker = source.take_until(finder, awaits_marker=True)
        sink.arguments(text)
        if marker is not None:
            source.put_back(len(marker))
            return not syntax.after or (yield from source.expect(syntax.after)) is not None or not source.is_over
        if source.is_over:
            return not syntax.after and not source.is_cut
        yield


class TentativeReader:
    """Calls where a grammar allows them and any other text too: handed on once the row of them is complete."""

    def __init__(
        self, source: Source, sink: Sink, alphabet: Alphabet, syntax: CallSyntax, tools: Mapping[str, Tool]
    ) -> None:
        self._source = source
        self._sink = sink
        self._alphabet = alphabet
        self._syntax = syntax
        self._tools = tools
        self._num_failures = 0

    def read(self) -> Reading[str | None]:
        """The calls of a row; gives what was read at last, the opening included, if that is text.

        None, and nothing read, if no call follows.
        """
        if self._num_failures == _MAX_FAILURES:
            return None
        scratch = Sink(self._alphabet)
        self._source.keep()
        text = yield from BoundReader(self._source, scratch, self._syntax, self._tools).read()
        pieces = scratch.take()
        if not self._are_calls(pieces):
            self._num_failures += 1
            self._source.rewind()
            return None
        self._source.let_go()
        self._hand_on(pieces)
        return text

    def _are_calls(self, pieces: Sequence[LabelledPiece]) -> bool:
        """Whether there is a complete call, and every complete one has an object of arguments."""
        name, arguments, num_ended = "", "", 0
        for piece in pieces:
            match piece:
                case CallStarted():
                    name, arguments = piece.name, ""
                case CallDelta():
                    arguments += piece.arguments
                case CallEnded():
                    num_ended += 1
                    if self._tools[name].kind is ToolKind.FUNCTION and not _is_object(arguments):
                        return False
        return num_ended > 0

    def _hand_on(self, pieces: Sequence[LabelledPiece]) -> None:
        for piece in pieces:
            match piece:
                case CallStarted():
                    self._sink.start_call(piece.name)
                case CallDelta():
                    self._sink.arguments(piece.arguments)
                case CallEnded():
                    self._sink.end_call()
                case VisibleText() | ReasoningDelta():
                    raise AssertionError("a row of calls holds nothing else")
                case _:
                    assert_never(piece)


class UnboundReader:
    """Calls that no grammar held to a syntax: the text is held from the opening to the end of a call, then read whole.

    `syntax` is the family's own, with its markers spelled out.
    """

    def __init__(
        self, source: Source, sink: Sink, alphabet: Alphabet, syntax: CallSyntax, tools: Mapping[str, Tool]
    ) -> None:
        self._source = source
        self._sink = sink
        self._alphabet = alphabet
        self._syntax = syntax
        self._tools = tools
        self._opening = alphabet.write(syntax.opening)
        self._closing = alphabet.write(_closing(syntax))

    def read(self, boundary: str = "") -> Reading[str]:
        """Hold and read calls, which do not go beyond the boundary; gives what was read, if that is text.

        A further opening outside of a string shows that the first one was text.
        """
        source = self._source
        parts = [self._opening]
        strings = _Strings(self._syntax.style)
        finder = Finder(self._closing, self._opening, boundary)
        while True:
            text, marker = source.take_until(finder)
            parts.append(text)
            strings.feed(text)
            if marker is not None and strings.in_string:
                parts.append(marker)
                strings.feed(marker)
            elif marker == self._closing:
                parts.append(marker)
                return self._judge("".join(parts))
            elif marker == self._opening and self._closing:
                source.put_back(len(marker))
                return "".join(parts)
            elif marker == boundary:
                source.put_back(len(marker))
                return self._judge("".join(parts))
            elif marker is not None:
                parts.append(marker)  # one more call of a row that only the end of the answer ends
            elif source.is_over:
                text = "".join(parts)
                # Of what was cut off, only brackets show that it is complete.
                return text if source.is_cut and not text.rstrip(SPACE).endswith(("}", "]", ")")) else self._judge(text)
            else:
                yield

    def _judge(self, text: str) -> str:
        """Hand on the calls that a held text consists of; gives the text if it is anything else."""
        body = text.removeprefix(self._opening).removesuffix(self._closing)
        if self._syntax.is_at_start:
            body = text  # the opening is part of the call
        calls = self._read_exactly(text) or read_calls(self._alphabet.spell(body), self._syntax, self._tools)
        for call in calls:
            self._sink.start_call(call.tool.name)
            self._sink.arguments(call.arguments)
            self._sink.end_call()
        return "" if calls else text

    def _read_exactly(self, text: str) -> list[ReadCall]:
        """The calls of a text that follows the family's syntax; none if it is anything else."""
        source, sink = Source(), Sink(self._alphabet)
        source.add(text.removeprefix(self._opening).rstrip(SPACE))
        source.is_over = True
        reading = BoundReader(source, sink, self._alphabet.translate(self._syntax), self._tools).read()
        try:
            while True:
                next(reading)
        except StopIteration as end:
            is_text = bool(end.value) or not source.is_empty
        calls, name, arguments = [], "", ""
        for piece in sink.take():
            match piece:
                case CallStarted():
                    name, arguments = piece.name, ""
                case CallDelta():
                    arguments += piece.arguments
                case CallEnded():
                    calls.append(ReadCall(self._tools[name], arguments))
        is_whole = all(call.tool.kind is ToolKind.CUSTOM or _is_object(call.arguments) for call in calls)
        return [] if is_text or not is_whole else calls


class _Strings:
    """Whether the held text is inside a string; only what begins like a call has any."""

    def __init__(self, style: ArgumentStyle) -> None:
        self._scan = JsonScan()
        self._follows = True if style is ArgumentStyle.PYTHON else None if style is ArgumentStyle.JSON else False

    @property
    def in_string(self) -> bool:
        return self._scan.in_string

    def feed(self, text: str) -> None:
        if self._follows is None:
            text = text.lstrip(SPACE)
            if text:
                self._follows = text[0] in "{["
        while self._follows and text:
            text = text[self._scan.feed(text) or len(text) :]


def _closing(syntax: CallSyntax) -> str:
    """The marker that ends a call, or the row of calls where that has one; nothing if only brackets do."""
    if syntax.end.strip("])}" + SPACE):
        return syntax.end
    return syntax.after.rstrip(SPACE).rpartition("\n")[2].lstrip("])}" + SPACE)


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
