"""Tools for a model whose chat template reads none: described, called and answered in plain turns.

Calls are written as the family writes them, so that the parser in `output/` can read them.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from proxy_inference_engine.formats.signature import (
    INPUT,
    arguments_of,
    is_raw,
    is_raw_input,
    parameter_schema,
    parameters,
    signature,
)
from proxy_inference_engine.formats.stubs import python_stub
from proxy_inference_engine.formats.syntax import WORD, ArgumentStyle, CallSyntax, Parameter
from proxy_inference_engine.interaction import Content, ContentType, Interaction, Role, Tool, ToolCall, ToolKind

_ARGUMENTS = {ArgumentStyle.JSON: '{"parameter": value}', ArgumentStyle.PYTHON: "parameter=value"}


@dataclass(frozen=True, slots=True)
class Convention:
    """How one family's calls and results are written where its template writes neither."""

    calls: CallSyntax
    result_tags: tuple[str, str]

    def describe(self, tools: Sequence[Tool]) -> str:
        """The tools and how to call them, for the instructions."""
        before, after = introduction(self.calls)
        write = python_stub if self.calls.style is ArgumentStyle.PYTHON else _compact
        return "\n".join([before, *map(write, tools)]) + after

    def write_history(
        self, turns: Sequence[Interaction], tools: Sequence[Tool], *, keeps_results: bool = False
    ) -> list[Interaction]:
        """Calls become text of the assistant, results that follow each other one turn of the user, unless they stay."""
        written: list[Interaction] = []
        for is_result, group in groupby(turns, key=lambda turn: turn.role is Role.TOOL):
            if is_result and keeps_results:
                written += group
            elif is_result:
                results = list(group)
                contents = tuple(part for result in results for part in self._result(result))
                written.append(replace(results[0], role=Role.USER, content=contents, metadata={}))
            else:
                written += [self._with_calls(turn, tools) if turn.calls else turn for turn in group]
        return written

    def _result(self, result: Interaction) -> list[Content]:
        """A result between its tags, its images where they stood among its texts."""
        before, after = self.result_tags
        parts = list(result.content)
        if all(part.type is ContentType.TEXT for part in parts):
            return [Content.of(f"{before}{result.text}{after}")]
        lead = parts.pop(0).text if parts[0].type is ContentType.TEXT else ""
        last = parts.pop().text if parts[-1].type is ContentType.TEXT else ""
        return [Content.of(f"{before}{lead}"), *parts, Content.of(f"{last}{after}")]

    def _with_calls(self, turn: Interaction, tools: Sequence[Tool]) -> Interaction:
        calls = write_calls(self.calls, turn.calls, tools)
        text = f"{turn.text}\n{calls}" if turn.text.strip() else calls
        metadata = {name: value for name, value in turn.metadata.items() if name != "tool_calls"}
        others = (part for part in turn.content if part.type is not ContentType.TEXT)
        return replace(turn, content=(Content.of(text), *others), metadata=metadata)


def introduction(calls: CallSyntax) -> tuple[str, str]:
    """What stands before and after the list of tools. Short, because it is computed with every conversation."""
    many = " Several calls may follow each other." if calls.can_repeat else ""
    return (
        "You can call these functions:\n<tools>",
        "\n</tools>\n"
        f"To call one, write exactly this, with its name and arguments:\n{_example(calls)}\n"
        f"Call one only where it helps.{many} Its result comes in the next message.",
    )


def _example(calls: CallSyntax) -> str:
    arguments = _ARGUMENTS.get(calls.style, "")
    if calls.parameter is not None:
        arguments = _element(calls, "parameter", "value", is_text=True)
    example = f"{calls.begin}{calls.before_name}name{calls.between}{arguments}{calls.after}{calls.end}"
    return example.replace(WORD, "0")


def _compact(tool: Tool) -> str:
    """A tool's signature on one line, without what says nothing."""
    function = signature(tool)["function"]
    return json.dumps({key: value for key, value in function.items() if value}, ensure_ascii=False)


def write_calls(syntax: CallSyntax, calls: Sequence[ToolCall], tools: Sequence[Tool]) -> str:
    """All calls of one answer, as the family writes them."""
    known = {tool.name: tool for tool in tools}
    texts = [_write_call(syntax, call, known.get(call.name)) for call in calls]
    return f"{syntax.begin}{syntax.separator.join(texts)}{syntax.end}"


def _write_call(syntax: CallSyntax, call: ToolCall, tool: Tool | None) -> str:
    name = json.dumps(call.name, ensure_ascii=False)[1:-1] if syntax.before_name.endswith('"') else call.name
    before, between, after = (text.replace(WORD, "0") for text in (syntax.before_name, syntax.between, syntax.after))
    return f"{before}{name}{between}{_write_arguments(syntax, call, tool)}{after}"


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
    return syntax.parameter.separator.join(
        _element(syntax, key, value, is_text=_is_raw(tool, key, value)) for key, value in arguments.items()
    )


def _write_raw(syntax: CallSyntax, text: str) -> str:
    if syntax.style is ArgumentStyle.PYTHON:
        return f"{INPUT}={text}"
    return text if syntax.parameter is None else _element(syntax, INPUT, text, is_text=True)


def _element(syntax: CallSyntax, key: str, value: Any, *, is_text: bool) -> str:
    parameter = syntax.parameter
    assert parameter is not None, "this style says how a parameter is written"
    if syntax.style is ArgumentStyle.MARKED:
        return f"{parameter.before_key}{key}{parameter.before_value}{_marked(parameter, value)}{parameter.after_value}"
    before, after = parameter.around(is_text=is_text, key=key)
    return f"{parameter.before_key}{key}{before}{value if is_text else _json(syntax, value)}{after}"


def _marked(parameter: Parameter, value: Any) -> str:
    """A value with its strings between marks."""
    if isinstance(value, str):
        return f"{parameter.before_text}{value}{parameter.after_text}"
    if isinstance(value, list):
        return f"[{','.join(_marked(parameter, each) for each in value)}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{key}:{_marked(parameter, each)}' for key, each in value.items())}}}"
    return json.dumps(value)


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
