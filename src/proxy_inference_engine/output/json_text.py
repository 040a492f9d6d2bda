"""JSON read as it comes: where a value ends, and the text of a string. Checks nothing: a grammar did."""

import re

from proxy_inference_engine.output.labelled import Sink
from proxy_inference_engine.output.source import Finder, Source, Steps

_STRUCTURE = re.compile(r'["{}\[\]]')
_IN_STRING = re.compile(r'["\\]')
_STRING_ENDS = Finder('"', "\\")
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_HEX = re.compile("[0-9a-fA-F]{4}")


class JsonScan:
    """Follows brackets and strings through a text; takes any number of pieces."""

    __slots__ = ("_depth", "_is_escaped", "in_string")

    def __init__(self) -> None:
        self._depth = 0
        self._is_escaped = False
        self.in_string = False

    def feed(self, text: str) -> int | None:
        """Where in this piece the object or array ends that was begun first; None if it goes on."""
        at = 0
        while at < len(text):
            if self._is_escaped:
                self._is_escaped = False
                at += 1
                continue
            match = (_IN_STRING if self.in_string else _STRUCTURE).search(text, at)
            if match is None:
                return None
            at = match.end()
            if self._step(match.group()):
                return at
        return None

    def _step(self, char: str) -> bool:
        if char == '"':
            self.in_string = not self.in_string
        elif char == "\\":
            self._is_escaped = True
        elif char in "{[":
            self._depth += 1
        else:
            self._depth -= 1
            return self._depth <= 0
        return False


def pass_object(source: Source, sink: Sink) -> Steps[bool]:
    """Hand an object on as arguments, as it is; True when it is complete."""
    scan = JsonScan()
    while True:
        text = source.take()
        end = scan.feed(text)
        if end is not None:
            source.put_back(len(text) - end)
            sink.arguments(text[:end])
            return True
        sink.arguments(text)
        if source.is_over:
            return False
        yield


def pass_string(source: Source, sink: Sink) -> Steps[bool]:
    """Hand on what is left of a string whose opening quote is read, escapes as they are, with the closing quote."""
    while True:
        text, marker = source.take_until(_STRING_ENDS)
        sink.arguments(text)
        if marker == '"':
            sink.arguments(marker)
            return True
        if marker is not None:
            while source.is_empty and not source.is_over:
                yield
            sink.arguments(marker + source.take(1))
        elif source.is_over:
            return False
        else:
            yield


def decode_string(source: Source, sink: Sink) -> Steps[bool]:
    """Hand on the text of a string whose opening quote is read, never half an escape; the closing quote is read."""
    while True:
        text, marker = source.take_until(_STRING_ENDS)
        sink.arguments(text)
        if marker == '"':
            return True
        if marker is not None:
            char = yield from _unescape(source)
            if char is None:
                return False
            sink.arguments(char)
        elif source.is_over:
            return False
        else:
            yield


def _unescape(source: Source) -> Steps[str | None]:
    """The character of an escape whose backslash is read; None if it is cut off."""
    kind = yield from _read(source, 1)
    if kind != "u":
        return None if kind is None else _ESCAPES.get(kind, kind)
    high = yield from _read_code(source)
    if high is None or not 0xD800 <= high < 0xDC00:
        return None if high is None else _char(high)
    if (yield from source.expect("\\u")) is None:
        return None if source.begins("\\u") else _char(high)
    low = yield from _read_code(source)
    if low is None:
        return None
    if 0xDC00 <= low < 0xE000:
        return chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))
    return _char(high) + _char(low)


def _char(code: int) -> str:
    """Half a pair is no character."""
    return "\ufffd" if 0xD800 <= code < 0xE000 else chr(code)


def _read_code(source: Source) -> Steps[int | None]:
    digits = yield from _read(source, 4)
    if digits is None:
        return None
    return int(digits, 16) if _HEX.fullmatch(digits) else 0xFFFD


def _read(source: Source, num_chars: int) -> Steps[str | None]:
    text = source.take(num_chars)
    while len(text) < num_chars:
        if source.is_over:
            return None
        yield
        text += source.take(num_chars - len(text))
    return text
