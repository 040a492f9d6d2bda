"""Arguments as Python writes them, as they come: city="Paris", days=3. All become one JSON text.

A grammar held the text to its syntax, so little is checked. The input of a custom tool becomes plain text.
"""

import json
from collections.abc import Mapping

from proxy_inference_engine.formats.signature import ToolSchema, is_raw, parameter_schema
from proxy_inference_engine.formats.syntax import CallSyntax
from proxy_inference_engine.interaction import Tool, ToolKind
from proxy_inference_engine.output.calls.literals import PYTHON_WORDS, python_as_json
from proxy_inference_engine.output.calls.strings import decode_string, pass_string, unescape
from proxy_inference_engine.output.events import CallDelta
from proxy_inference_engine.output.pieces import ArgumentSink, Sink
from proxy_inference_engine.output.source import Alphabet, Finder, Reading, Source

_EQUALS = Finder("=")
_SINGLE_ENDS = Finder("'", "\\")
_BARE_ENDS = Finder(",", ")")
_QUOTES = frozenset("\"'")
_NO_TEXTS = frozenset({"array", "boolean", "integer", "null", "number", "object"})


def read_keywords(source: Source, sink: ArgumentSink, syntax: CallSyntax, tool: Tool) -> Reading[bool]:
    """Arguments up to the closing bracket, which is left unread."""
    is_text = tool.kind is ToolKind.CUSTOM
    before = "{"
    while True:
        yield from source.skip_space()
        if source.is_empty:
            return False
        if source.next_char == ")":
            break
        key = yield from source.through(_EQUALS)
        if key is None:
            return False
        if is_text:
            is_whole = (yield from source.expect('"')) is not None and (yield from decode_string(source, sink))
        else:
            key = key.strip()
            sink.arguments(before + _quote(key) + syntax.key_separator)
            is_whole = yield from _pass_argument(source, sink, parameter_schema(tool.parameters, key))
        if not is_whole:
            return False
        before = syntax.item_separator
        yield from source.expect(",")
    if not is_text:
        sink.arguments("{}" if before == "{" else "}")
    return True


def _pass_argument(source: Source, sink: ArgumentSink, schema: ToolSchema) -> Reading[bool]:
    """Hand on one value as JSON. Some templates write a text without quotes, and everything else between them."""
    while source.is_empty and not source.is_over:
        yield
    if is_raw(schema) and source.next_char not in _QUOTES:
        text = yield from source.through(_BARE_ENDS)
        sink.arguments("" if text is None else _quote(text))
        source.put_back(0 if text is None else 1)
        return text is not None
    if source.next_char not in _QUOTES or not _is_no_text(schema):
        return (yield from _pass_literal(source, sink))
    held = Sink(Alphabet(()))
    is_whole = yield from _pass_literal(source, held)
    written = "".join(piece.arguments for piece in held.take() if isinstance(piece, CallDelta))
    sink.arguments(_unquoted(written) if is_whole else written)
    return is_whole


def _is_no_text(schema: ToolSchema) -> bool:
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    return isinstance(kind, str) and kind in _NO_TEXTS


def _unquoted(text: str) -> str:
    """What a string holds if that is a value, else the string."""
    try:
        json.loads(inner := python_as_json(json.loads(text)))
    except (ValueError, TypeError):
        return text
    return inner


def _pass_literal(source: Source, sink: ArgumentSink) -> Reading[bool]:
    """Hand on one value as JSON, up to the comma or bracket that ends it."""
    depth = 0
    while True:
        char = source.next_char
        if not char:
            if source.is_over:
                return False
            yield
        elif depth == 0 and char in ",)":
            return True
        elif char.isascii() and char.isalpha():
            word = yield from source.word()
            if source.is_over and source.is_empty:
                return False
            sink.arguments(PYTHON_WORDS.get(word, word))
        else:
            depth += (char in "[{(") - (char in "]})")
            taken = source.take(1)
            sink.arguments('"' if char == "'" else taken)
            if char == '"' and not (yield from pass_string(source, sink)):
                return False
            if char == "'" and not (yield from _pass_single(source, sink)):
                return False
            if depth == 0 and char in _QUOTES:
                return True


def _pass_single(source: Source, sink: ArgumentSink) -> Reading[bool]:
    """What is left of a string in single quotes, handed on in double ones."""
    while True:
        text, marker = source.take_until(_SINGLE_ENDS)
        sink.arguments(_quote(text)[1:-1])
        if marker == "'":
            sink.arguments('"')
            return True
        if marker is not None:
            char = yield from unescape(source)
            if char is None:
                return False
            sink.arguments(_quote(char)[1:-1])
        elif source.is_over:
            return False
        else:
            yield


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
