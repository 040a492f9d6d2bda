"""Stored chat completions on the wire: what is kept of an answer, and the lists and notes they come back in."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from proxy_inference_engine.server.schemas.messages import Message
from proxy_inference_engine.store import Record, too_large

T = TypeVar("T")


def chat_record(owner: str, answer: dict[str, Any], messages: Sequence[Message]) -> Record:
    """`messages` are what was answered; with the answer they make the whole conversation."""
    stored = [_message(f"{answer['id']}-{index}", message) for index, message in enumerate(messages)]
    body = {**answer, "metadata": answer.get("metadata") or {}}
    return Record("chat.completion", answer["id"], owner, answer["created"], body, {"messages": stored})


def check_size(messages: Sequence[Message], max_bytes: int) -> None:
    """Better now than after the answer. Raises TooLarge where what is asked is already more than can be kept."""
    parts = (part for message in messages for part in message.parts)
    if sum(len(part if isinstance(part, str) else part.image_url.url) for part in parts) > max_bytes:
        raise too_large(max_bytes, param="messages")


def _message(id_: str, message: Message) -> dict[str, Any]:
    """Both kinds of content have their own field: text in `content`, parts in `content_parts`."""
    fields = message.model_dump(mode="json", exclude_none=True, warnings=False)
    content = fields.pop("content", None)
    parts = content if isinstance(content, list) else None
    plain = {"content": None if parts else content, "content_parts": parts, "refusal": None, "name": None}
    return {"id": id_, **plain, **fields}


def list_body(data: Sequence[dict[str, Any]], has_more: bool) -> dict[str, Any]:
    first, last = (data[0]["id"], data[-1]["id"]) if data else (None, None)
    return {"object": "list", "data": list(data), "first_id": first, "last_id": last, "has_more": has_more}


def deleted_body(id_: str) -> dict[str, Any]:
    return {"object": "chat.completion.deleted", "id": id_, "deleted": True}


def cut_page(
    items: Sequence[T], id_of: Callable[[T], str], after: str | None, limit: int
) -> tuple[list[T], bool] | None:
    """The items after the one with the id `after`, and whether more follow; None when there is no such id."""
    start = 0
    if after is not None:
        start = next((number + 1 for number, item in enumerate(items) if id_of(item) == after), -1)
        if start < 0:
            return None
    return list(items[start : start + limit]), len(items) > start + limit
