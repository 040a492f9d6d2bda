"""Stored chat completions: list, read, change the metadata, delete, and the messages that were answered.

Only the key that made one sees it; to every other it does not exist.
"""

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from proxy_inference_engine.errors import NotFound
from proxy_inference_engine.server.apis.chat.schema import ChatRequest
from proxy_inference_engine.server.apis.shared.chunks import LEAST_CHARS
from proxy_inference_engine.server.apis.shared.messages import ChatMessage
from proxy_inference_engine.server.apis.shared.pages import (
    cut_page,
    list_body,
    parse_query,
    validate_update,
)
from proxy_inference_engine.server.apis.shared.route import json_response, state_of, write_parsed
from proxy_inference_engine.server.http.access import visit_of
from proxy_inference_engine.server.http.body import read_json
from proxy_inference_engine.store import ObjectKind, Record, too_large

_KIND: ObjectKind = "chat.completion"


async def list_chats(http: HttpRequest) -> Response:
    state, owner = state_of(http), visit_of(http.scope).tenant
    query = parse_query(http.query_params, has_filters=True)
    page = await state.store.list(
        _KIND,
        owner,
        after=query.after,
        limit=query.limit,
        order=query.order,
        model=state.models.id_of(query.model),
        metadata=query.metadata or None,
    )
    body = list_body([record.body for record in page.records], page.has_more)
    return write_parsed(http, body, page.num_bytes)


async def get_chat(http: HttpRequest) -> Response:
    return json_response((await _load(http)).body)


async def update_chat(http: HttpRequest) -> Response:
    update = await read_json(http.scope, http.receive, validate_update)
    owner, id_ = visit_of(http.scope).tenant, http.path_params["completion_id"]
    changed = await state_of(http).store.change_metadata(_KIND, owner, id_, update.metadata or {})
    if changed is None:
        raise _not_found("completion_id")
    return json_response(changed)


async def delete_chat(http: HttpRequest) -> Response:
    id_ = http.path_params["completion_id"]
    if not await state_of(http).store.delete(_KIND, visit_of(http.scope).tenant, id_):
        raise _not_found("completion_id")
    return json_response(deleted_body(id_))


async def list_chat_messages(http: HttpRequest) -> Response:
    query = parse_query(http.query_params, has_filters=False)
    messages = (await _load(http)).extra["messages"]
    ordered = messages if query.order == "asc" else messages[::-1]
    page = cut_page(ordered, lambda message: message["id"], query.after, query.limit)
    if page is None:
        raise _not_found("after")
    return json_response(list_body(*page))


async def _load(http: HttpRequest) -> Record:
    record = await state_of(http).store.load(_KIND, visit_of(http.scope).tenant, http.path_params["completion_id"])
    if record is None:
        raise _not_found("completion_id")
    return record


def _not_found(param: str) -> NotFound:
    return NotFound("There is no stored chat completion with this id.", param=param)


def chat_record(owner: str, answer: dict[str, Any], messages: Sequence[ChatMessage]) -> Record:
    """`messages` are what was answered; with the answer they make the whole conversation."""
    stored = [_message(f"{answer['id']}-{index}", message) for index, message in enumerate(messages)]
    body = {**answer, "metadata": answer.get("metadata") or {}}
    return Record("chat.completion", answer["id"], owner, answer["created"], body, {"messages": stored})


def check_size(body: ChatRequest, max_bytes: int) -> None:
    """Better now than after the answer. Raises TooLarge where what is asked is already more than can be kept."""
    parts = (part for message in body.messages for part in message.parts)
    if sum(len(part if isinstance(part, str) else part.image_url.url) for part in parts) > max_bytes:
        raise too_large(max_bytes, param="messages")
    num_logprobs = body.n * body.min_tokens * (1 + (body.top_logprobs or 0)) if body.logprobs else 0
    if num_logprobs * LEAST_CHARS > max_bytes:
        raise too_large(max_bytes, param="min_tokens")


def _message(id_: str, message: ChatMessage) -> dict[str, Any]:
    """Both kinds of content have their own field: text in `content`, parts in `content_parts`."""
    fields = message.model_dump(mode="json", exclude_none=True, warnings=False)
    content = fields.pop("content", None)
    parts = content if isinstance(content, list) else None
    plain = {"content": None if parts else content, "content_parts": parts, "refusal": None, "name": None}
    return {"id": id_, **plain, **fields}


def deleted_body(id_: str) -> dict[str, Any]:
    return {"object": "chat.completion.deleted", "id": id_, "deleted": True}
