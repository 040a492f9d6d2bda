"""Calls that no grammar held to their syntax: the text is held from the opening to the end of a call, then read whole.

Knows where a call ends; how it is read is `tolerant`'s matter.
"""

from collections.abc import Mapping

from proxy_inference_engine.formats.syntax import ArgumentStyle, CallSyntax
from proxy_inference_engine.interaction import Tool
from proxy_inference_engine.output.alphabet import Alphabet
from proxy_inference_engine.output.json_text import JsonScan
from proxy_inference_engine.output.labelled import Sink
from proxy_inference_engine.output.source import SPACE, Finder, Source, Steps
from proxy_inference_engine.output.tolerant import read_calls


class HeldReader:
    """Reads from behind the opening on. `syntax` is the family's own, with its markers spelled out."""

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

    def read(self, boundary: str = "") -> Steps[str]:
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
        body = text.removeprefix(self._opening).removesuffix(self._closing)
        if self._syntax.is_at_start:
            body = text  # the opening is part of the call
        calls = read_calls(self._alphabet.spell(body), self._syntax, self._tools)
        for call in calls:
            self._sink.start_call(call.tool.name)
            self._sink.arguments(call.arguments)
            self._sink.end_call()
        return "" if calls else text


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
