"""Tools for a model whose chat template reads none: described, called and answered in plain turns."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from proxy_inference_engine.formats.history import calls_of
from proxy_inference_engine.formats.signature import signature
from proxy_inference_engine.formats.syntax import ArgumentStyle, CallSyntax
from proxy_inference_engine.formats.writing import write_calls
from proxy_inference_engine.interaction import Content, ContentType, Interaction, Role, Tool

_ARGUMENTS = {ArgumentStyle.JSON: '{"parameter": value}', ArgumentStyle.PYTHON: "parameter=value"}


@dataclass(frozen=True, slots=True)
class Convention:
    calls: CallSyntax
    result_tags: tuple[str, str]

    def describe(self, tools: Sequence[Tool]) -> str:
        before, after = introduction(self.calls)
        return "\n".join([before, *map(_compact, tools)]) + after

    def write_history(self, turns: Sequence[Interaction], tools: Sequence[Tool]) -> list[Interaction]:
        """Calls become text of the assistant, results that follow each other one turn of the user."""
        written: list[Interaction] = []
        for is_result, group in groupby(turns, key=lambda turn: turn.role is Role.TOOL):
            if is_result:
                written.append(self._results(list(group)))
            else:
                written += [self._with_calls(turn, tools) if calls_of(turn) else turn for turn in group]
        return written

    def _results(self, results: Sequence[Interaction]) -> Interaction:
        contents = [part for result in results for part in self._result(result)]
        return replace(results[0], role=Role.USER, content=tuple(contents), metadata={})

    def _result(self, result: Interaction) -> list[Content]:
        """Between its tags, with everything in its place."""
        before, after = self.result_tags
        parts = list(result.content)
        if all(part.type is ContentType.TEXT for part in parts):
            return [Content.of(f"{before}{result.text}{after}")]
        lead = parts.pop(0).text if parts[0].type is ContentType.TEXT else ""
        last = parts.pop().text if parts[-1].type is ContentType.TEXT else ""
        return [Content.of(f"{before}{lead}"), *parts, Content.of(f"{last}{after}")]

    def _with_calls(self, turn: Interaction, tools: Sequence[Tool]) -> Interaction:
        calls = write_calls(self.calls, calls_of(turn), tools)
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
        tag = calls.parameter
        arguments = f"{tag.before_key}parameter{tag.before_value}value{tag.after_value}"
    return f"{calls.begin}{calls.before_name}name{calls.between}{arguments}{calls.after}{calls.end}"


def _compact(tool: Tool) -> str:
    function = signature(tool)["function"]
    return json.dumps({key: value for key, value in function.items() if value}, ensure_ascii=False)
