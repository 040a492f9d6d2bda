"""What becomes of a stored response: GET (also as a stream), DELETE, cancel, and the items it was given."""

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from proxy_inference_engine.errors import InvalidRequest, NotFound
from proxy_inference_engine.server.background import Following, Log, Run, numbered
from proxy_inference_engine.server.convert.responses_events import lost_events
from proxy_inference_engine.server.convert.stored import cut_page
from proxy_inference_engine.server.history import given_items, unpacked
from proxy_inference_engine.server.param import shorten
from proxy_inference_engine.server.record import record_of
from proxy_inference_engine.server.routes.answering import json_response
from proxy_inference_engine.server.routes.responses import follow
from proxy_inference_engine.server.schemas.conversations import parse_items_query
from proxy_inference_engine.server.services import services_of
from proxy_inference_engine.store import Record

_MAX_NUMBER = 10**9


async def get_response(http: HttpRequest) -> Response:
    services = services_of(http)
    is_stream = _flag(http, "stream")
    first = _starting_after(http) + 1
    if first and not is_stream:
        raise InvalidRequest("'starting_after' needs stream=true.", param="starting_after")
    run = _run(http)
    if run is not None:
        return follow(services, Following(run.log, first=first)) if is_stream else json_response(run.response)
    record = await _load(http)
    if not is_stream:
        return json_response(record.body)
    return follow(services, _replay(record, first))


def _replay(record: Record, first: int) -> Following:
    """The stream of a response that is over, from an event on."""
    frames = record.extra["frames"]
    if frames is not None:
        return Following(Log(unpacked(frames), is_over=True), first=first)
    if record.status != "failed":
        raise InvalidRequest("The events of this response are not stored yet.", param="stream")
    # How many there were is lost with them: the end follows whatever the client has seen.
    begun, end = lost_events(record.body)
    return Following(Log(numbered([*begun[first:], *end], first), is_over=True))


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
    query = parse_items_query(http.query_params)
    items = given_items(await _load(http))
    ordered = items if query.order == "asc" else items[::-1]
    cut = cut_page(ordered, lambda item: item["id"], query.after, query.limit)
    if cut is None:
        raise NotFound(f"There is no input item {shorten(query.after or '')!r}.", param="after")
    page, has_more = cut
    first, last = (page[0]["id"], page[-1]["id"]) if page else ("", "")  # clients read them as text
    return json_response({"object": "list", "data": page, "first_id": first, "last_id": last, "has_more": has_more})


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


def _starting_after(http: HttpRequest) -> int:
    """The number of the last event that the client has seen, -1: none."""
    name = "starting_after"
    value = http.query_params.get(name, "-1")
    digits = value.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= 10) or not -1 <= int(value) <= _MAX_NUMBER:
        raise InvalidRequest(f"Invalid value for {name!r}: a number up to {_MAX_NUMBER} is expected.", param=name)
    return int(value)
