"""What other servers and their tools leave in a history that nothing here reads: skipped, or put into words."""

from typing import Any

MEDIA = frozenset({"input_file", "input_audio", "computer_screenshot"})
_UNREADABLE = MEDIA | {"encrypted_content"}
_HOSTED = "web_search file_search computer code_interpreter image_generation local_shell shell apply_patch mcp"
# What hosted tools leave; the model here never made it and cannot read it.
HOSTED_ITEMS = frozenset(
    {"mcp_list_tools", "mcp_approval_request", "mcp_approval_response", "program", "program_output"}
    | {"configuration_update"}
    | {f"{name}_call" for name in _HOSTED.split()}
    | {f"{name}_call_output" for name in _HOSTED.split()}
)


def with_notes(content: Any) -> Any:
    """What a tool gave, the parts that cannot be read as notes: the client could not take them back, and every later
    request would fail.
    """
    return [_noted(part) for part in content] if isinstance(content, list) else content


def _noted(part: Any) -> Any:
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(kind, str) or kind not in _UNREADABLE:
        return part
    # As a field that nothing reads, the kind is named in the header.
    return {"type": "input_text", "text": f"[{kind}: it cannot be read here.]", kind: True}


def as_message(item: Any) -> Any:
    """What one of Codex's agents tells another is said by the user of that one. Who it is from stands in the text."""
    if not isinstance(item, dict) or item.get("type") != "agent_message":
        return item
    return {"type": "message", "role": "user", "id": item.get("id"), "content": with_notes(item.get("content"))}
