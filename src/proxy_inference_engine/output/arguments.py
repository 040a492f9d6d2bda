"""A call's arguments, in the styles families write them, as they come; each becomes one JSON text.

A grammar held the text to its syntax, so nothing is checked. The input of a custom tool becomes plain text.
"""

import json
from typing import assert_never

from proxy_inference_engine.formats.signature import INPUT, is_raw_input
from proxy_inference_engine.formats.syntax import ArgumentStyle, CallSyntax, Parameter
from proxy_inference_engine.formats.tags import is_raw, parameter_schema
from proxy_inference_engine.interaction import Tool, ToolKind
from proxy_inference_engine.output.json_text import decode_string, pass_object, pass_string
from proxy_inference_engine.output.labelled import Sink
from proxy_inference_engine.output.source import Finder, Source, Steps

_PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}
_EQUALS = Finder("=")


def read_arguments(source: Source, sink: Sink, syntax: CallSyntax, tool: Tool) -> Steps[bool]:
    """Read the arguments and the text after them; True when the call is complete."""
    if syntax.style is ArgumentStyle.TAGS:
        assert syntax.parameter is not None, "the style of tags says how a parameter is written"
        return (yield from _read_tags(source, sink, syntax, tool))
    if is_raw_input(tool):
        if syntax.style is ArgumentStyle.PYTHON and (yield from source.expect(f"{INPUT}=")) is None and source.is_over:
            return False
        return (yield from _read_raw(source, sink, syntax))
    match syntax.style:
        case ArgumentStyle.JSON:
            is_whole = yield from read_json(source, sink, tool)
        case ArgumentStyle.PYTHON:
            is_whole = yield from _read_python(source, sink, syntax, tool)
        case _:
            assert_never(syntax.style)
    return is_whole and (yield from _is_closed(source, syntax.after))


def read_json(source: Source, sink: Sink, tool: Tool) -> Steps[bool]:
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


def _is_closed(source: Source, after: str) -> Steps[bool]:
    """Read what follows the arguments. Where it does not follow, the call is over all the same."""
    return (yield from source.expect(after)) is not None or not source.is_over


def _read_raw(source: Source, sink: Sink, syntax: CallSyntax) -> Steps[bool]:
    finder = Finder(syntax.after or syntax.before_name)
    while True:
        text, marker = source.take_until(finder, awaits_marker=True)
        sink.arguments(text)
        if marker is not None:
            source.put_back(0 if syntax.after else len(marker))
            return True
        if source.is_over:
            return not syntax.after and not source.is_cut
        yield


def _read_tags(source: Source, sink: Sink, syntax: CallSyntax, tool: Tool) -> Steps[bool]:
    parameter = syntax.parameter
    assert parameter is not None
    is_text = tool.kind is ToolKind.CUSTOM
    before = "{"
    while True:
        marker = yield from source.expect(parameter.before_key, syntax.after)
        if marker != parameter.before_key:
            break
        key = yield from source.through(Finder(parameter.before_value))
        if key is None:
            return False
        if not is_text:
            sink.arguments(before + _quote(key) + syntax.key_separator)
        is_quoted = not is_text and is_raw(parameter_schema(tool.parameters, key))
        if not (yield from _pass_value(source, sink, parameter, is_quoted)):
            return False
        before = syntax.item_separator
    if marker is None and source.is_over:
        return False
    if not is_text:
        sink.arguments("{}" if before == "{" else "}")
    return True


def _pass_value(source: Source, sink: Sink, parameter: Parameter, is_quoted: bool) -> Steps[bool]:
    finder = Finder(parameter.after_value)
    sink.arguments('"' if is_quoted else "")
    while True:
        text, marker = source.take_until(finder, awaits_marker=True)
        sink.arguments(_quote(text)[1:-1] if is_quoted else text)
        if marker is not None:
            sink.arguments('"' if is_quoted else "")
            return True
        if source.is_over:
            return False
        yield


def _read_python(source: Source, sink: Sink, syntax: CallSyntax, tool: Tool) -> Steps[bool]:
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
            sink.arguments(before + _quote(key.strip()) + syntax.key_separator)
            is_whole = yield from _pass_literal(source, sink)
        if not is_whole:
            return False
        before = syntax.item_separator
        yield from source.expect(",")
    if not is_text:
        sink.arguments("{}" if before == "{" else "}")
    return True


def _pass_literal(source: Source, sink: Sink) -> Steps[bool]:
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
            sink.arguments(_PYTHON_WORDS.get(word, word))
        else:
            depth += (char in "[{(") - (char in "]})")
            sink.arguments(source.take(1))
            if char == '"' and not (yield from pass_string(source, sink)):
                return False


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
