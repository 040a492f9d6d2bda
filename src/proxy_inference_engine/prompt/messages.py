"""Turns and tools in the shape that Hugging Face's chat templates read. Knows no template."""

import json
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from proxy_inference_engine.formats import Format
from proxy_inference_engine.formats.history import arguments_of, calls_of
from proxy_inference_engine.formats.signature import signature
from proxy_inference_engine.interaction import ContentType, Interaction, Tool, ToolCall
from proxy_inference_engine.prompt.marks import Message
from proxy_inference_engine.prompt.pictures import has_images

_FIELDS = ("name", "tool_call_id")  # of an interaction, read by templates


def make_message(turn: Interaction, format: Format, *, has_parts: bool = False) -> Message:
    """`has_parts`: the template wants parts also where there are no images."""
    content: Any = _parts(turn) if has_parts or has_images(turn) else turn.text
    message = {"role": turn.role.value, "content": content}
    message |= {name: turn.metadata[name] for name in _FIELDS if name in turn.metadata}
    calls, reasoning = calls_of(turn), turn.metadata.get("reasoning_content")
    if reasoning:
        message[format.reasoning_field] = reasoning
        if calls and turn.text and format.is_reasoning_alone:
            message |= {"content": "", format.reasoning_field: f"{reasoning}\n\n{turn.text}"}
    return message | ({"tool_calls": [_call(call, format) for call in calls]} if calls else {})


def _parts(turn: Interaction) -> list[dict[str, str]]:
    """Text and images in their order; texts beside each other are one, as in a turn without images."""
    parts: list[dict[str, str]] = []
    for kind, group in groupby(turn.content, key=lambda part: part.type):
        run = list(group)
        if kind is ContentType.TEXT:
            parts.append({"type": "text", "text": "\n".join(part.text for part in run)})
        else:
            parts += [{"type": "image"} for _ in run]
    return parts


def make_tools(tools: Sequence[Tool]) -> list[dict[str, Any]] | None:
    """None for none: templates ask whether there are tools in many ways, and that passes all of them."""
    return [signature(tool) for tool in tools] or None


def _call(call: ToolCall, format: Format) -> dict[str, Any]:
    arguments: dict[str, Any] | str | None = arguments_of(call)
    if arguments is None:
        arguments = call.arguments
    elif format.has_text_arguments:
        arguments = json.dumps(arguments, ensure_ascii=False)
    return {"type": "function", "id": call.id, "function": {"name": call.name, "arguments": arguments}}
