"""What becomes of a stored response: GET (also as a stream), DELETE, cancel, and the items it was given."""

from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from proxy_inference_engine.errors import InvalidRequest, NotFound
from proxy_inference_engine.server.background import Following, Log, Run
from proxy_inference_engine.server.history import unpacked
from proxy_inference_engine.server.param import shorten
from proxy_inference_engine.server.record import record_of
from proxy_inference_engine.server.routes.answering import json_response
from proxy_inference_engine.server.routes.responses import follow
from proxy_inference_engine.server.services import services_of
from proxy_inference_engine.store import Record

_MAX_LIMIT = 100
_MAX_NUMBER = 10**9


async def get_response(http: HttpRequest) -> Response:
    services = services_of(http)
    is_stream = _flag(http, "stream")
    first = _number(http, "starting_after", -1, _MAX_NUMBER, default=-1) + 1
    if first and not is_stream:
        raise InvalidRequest("'starting_after' needs stream=true.", param="starting_after")
    run = _run(http)
    if run is not None:
        return follow(services, Following(run.log, first=first)) if is_stream else json_response(run.response)
    record = await _load(http)
    if not is_stream:
        return json_response(record.body)
    frames = record.extra.get("frames")
    if not frames:
        raise InvalidRequest("The events of this response are not stored.", param="stream")
    return follow(services, Following(Log(unpacked(frames), is_over=True), first=first))


async def delete_response(http: HttpRequest) -> Response:
    services, owner, id_ = services_of(http), record_of(http.scope).tenant, http.path_params["response_id"]
    is_running = _run(http) is not None and services.runs.drop(owner, id_)
    if not await services.store.delete("response", owner, id_) and not is_running:
        raise _not_found(id_)
    return json_response({"id": id_, "object": "response", "deleted": True})


async def cancel_response(http: HttpRequest) -> Response:
    run = _run(http)
    if run is not None and not run.log.is_over:
        run.cancel()
        await run.finished()
        return json_response(run.response)
    body = (await _load(http)).body if run is None else run.response
    if body["status"] != "cancelled":
        reason = f"it is {body['status']} already" if body["background"] else "only background responses can be"
        raise InvalidRequest(f"The response cannot be cancelled: {reason}.", param="response_id")
    return json_response(body)


async def list_input_items(http: HttpRequest) -> Response:
    order = http.query_params.get("order", "desc")
    if order not in ("asc", "desc"):
        raise InvalidRequest("Invalid value for 'order': 'asc' or 'desc' is expected.", param="order")
    limit = _number(http, "limit", 1, _MAX_LIMIT, default=20)
    items: list[dict[str, Any]] = (await _load(http)).extra["input"]
    ordered = items if order == "asc" else items[::-1]
    start = _place(ordered, http.query_params.get("after"))
    page = ordered[start : start + limit]
    return json_response(
        {
            "object": "list",
            "data": page,
            "first_id": page[0]["id"] if page else "",
            "last_id": page[-1]["id"] if page else "",
            "has_more": start + limit < len(ordered),
        }
    )


def _place(items: list[dict[str, Any]], after: str | None) -> int:
    if after is None:
        return 0
    for index, item in enumerate(items):
        if item["id"] == after:
            return index + 1
    raise NotFound(f"There is no input item {shorten(after)!r}.", param="after")


def _run(http: HttpRequest) -> Run | None:
    """A response in the foreground belongs to its connection: to everybody else it is not there yet."""
    run = services_of(http).runs.find(record_of(http.scope).tenant, http.path_params["response_id"])
    return run if run is not None and run.is_background else None


async def _load(http: HttpRequest) -> Record:
    id_ = http.path_params["response_id"]
    record = await services_of(http).store.load("response", record_of(http.scope).tenant, id_)
    if record is None:
        raise _not_found(id_)
    return record


def _not_found(id_: str) -> NotFound:
    return NotFound(f"There is no stored response {shorten(id_)!r}.", param="response_id")


def _flag(http: HttpRequest, name: str) -> bool:
    value = http.query_params.get(name, "false")
    if value not in ("true", "false"):
        raise InvalidRequest(f"Invalid value for {name!r}: 'true' or 'false' is expected.", param=name)
    return value == "true"


def _number(http: HttpRequest, name: str, least: int, most: int, *, default: int) -> int:
    value = http.query_params.get(name)
    if value is None:
        return default
    digits = value.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= 10) or not least <= int(value) <= most:
        raise InvalidRequest(f"Invalid value for {name!r}: a number from {least} to {most} is expected.", param=name)
    return int(value)
