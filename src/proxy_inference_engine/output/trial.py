"""Calls where a grammar allows them and any other text too (in reasoning that only text ends): tried, then believed.

Knows how a trial ends; what a call looks like is `calls`' matter.
"""

import json
from collections.abc import Mapping, Sequence
from typing import assert_never

from proxy_inference_engine.formats.syntax import CallSyntax
from proxy_inference_engine.interaction import Tool, ToolKind
from proxy_inference_engine.output.alphabet import Alphabet
from proxy_inference_engine.output.calls import CallReader
from proxy_inference_engine.output.events import CallDelta, CallEnded, CallStarted, ReasoningDelta
from proxy_inference_engine.output.labelled import Piece, Sink, Text
from proxy_inference_engine.output.source import Source, Steps

# Each trial that fails reads its text once more; a bound keeps the work of an answer linear.
_MAX_FAILURES = 16


class TrialReader:
    """Reads from behind the opening on, and hands calls on when the row of them is complete."""

    def __init__(
        self, source: Source, sink: Sink, alphabet: Alphabet, syntax: CallSyntax, tools: Mapping[str, Tool]
    ) -> None:
        self._source = source
        self._sink = sink
        self._alphabet = alphabet
        self._syntax = syntax
        self._tools = tools
        self._num_failures = 0

    def read(self) -> Steps[str | None]:
        """As a CallReader does; None, and nothing read, if no call follows."""
        if self._num_failures == _MAX_FAILURES:
            return None
        scratch = Sink(self._alphabet)
        self._source.keep()
        text = yield from CallReader(self._source, scratch, self._syntax, self._tools).read()
        pieces = scratch.take()
        if not self._are_calls(pieces):
            self._num_failures += 1
            self._source.rewind()
            return None
        self._source.let_go()
        self._hand_on(pieces)
        return text

    def _are_calls(self, pieces: Sequence[Piece]) -> bool:
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

    def _hand_on(self, pieces: Sequence[Piece]) -> None:
        for piece in pieces:
            match piece:
                case CallStarted():
                    self._sink.start_call(piece.name)
                case CallDelta():
                    self._sink.arguments(piece.arguments)
                case CallEnded():
                    self._sink.end_call()
                case Text() | ReasoningDelta():
                    raise AssertionError("a row of calls holds nothing else")
                case _:
                    assert_never(piece)


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
