"""Calls that a grammar held to their family's syntax, streamed as they come. Knows nothing of the text around them."""

from collections.abc import Mapping

from proxy_inference_engine.formats.syntax import CallSyntax
from proxy_inference_engine.interaction import Tool
from proxy_inference_engine.output.arguments import read_arguments
from proxy_inference_engine.output.labelled import Sink
from proxy_inference_engine.output.source import Source, Steps


class CallReader:
    """Reads from behind the opening on. What does not follow the syntax there was no call."""

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
        self._following = dict.fromkeys(following)

    def read(self) -> Steps[str]:
        """The calls of a row, to its end; gives what was read at last, the opening included, if that is text."""
        source = self._source
        before = self._syntax.opening
        lead = yield from source.expect(self._lead)
        if lead is None:
            return self._text_unless_cut(before, self._lead)
        before += lead
        while True:
            head = yield from source.expect(*self._heads)
            if head is None:
                return self._text_unless_cut(before, *self._heads)
            tool = self._heads[head]
            self._sink.start_call(tool.name)
            if not (yield from read_arguments(source, self._sink, self._syntax, tool)):
                source.take()
                return ""
            self._sink.end_call()
            marker = yield from source.expect(*self._following, *self._ends)
            if marker is None:
                return self._text_unless_cut("", *self._following, *self._ends)
            if marker in self._ends:
                return ""
            before = marker

    def _text_unless_cut(self, before: str, *expected: str) -> str:
        """A call cut off before its name was complete is nothing to show."""
        if self._source.is_over and self._source.begins(*expected):
            self._source.take()
            return ""
        return before
