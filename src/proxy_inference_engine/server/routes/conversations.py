"""Conversations and their items: made, read, changed, deleted. Answering in one is the Responses API's.

Only the key that made a conversation sees it; to every other it does not exist.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from proxy_inference_engine.errors import InvalidRequest, NotFound
from proxy_inference_engine.server.body import read_json
from proxy_inference_engine.server.convert.conversations import (
    deleted_conversation,
    kept_items,
    new_conversation,
    skipped_items,
)
from proxy_inference_engine.server.convert.relaxed import ignored_headers
from proxy_inference_engine.server.convert.responses_items import least_bytes
from proxy_inference_engine.server.convert.stored import list_body
from proxy_inference_engine.server.record import record_of
from proxy_inference_engine.server.routes.answering import json_response
from proxy_inference_engine.server.schemas.base import validate
from proxy_inference_engine.server.schemas.conversations import (
    NewConversation,
    NewItems,
    check_only_include,
    parse_items_query,
)
from proxy_inference_engine.server.schemas.items import AnyItem
from proxy_inference_engine.server.schemas.stored_chats import validate_update
from proxy_inference_engine.server.services import Services, services_of
from proxy_inference_engine.store import Kind, Record, item_too_large

_KIND: Kind = "conversation"


async def create_conversation(http: HttpRequest) -> Response:
    services = services_of(http)
    body = await read_json(http.scope, http.receive, partial(validate, NewConversation))
    record = new_conversation(_owner(http), body.metadata)
    await services.store.save(record, conversation=record.id, items=_kept(body.items, services, _owner(http)))
    return json_response(record.body, ignored_headers(skipped_items(body.items)))


async def get_conversation(http: HttpRequest) -> Response:
    return json_response((await _load(http)).body)


async def update_conversation(http: HttpRequest) -> Response:
    update = await read_json(http.scope, http.receive, validate_update)
    changed = await services_of(http).store.change_metadata(_KIND, _owner(http), _id(http), update.metadata or {})
    if changed is None:
        raise _not_found()
    return json_response(changed)


async def delete_conversation(http: HttpRequest) -> Response:
    if not await services_of(http).store.delete(_KIND, _owner(http), _id(http)):
        raise _not_found()
    return json_response(deleted_conversation(_id(http)))


async def create_items(http: HttpRequest) -> Response:
    services = services_of(http)
    check_only_include(http.query_params)
    body = await read_json(http.scope, http.receive, partial(validate, NewItems))
    await _load(http)
    items = _kept(body.items, services, _owner(http))
    if not items:
        raise InvalidRequest(
            "None of these items can be kept: they are of tools that other servers host.", param="items"
        )
    await services.store.add_items(_owner(http), _id(http), items)
    return json_response(list_body(items, has_more=False), ignored_headers(skipped_items(body.items)))


async def list_items(http: HttpRequest) -> Response:
    query = parse_items_query(http.query_params)
    await _load(http)
    page = await services_of(http).store.list_items(
        _owner(http), _id(http), after=query.after, limit=query.limit, order=query.order
    )
    return json_response(list_body(page.items, page.has_more))


async def get_item(http: HttpRequest) -> Response:
    check_only_include(http.query_params)
    await _load(http)
    item = await services_of(http).store.load_item(_owner(http), _id(http), http.path_params["item_id"])
    if item is None:
        raise _no_item()
    return json_response(item)


async def delete_item(http: HttpRequest) -> Response:
    """Answers with the conversation, as the format wants it."""
    record = await _load(http)
    if not await services_of(http).store.delete_item(_owner(http), _id(http), http.path_params["item_id"]):
        raise _no_item()
    return json_response(record.body)


def _kept(items: Sequence[AnyItem], services: Services, owner: str) -> list[dict[str, Any]]:
    most = services.store.max_bytes
    for index, item in enumerate(items):
        if least_bytes(item) > most:
            raise item_too_large(most, param=f"items[{index}]")
    return kept_items(items, services.sealer.of(owner))


def _owner(http: HttpRequest) -> str:
    return record_of(http.scope).tenant


def _id(http: HttpRequest) -> str:
    id_ = http.path_params["conversation_id"]
    assert isinstance(id_, str)
    return id_


async def _load(http: HttpRequest) -> Record:
    record = await services_of(http).store.load(_KIND, _owner(http), _id(http))
    if record is None:
        raise _not_found()
    return record


def _not_found() -> NotFound:
    return NotFound("There is no conversation with this id.", param="conversation_id")


def _no_item() -> NotFound:
    return NotFound("There is no item with this id in the conversation.", param="item_id")
