"""JSON in the text of an answer, as it comes. A grammar held it to its syntax, so nothing is checked."""

import re

from proxy_inference_engine.formats.signature import INPUT
from proxy_inference_engine.interaction import Tool, ToolKind
from proxy_inference_engine.output.pieces import ArgumentSink
from proxy_inference_engine.output.source import Finder, Reading, Source

_STRUCTURE = re.compile(r'["{}\[\]]')
_MEMBERS = re.compile(r'["{}\[\],]')
_IN_STRING = re.compile(r'["\\]')
_STRING_ENDS = Finder('"', "\\")
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_HEX = re.compile("[0-9a-fA-F]{4}")


def read_json(source: Source, sink: ArgumentSink, tool: Tool) -> Reading[bool]:
    """An object of arguments, or of nothing but the input of a custom tool."""
    if tool.kind is ToolKind.FUNCTION:
        return (yield from pass_object(source, sink))
    for text in ("{", f'"{INPUT}"', ":", '"'):
        yield from source.skip_space()
        if (yield from source.expect(text)) is None:
            return not source.is_over
    if not (yield from decode_string(source, sink)):
        return False
    yield from source.skip_space()
    return (yield from source.expect("}")) is not None or not source.is_over


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


class UniqueKeys:
    """An object's text without the members whose key it has had: no grammar remembers keys that a schema leaves open.

    Takes any number of pieces. The start of a member is held until its key is known.
    """

    __slots__ = ("_awaits_key", "_held", "_in_string", "_is_escaped", "_key", "_seen", "_skipped_depth")

    def __init__(self) -> None:
        self._seen: list[set[str] | None] = []  # of each object that is open; None: an array
        self._awaits_key = self._in_string = self._is_escaped = False
        self._held = ""
        self._key: str | None = None  # while one is read
        self._skipped_depth = 0  # of the object whose member is left out

    def feed(self, text: str) -> tuple[str, int | None]:
        """What is to be shown of this piece, and where in it the object ends; None if it goes on."""
        shown: list[str] = []
        at = 0
        while at < len(text):
            if self._is_escaped:
                self._is_escaped, end, char = False, at + 1, ""
            else:
                match = (_IN_STRING if self._in_string else _MEMBERS).search(text, at)
                end, char = (len(text), "") if match is None else (match.end(), match.group())
            if char == ",":
                self._write(shown, text[at : end - 1])
                self._next_member(shown)
            else:
                self._write(shown, text[at:end], char)
            at = end
            if char and not self._seen and not self._in_string:
                return "".join(shown), at
        return "".join(shown), None

    def _write(self, shown: list[str], part: str, char: str = "") -> None:
        if char in ("}", "]") and self._skipped_depth == len(self._seen):
            part, self._skipped_depth = char, 0
        if self._key is not None:
            self._key += part
        if self._skipped_depth:
            pass
        elif self._awaits_key and char not in ("}", "]"):
            self._held += part
        else:
            shown.append(self._held + part)
            self._held = ""
        self._step(shown, char)

    def _step(self, shown: list[str], char: str) -> None:
        if char == "\\":
            self._is_escaped = True
        elif char == '"':
            self._in_string = not self._in_string
            if not self._in_string and self._key is not None:
                self._end_key(shown)
            elif self._in_string and self._awaits_key:
                self._key = '"'
        elif char in ("{", "["):
            # Its own text is shown, its first member is held.
            if self._awaits_key and not self._skipped_depth:
                shown.append(self._held)
                self._held = ""
            self._seen.append(set() if char == "{" else None)
            self._awaits_key = char == "{"
        elif char in ("}", "]"):
            self._seen.pop()
            self._awaits_key = False

    def _next_member(self, shown: list[str]) -> None:
        if self._skipped_depth == len(self._seen):
            self._skipped_depth = 0
        self._awaits_key = self._seen[-1] is not None
        if self._skipped_depth:
            return
        if self._awaits_key:
            self._held += ","
        else:
            shown.append(",")

    def _end_key(self, shown: list[str]) -> None:
        key, seen = self._key or "", self._seen[-1]
        self._key, self._awaits_key = None, False
        assert seen is not None, "only objects have keys"
        if self._skipped_depth:
            return
        if key in seen:
            self._skipped_depth, self._held = len(self._seen), ""
            return
        seen.add(key)
        shown.append(self._held)
        self._held = ""


class UniqueArguments:
    """Hands the JSON of a call's arguments on, each key once, whatever style it is read from."""

    def __init__(self, sink: ArgumentSink) -> None:
        self._sink = sink
        self._keys = UniqueKeys()
        self._is_over = False

    def arguments(self, text: str) -> None:
        if not self._is_over:
            shown, end = self._keys.feed(text)
            self._sink.arguments(shown)
            self._is_over, text = end is not None, text[len(text) if end is None else end :]
        # What comes after an object's end tells that it was none.
        self._sink.arguments(text)


def pass_object(source: Source, sink: ArgumentSink) -> Reading[bool]:
    """Hand an object on as arguments, each key once; True when it is complete."""
    keys = UniqueKeys()
    while True:
        text = source.take()
        shown, end = keys.feed(text)
        sink.arguments(shown)
        if end is not None:
            source.put_back(len(text) - end)
            return True
        if source.is_over:
            return False
        yield


def pass_string(source: Source, sink: ArgumentSink) -> Reading[bool]:
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


def decode_string(source: Source, sink: ArgumentSink) -> Reading[bool]:
    """Hand on the text of a string whose opening quote is read, never half an escape; the closing quote is read."""
    while True:
        text, marker = source.take_until(_STRING_ENDS)
        sink.arguments(text)
        if marker == '"':
            return True
        if marker is not None:
            char = yield from unescape(source)
            if char is None:
                return False
            sink.arguments(char)
        elif source.is_over:
            return False
        else:
            yield


def unescape(source: Source) -> Reading[str | None]:
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
    """The character of a code; half a surrogate pair is none, so it becomes U+FFFD."""
    return "\ufffd" if 0xD800 <= code < 0xE000 else chr(code)


def _read_code(source: Source) -> Reading[int | None]:
    digits = yield from _read(source, 4)
    if digits is None:
        return None
    return int(digits, 16) if _HEX.fullmatch(digits) else 0xFFFD


def _read(source: Source, num_chars: int) -> Reading[str | None]:
    text = source.take(num_chars)
    while len(text) < num_chars:
        if source.is_over:
            return None
        yield
        text += source.take(num_chars - len(text))
    return text
