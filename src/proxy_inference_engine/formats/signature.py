"""A tool as models know it: a function with a JSON Schema. Knows nothing of any wire format."""

from typing import Any

from proxy_inference_engine.interaction import Tool, ToolKind

INPUT = "input"  # the one parameter of a custom tool
_SYNTAX_NAMES = {"lark": "Lark grammar", "regex": "regular expression"}


def signature(tool: Tool) -> dict[str, Any]:
    """In the shape that Hugging Face's chat templates read."""
    function = {"name": tool.name, "description": description(tool), "parameters": parameters(tool)}
    return {"type": "function", "function": function}


def description(tool: Tool) -> str:
    if tool.grammar is None:
        return tool.description
    rule = f"The input must match this {_SYNTAX_NAMES[tool.grammar.syntax]}:\n{tool.grammar.definition}"
    return f"{tool.description}\n{rule}" if tool.description else rule


def parameters(tool: Tool) -> dict[str, Any]:
    if tool.kind is ToolKind.CUSTOM:
        return {"type": "object", "properties": {INPUT: {"type": "string"}}, "required": [INPUT]}
    if tool.parameters is None:
        return {"type": "object", "properties": {}}
    return dict(tool.parameters)


def is_raw_input(tool: Tool | None) -> bool:
    """A custom tool bound by a Lark grammar takes its text as it is, not as a JSON string."""
    return tool is not None and tool.grammar is not None and tool.grammar.syntax == "lark"
