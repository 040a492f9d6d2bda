"""Calls as a family writes them: what the parser in `output/` reads, the other way round."""

import json
from collections.abc import Sequence
from typing import Any

from proxy_inference_engine.formats.history import arguments_of
from proxy_inference_engine.formats.signature import INPUT, is_raw_input, parameters
from proxy_inference_engine.formats.syntax import ArgumentStyle, CallSyntax, Parameter
from proxy_inference_engine.formats.tags import is_raw, parameter_schema
from proxy_inference_engine.interaction import Tool, ToolCall, ToolKind


def write_calls(syntax: CallSyntax, calls: Sequence[ToolCall], tools: Sequence[Tool]) -> str:
    """All calls of one answer."""
    known = {tool.name: tool for tool in tools}
    texts = [_write_call(syntax, call, known.get(call.name)) for call in calls]
    return f"{syntax.begin}{syntax.separator.join(texts)}{syntax.end}"


def _write_call(syntax: CallSyntax, call: ToolCall, tool: Tool | None) -> str:
    name = json.dumps(call.name, ensure_ascii=False)[1:-1] if syntax.before_name.endswith('"') else call.name
    return f"{syntax.before_name}{name}{syntax.between}{_write_arguments(syntax, call, tool)}{syntax.after}"


def _write_arguments(syntax: CallSyntax, call: ToolCall, tool: Tool | None) -> str:
    if call.kind is ToolKind.CUSTOM and is_raw_input(tool):
        return _write_raw(syntax, call.arguments)
    arguments = arguments_of(call)
    if arguments is None:
        return call.arguments  # broken as the model wrote it
    if syntax.style is ArgumentStyle.PYTHON:
        return ", ".join(f"{key}={_literal(value)}" for key, value in arguments.items())
    if syntax.parameter is None:
        return _json(syntax, arguments)
    return "".join(
        _element(syntax.parameter, key, value if _is_raw(tool, key, value) else _json(syntax, value))
        for key, value in arguments.items()
    )


def _write_raw(syntax: CallSyntax, text: str) -> str:
    if syntax.style is ArgumentStyle.PYTHON:
        return f"{INPUT}={text}"
    return text if syntax.parameter is None else _element(syntax.parameter, INPUT, text)


def _element(parameter: Parameter, key: str, value: str) -> str:
    return f"{parameter.before_key}{key}{parameter.before_value}{value}{parameter.after_value}"


def _is_raw(tool: Tool | None, key: str, value: Any) -> bool:
    # Of a tool that is no longer offered no schema is known; families write its texts as they are.
    return isinstance(value, str) and (tool is None or is_raw(parameter_schema(parameters(tool), key)))


def _json(syntax: CallSyntax, value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(syntax.item_separator, syntax.key_separator))


def _literal(value: Any) -> str:
    """A Python literal whose strings are written as in JSON."""
    if value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_literal(key)}: {_literal(each)}' for key, each in value.items())}}}"
    return json.dumps(value, ensure_ascii=False)
