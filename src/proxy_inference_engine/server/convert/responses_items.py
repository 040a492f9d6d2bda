"""Input items as this server keeps and lists them: with ids, contents as parts, nothing left out that is required."""

from collections.abc import Iterable, Sequence
from typing import Any, assert_never

from proxy_inference_engine.server.schemas.items import (
    AnyItem,
    CompactionItem,
    CustomCallItem,
    FunctionCallItem,
    HostedItem,
    MessageItem,
    OutputItem,
    ReasoningItem,
    ReferenceItem,
    parts_of,
    texts_of,
)

_PREFIXES = {
    "message": "msg",
    "function_call": "fc",
    "custom_tool_call": "ctc",
    "function_call_output": "fco",
    "custom_tool_call_output": "ctco",
    "reasoning": "rs",
    "compaction": "cmp",
    "compaction_summary": "cmp",
}
_FIRST = 0x8000  # items of an answer are numbered from 0


def input_items(items: Iterable[AnyItem], response_id: str) -> list[dict[str, Any]]:
    """What hosted tools left behind is not kept. An id that two items have stays with the first."""
    kept: list[dict[str, Any]] = []
    seen: set[str] = set()
    for item in items:
        if isinstance(item, HostedItem | ReferenceItem):
            continue
        wire = _wire(item)
        if wire.get("id") is None or wire["id"] in seen:
            place = f"{response_id.removeprefix('resp_')}{_FIRST + len(kept):04x}"
            wire["id"] = f"{_PREFIXES[wire['type']]}_{place}"
        seen.add(wire["id"])
        kept.append(wire)
    return kept


def num_chars(item: AnyItem) -> int:
    """How much text the model, or whoever opens what is sealed, has to go through."""
    match item:
        case MessageItem(content=content) | OutputItem(output=content):
            return sum(map(len, texts_of(content)))
        case FunctionCallItem() | CustomCallItem():
            return len(item.input)
        case ReasoningItem():
            return len(item.encrypted_content or "") + sum(len(part.text) for part in item.content or ())
        case CompactionItem():
            return len(item.encrypted_content)
        case HostedItem() | ReferenceItem():
            return 0
        case _:
            assert_never(item)


def least_bytes(item: AnyItem) -> int:
    """At least so many it takes to keep an item: told without writing it out."""
    match item:
        case MessageItem(content=content) | OutputItem(output=content):
            return sum(len(part if isinstance(part, str) else part.image_url) for part in parts_of(content))
        case _:
            return num_chars(item)


def _wire(item: Any) -> dict[str, Any]:
    wire: dict[str, Any] = {**item.model_dump(exclude_none=True), "status": item.status or "completed"}
    match item:
        case MessageItem():
            wire["content"] = _parts(wire["content"], is_ours=item.role == "assistant")
        case OutputItem() if not isinstance(item.output, str):
            wire["output"] = _parts(wire["output"], is_ours=False)
        case ReasoningItem(content=content) if content is not None:
            wire["content"] = [{"type": "reasoning_text", "text": part.text} for part in content]
    return wire


def _parts(content: str | Sequence[dict[str, Any]], *, is_ours: bool) -> list[dict[str, Any]]:
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return [_part(part, is_ours) for part in parts]


def _part(part: dict[str, Any], is_ours: bool) -> dict[str, Any]:
    if part["type"] == "input_image":
        return part
    if part["type"] == "refusal":
        return part if is_ours else {"type": "input_text", "text": part["refusal"]}
    if not is_ours:
        return {"type": "input_text", "text": part["text"]}
    return {"annotations": [], "logprobs": [], **part, "type": "output_text"}
