"""Tools and calls as models know them: functions with a JSON Schema, called with an object. Knows no wire format.

One rule for the prompt, the mask and the parser says which values the style of tags writes raw and which as JSON.
"""

import json
from collections.abc import Mapping
from typing import Any

from proxy_inference_engine.interaction import Tool, ToolCall, ToolKind

# The schema of a tool's arguments, or of one of them.
ToolSchema = Mapping[str, Any] | bool | None

INPUT = "input"  # the one parameter of a custom tool
_SYNTAX_NAMES = {"lark": "Lark grammar", "regex": "regular expression"}
_MAX_DEPTH = 64


def signature(tool: Tool) -> dict[str, Any]:
    """A tool in the shape that Hugging Face's chat templates read."""
    function = {"name": tool.name, "description": description(tool), "parameters": parameters(tool)}
    return {"type": "function", "function": function}


def description(tool: Tool) -> str:
    """What a tool does, and the grammar its input must match."""
    if tool.grammar is None:
        return tool.description
    rule = f"The input must match this {_SYNTAX_NAMES[tool.grammar.syntax]}:\n{tool.grammar.definition}"
    return f"{tool.description}\n{rule}" if tool.description else rule


def parameters(tool: Tool) -> dict[str, Any]:
    """The JSON Schema of a tool's arguments."""
    if tool.kind is ToolKind.CUSTOM:
        return {"type": "object", "properties": {INPUT: {"type": "string"}}, "required": [INPUT]}
    if tool.parameters is None:
        return {"type": "object", "properties": {}}
    return dict(tool.parameters)


def is_raw_input(tool: Tool | None) -> bool:
    """A custom tool bound by a Lark grammar takes its text as it is, not as a JSON string."""
    return tool is not None and tool.grammar is not None and tool.grammar.syntax == "lark"


def is_raw(schema: ToolSchema) -> bool:
    """True when the top level of the schema (`type`, `enum`, `const`; nothing is followed) allows only strings."""
    if not isinstance(schema, Mapping):
        return False
    kind, values = schema.get("type"), schema.get("enum")
    if kind == "string" or (isinstance(kind, list | tuple) and list(kind) == ["string"]):
        return True
    if isinstance(values, list | tuple) and values and all(isinstance(value, str) for value in values):
        return True
    return isinstance(schema.get("const"), str)


def parameter_schema(parameters: ToolSchema, key: str) -> ToolSchema:
    """The schema of one argument: its own in `properties`, else the one of `additionalProperties`."""
    if not isinstance(parameters, Mapping):
        return None
    properties = parameters.get("properties")
    if isinstance(properties, Mapping) and key in properties:
        own: ToolSchema = properties[key]
        return own
    rest: ToolSchema = parameters.get("additionalProperties")
    return rest


def arguments_of(call: ToolCall) -> dict[str, Any] | None:
    """A call's arguments as an object; None where their text is no object that can be walked and encoded."""
    if call.kind is ToolKind.CUSTOM:
        return {INPUT: call.arguments}
    if not call.arguments.strip():
        return {}
    try:
        value = json.loads(call.arguments, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and _is_shallow(value) and _is_text(value) else None


def _is_shallow(value: Any) -> bool:
    """Everything that walks through arguments recurses, so how deep that may go is decided here."""
    level = [value]
    for _ in range(_MAX_DEPTH):
        parts = [each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list)]
        level = [each for part in parts for each in part]
    return not level


def _is_text(value: Any) -> bool:
    """An escape in JSON can spell half a surrogate pair, which no tokenizer takes."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")
