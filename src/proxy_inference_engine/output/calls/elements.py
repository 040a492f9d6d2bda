"""Arguments one after the other, each between markers of its own, as they come; all become one JSON text.

A grammar held the text to its syntax, so nothing is checked. The input of a custom tool becomes plain text.
"""

import json
from collections.abc import Mapping
from itertools import takewhile
from typing import NamedTuple

from proxy_inference_engine.formats.signature import ToolSchema, is_raw, parameter_schema
from proxy_inference_engine.formats.syntax import WORD, ArgumentStyle, CallSyntax, Parameter
from proxy_inference_engine.interaction import Tool, ToolKind
from proxy_inference_engine.output.calls.literals import python_as_json
from proxy_inference_engine.output.calls.marked import pass_marked, pass_text
from proxy_inference_engine.output.pieces import ArgumentSink
from proxy_inference_engine.output.source import Finder, Reading, Source

_MAX_DEPTH = 64


def read_elements(source: Source, sink: ArgumentSink, syntax: CallSyntax, tool: Tool) -> Reading[bool]:
    """One parameter after the other, each between markers of its own."""
    parameter = syntax.parameter
    assert parameter is not None
    is_text = tool.kind is ToolKind.CUSTOM
    before = "{"
    next_key = parameter.before_key
    while True:
        # Where nothing stands before a key, or what the end begins with, everything but the end is one.
        is_end_first = syntax.after.startswith(next_key)
        marker = yield from source.expect(*((syntax.after, next_key) if is_end_first else (next_key, syntax.after)))
        if marker != next_key:
            break
        key = yield from source.through(Finder(_key_end(parameter)))
        if key is None:
            return False
        if not is_text:
            sink.arguments(before + _quote(key) + syntax.key_separator)
        schema = parameter_schema(tool.parameters, key)
        if not (yield from _pass_value(source, sink, syntax, _Value(key, schema, is_text))):
            return False
        before = syntax.item_separator
        next_key = parameter.separator + parameter.before_key
    if marker is None and source.is_over:
        return False
    if not is_text:
        sink.arguments("{}" if before == "{" else "}")
    return True


def _key_end(parameter: Parameter) -> str:
    """What stands between a key and its value, as far as it is the same for all values."""
    if parameter.before_text is None or parameter.before_text == parameter.after_text:
        return parameter.before_value.partition(WORD)[0]
    pairs = zip(parameter.before_value, parameter.before_text, strict=False)
    return "".join(one for one, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


class _Value(NamedTuple):
    """A value to be read; `is_text` if it is all that a custom tool is given."""

    key: str
    schema: ToolSchema
    is_text: bool = False
    depth: int = 0

    @property
    def kind(self) -> object:
        return self.schema.get("type") if isinstance(self.schema, Mapping) else None

    def child(self, key: str, *, is_item: bool) -> "_Value":
        items = self.schema.get("items") if isinstance(self.schema, Mapping) else None
        return _Value(key, items if is_item else parameter_schema(self.schema, key), depth=self.depth + 1)


def _pass_value(source: Source, sink: ArgumentSink, syntax: CallSyntax, value: _Value) -> Reading[bool]:
    parameter, is_text = syntax.parameter, value.is_text
    assert parameter is not None
    if syntax.style is ArgumentStyle.MARKED:
        return (yield from pass_marked(source, sink, parameter.before_text or "", is_text=is_text))
    end = len(_key_end(parameter))
    is_raw_value = is_text or is_raw(value.schema)
    if parameter.before_text is not None:
        marker = yield from source.expect(parameter.before_text[end:], parameter.before_value[end:])
        is_raw_value = marker == parameter.before_text[end:]
    elif end < len(parameter.before_value):
        yield from source.expect(parameter.before_value[end:])
    after = parameter.around(is_text=is_raw_value, key=value.key)[1]
    wrapping = parameter.wrapping
    if is_raw_value and wrapping is not None and (yield from source.expect(wrapping[0])) is not None:
        after = wrapping[1] + after
    if is_raw_value:
        return (yield from pass_text(source, sink, after, is_quoted=not is_text))
    if parameter.item and value.depth < _MAX_DEPTH:
        marker = yield from source.expect(after, parameter.before_key)
        if marker is not None:
            return (yield from _pass_nested(source, sink, syntax, value, after, marker))
    return (yield from _pass_word(source, sink, after))


def _pass_nested(
    source: Source, sink: ArgumentSink, syntax: CallSyntax, value: _Value, after: str, marker: str | None
) -> Reading[bool]:
    """Hand on a value that is elements itself. Its kind, or else its first key, tells an array from an object."""
    parameter = syntax.parameter
    assert parameter is not None
    is_array, before = value.kind == "array", ""
    while marker != after:
        key = None if marker is None else (yield from source.through(Finder(_key_end(parameter))))
        if key is None:
            return False
        if not before:
            is_array = is_array or (value.kind != "object" and key == parameter.item)
            before = "[" if is_array else "{"
        sink.arguments(before + ("" if is_array else _quote(key) + syntax.key_separator))
        if not (yield from _pass_value(source, sink, syntax, value.child(key, is_item=is_array))):
            return False
        before = syntax.item_separator
        if parameter.separator:
            yield from source.expect(parameter.separator)
        marker = yield from source.expect(after, parameter.before_key)
    if not before:
        sink.arguments("[" if is_array else "{")
    sink.arguments("]" if is_array else "}")
    return True


def _pass_word(source: Source, sink: ArgumentSink, after: str) -> Reading[bool]:
    """Hand on a value that is no text, up to what ends it: as it is, unless it is Python's, which some templates write.

    The first quote in it tells which.
    """
    finder = Finder(after, '"', "'")
    parts = []
    while True:
        text, marker = source.take_until(finder, awaits_marker=True)
        parts.append(text)
        if marker is not None or source.is_over:
            break
        yield
    value = "".join(parts)
    if marker == '"':
        sink.arguments(value + marker)
        return (yield from pass_text(source, sink, after, is_quoted=False))
    if marker == "'":
        rest = yield from source.through(Finder(after))
        value, marker = f"{value}'{rest or ''}", None if rest is None else after
    sink.arguments(python_as_json(value))
    return marker is not None


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
