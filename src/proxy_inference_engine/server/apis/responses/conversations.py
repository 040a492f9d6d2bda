"""Conversations and their items: made, read, changed, deleted. Answering in one is the Responses API's.

Only the key that made a conversation sees it; to every other it does not exist.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from time import time
from typing import Annotated, Any, Literal, get_args

from pydantic import Field
from starlette.datastructures import QueryParams
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from proxy_inference_engine.errors import InvalidRequest, NotFound, shorten
from proxy_inference_engine.server.apis.responses.items import (
    AnyItem,
    CompactionItem,
    HostedItem,
    ItemField,
    ReasoningItem,
    ReferenceItem,
    input_items,
    least_bytes,
    unknown_in,
)
from proxy_inference_engine.server.apis.responses.schema import Include
from proxy_inference_engine.server.apis.shared.fields import Metadata, RequestSchema, validate
from proxy_inference_engine.server.apis.shared.pages import PageQuery, list_body, parse_query, validate_update
from proxy_inference_engine.server.apis.shared.route import ignored_headers, json_response, state_of, write_parsed
from proxy_inference_engine.server.apis.shared.sealer import Sealer, Unopenable
from proxy_inference_engine.server.http.access import visit_of
from proxy_inference_engine.server.http.body import read_json
from proxy_inference_engine.server.http.wire import new_id
from proxy_inference_engine.server.state import ServerState
from proxy_inference_engine.store import ObjectKind, Record, item_too_large

MAX_NEW_ITEMS = 20
_INCLUDE = ("include", "include[]")
_INCLUDABLE = frozenset(get_args(Include))


class NewConversation(RequestSchema):
    items: Annotated[list[ItemField], Field(max_length=MAX_NEW_ITEMS)] = Field(default_factory=list)
    metadata: Metadata = Field(default_factory=dict)


class NewItems(RequestSchema):
    items: Annotated[list[ItemField], Field(min_length=1, max_length=MAX_NEW_ITEMS)]


def check_include(query: QueryParams) -> QueryParams:
    """The query without `include`, which adds nothing here: an item comes back with all it was stored with."""
    for name, value in query.multi_items():
        if name in _INCLUDE and value not in _INCLUDABLE:
            raise InvalidRequest(f"Invalid value for 'include': {shorten(value)!r} is not known.", param="include")
    return QueryParams([pair for pair in query.multi_items() if pair[0] not in _INCLUDE])


def check_only_include(query: QueryParams) -> None:
    for name in check_include(query):
        raise InvalidRequest(f"Unknown parameter: {shorten(name)!r}.", param=shorten(name), code="unknown_parameter")


def parse_items_query(query: QueryParams) -> PageQuery:
    """The newest items come first unless the client says otherwise."""
    rest = check_include(query)
    page = parse_query(rest, has_filters=False)
    return page if "order" in rest else replace(page, order="desc")


_KIND: ObjectKind = "conversation"


async def create_conversation(http: HttpRequest) -> Response:
    state = state_of(http)
    body = await read_json(http.scope, http.receive, partial(validate, NewConversation))
    record = new_conversation(_owner(http), body.metadata)
    await state.store.save(record, conversation=record.id, items=_kept(body.items, state, _owner(http)))
    return json_response(record.body, ignored_headers(skipped_items(body.items)))


async def get_conversation(http: HttpRequest) -> Response:
    return json_response((await _load(http)).body)


async def update_conversation(http: HttpRequest) -> Response:
    update = await read_json(http.scope, http.receive, validate_update)
    changed = await state_of(http).store.change_metadata(_KIND, _owner(http), _id(http), update.metadata or {})
    if changed is None:
        raise _not_found()
    return json_response(changed)


async def delete_conversation(http: HttpRequest) -> Response:
    if not await state_of(http).store.delete(_KIND, _owner(http), _id(http)):
        raise _not_found()
    return json_response(deleted_conversation(_id(http)))


async def create_items(http: HttpRequest) -> Response:
    state = state_of(http)
    check_only_include(http.query_params)
    body = await read_json(http.scope, http.receive, partial(validate, NewItems))
    await _load(http)
    items = _kept(body.items, state, _owner(http))
    if not items:
        raise InvalidRequest(
            "None of these items can be kept: they are of tools that other servers host.", param="items"
        )
    await state.store.add_items(_owner(http), _id(http), items)
    return json_response(list_body(items, has_more=False), ignored_headers(skipped_items(body.items)))


async def list_items(http: HttpRequest) -> Response:
    query = parse_items_query(http.query_params)
    await _load(http)
    page = await state_of(http).store.list_items(
        _owner(http), _id(http), after=query.after, limit=query.limit, order=query.order
    )
    return write_parsed(http, list_body(page.items, page.has_more), page.num_bytes)


async def get_item(http: HttpRequest) -> Response:
    check_only_include(http.query_params)
    await _load(http)
    item = await state_of(http).store.load_item(_owner(http), _id(http), http.path_params["item_id"])
    if item is None:
        raise _no_item()
    return json_response(item)


async def delete_item(http: HttpRequest) -> Response:
    """Answers with the conversation, as the format wants it."""
    record = await _load(http)
    if not await state_of(http).store.delete_item(_owner(http), _id(http), http.path_params["item_id"]):
        raise _no_item()
    return json_response(record.body)


def _kept(items: Sequence[AnyItem], state: ServerState, owner: str) -> list[dict[str, Any]]:
    most = state.store.max_bytes
    for index, item in enumerate(items):
        if least_bytes(item) > most:
            raise item_too_large(most, param=f"items[{index}]")
    return kept_items(items, state.sealer.of(owner))


def _owner(http: HttpRequest) -> str:
    return visit_of(http.scope).tenant


def _id(http: HttpRequest) -> str:
    id_ = http.path_params["conversation_id"]
    assert isinstance(id_, str)
    return id_


async def _load(http: HttpRequest) -> Record:
    record = await state_of(http).store.load(_KIND, _owner(http), _id(http))
    if record is None:
        raise _not_found()
    return record


def _not_found() -> NotFound:
    return NotFound("There is no conversation with this id.", param="conversation_id")


def _no_item() -> NotFound:
    return NotFound("There is no item with this id in the conversation.", param="item_id")


def new_conversation(owner: str, metadata: Mapping[str, str]) -> Record:
    id_, created_at = new_id("conv_"), int(time())
    body = {"id": id_, "object": "conversation", "created_at": created_at, "metadata": dict(metadata)}
    return Record("conversation", id_, owner, created_at, body, {})


def deleted_conversation(id_: str) -> dict[str, Any]:
    return {"id": id_, "object": "conversation.deleted", "deleted": True}


def kept_items(items: Sequence[AnyItem], sealer: Sealer) -> list[dict[str, Any]]:
    """Items as they are stored, each with an id of ours: a client's own could stand for another item.

    What hosted tools left behind is not kept; a conversation could not be continued with what is refused here.
    """
    for index, item in enumerate(items):
        if isinstance(item, ReferenceItem):
            raise _invalid(index, "a conversation keeps items themselves: send what the reference stands for")
        _check_seal(index, item, sealer)
    without_ids = [item.model_copy(update={"id": None}) for item in items if not isinstance(item, HostedItem)]
    return input_items(without_ids, new_id(""))


def skipped_items(items: Sequence[AnyItem]) -> list[str]:
    hosted = [f"items[{index}]:{item.type}" for index, item in enumerate(items) if isinstance(item, HostedItem)]
    return [*hosted, *dict.fromkeys(unknown_in(items, "items"))]


def _check_seal(index: int, item: AnyItem, sealer: Sealer) -> None:
    if not isinstance(item, ReasoningItem | CompactionItem) or item.encrypted_content is None:
        return
    kind: Literal["reasoning", "compaction"] = "reasoning" if isinstance(item, ReasoningItem) else "compaction"
    try:
        sealer.open(kind, item.encrypted_content)
    except Unopenable:
        raise _invalid(index, "it was not made by this server, or was changed", ".encrypted_content") from None


def _invalid(index: int, reason: str, field: str = "") -> InvalidRequest:
    param = f"items[{index}]{field}"
    return InvalidRequest(f"Invalid value for {param!r}: {reason}.", param=param)
