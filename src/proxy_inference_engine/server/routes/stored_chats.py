"""Stored chat completions: list, read, change the metadata, delete, and the messages that were answered.

Only the key that made one sees it; to every other it does not exist.
"""

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from proxy_inference_engine.errors import NotFound
from proxy_inference_engine.server.body import read_json
from proxy_inference_engine.server.convert.stored import cut_page, deleted_body, list_body
from proxy_inference_engine.server.record import record_of
from proxy_inference_engine.server.routes.answering import json_response
from proxy_inference_engine.server.schemas.stored_chats import parse_query, validate_update
from proxy_inference_engine.server.services import services_of
from proxy_inference_engine.store import Kind, Record

_KIND: Kind = "chat.completion"


async def list_chats(http: HttpRequest) -> Response:
    services, owner = services_of(http), record_of(http.scope).tenant
    query = parse_query(http.query_params, has_filters=True)
    page = await services.store.list(
        _KIND,
        owner,
        after=query.after,
        limit=query.limit,
        order=query.order,
        model=services.model_id if query.model is not None and services.serves(query.model) else query.model,
        metadata=query.metadata or None,
    )
    return json_response(list_body([record.body for record in page.records], page.has_more))


async def get_chat(http: HttpRequest) -> Response:
    return json_response((await _load(http)).body)


async def update_chat(http: HttpRequest) -> Response:
    update = await read_json(http.scope, http.receive, validate_update)
    owner, id_ = record_of(http.scope).tenant, http.path_params["completion_id"]
    changed = await services_of(http).store.change_metadata(_KIND, owner, id_, update.metadata or {})
    if changed is None:
        raise _not_found("completion_id")
    return json_response(changed)


async def delete_chat(http: HttpRequest) -> Response:
    id_ = http.path_params["completion_id"]
    if not await services_of(http).store.delete(_KIND, record_of(http.scope).tenant, id_):
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
    record = await services_of(http).store.load(_KIND, record_of(http.scope).tenant, http.path_params["completion_id"])
    if record is None:
        raise _not_found("completion_id")
    return record


def _not_found(param: str) -> NotFound:
    return NotFound("There is no stored chat completion with this id.", param=param)
