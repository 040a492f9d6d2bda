"""A tool as Python code without a body: what models that call in Python were taught to read."""

from collections.abc import Mapping
from typing import Any

from proxy_inference_engine.formats.signature import description, parameters
from proxy_inference_engine.interaction import Tool

_TYPES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "object": "dict", "null": "None"}
_INDENT = "    "


def python_stub(tool: Tool) -> str:
    """The head of a function, with what its description and its parameters say. Required parameters come first."""
    schema = parameters(tool)
    ordered = {name: schema["properties"][name] for name in required_first(tool)}
    needed = schema.get("required") or ()
    head = ", ".join(_parameter(name, each, name in needed) for name, each in ordered.items())
    return "\n".join([f"def {tool.name}({head}):", *_docstring(tool, ordered)])


def required_first(tool: Tool) -> list[str]:
    """The names of a tool's parameters in the order in which arguments without a name fill them."""
    schema = parameters(tool)
    properties, required = schema.get("properties"), schema.get("required")
    names = list(properties) if isinstance(properties, Mapping) else []
    needed = set(required) if isinstance(required, list | tuple) else set()
    return sorted(names, key=lambda name: name not in needed)


def _parameter(name: str, schema: Any, is_required: bool) -> str:
    return f"{name}: {_type(schema)}" if is_required else f"{name}: {_type(schema)} = None"


def _type(schema: Any) -> str:
    if not isinstance(schema, Mapping):
        return "Any"
    values = schema.get("enum")
    if isinstance(values, list | tuple) and values:
        return f"Literal[{', '.join(map(repr, values))}]"
    kinds = schema.get("type")
    if kinds == "array":
        return f"list[{_type(schema.get('items'))}]"
    listed = kinds if isinstance(kinds, list | tuple) else [kinds]
    return " | ".join(_TYPES.get(str(kind), "Any") for kind in listed)


def _docstring(tool: Tool, properties: Mapping[str, Any]) -> list[str]:
    said = {
        name: schema["description"]
        for name, schema in properties.items()
        if isinstance(schema, Mapping) and isinstance(schema.get("description"), str) and schema["description"]
    }
    lines = description(tool).splitlines() if description(tool) else []
    if said:
        lines += ["", "Args:", *(f"{_INDENT}{name}: {' '.join(text.split())}" for name, text in said.items())]
    if not lines:
        return [f"{_INDENT}..."]
    body = "\n".join(lines).strip("\n").split("\n")
    closing = [f'{_INDENT}"""'] if len(body) > 1 else []
    body[0] = f'"""{body[0]}' if closing else f'"""{body[0]}"""'
    return [f"{_INDENT}{line}".rstrip() for line in body] + closing
