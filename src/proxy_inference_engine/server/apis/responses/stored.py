"""What becomes of a stored response: GET (also as a stream), DELETE, cancel, and the items it was given."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from proxy_inference_engine.errors import InvalidRequest, NotFound, shorten
from proxy_inference_engine.server.apis.responses.conversations import parse_items_query
from proxy_inference_engine.server.apis.responses.history import given_items, unpacked
from proxy_inference_engine.server.apis.responses.route import follow
from proxy_inference_engine.server.apis.responses.run import FrameLog, ResponseRun, numbered
from proxy_inference_engine.server.apis.responses.teller import TELL_SECONDS
from proxy_inference_engine.server.apis.responses.writer import lost_events
from proxy_inference_engine.server.apis.shared.pages import cut_page
from proxy_inference_engine.server.apis.shared.route import json_response, state_of, write_json
from proxy_inference_engine.server.http.access import visit_of
from proxy_inference_engine.store import UNFINISHED, Record

_MAX_NUMBER = 10**9
_BEGUN = 2  # the event that says so: before it come `created` and `queued`
_CANCEL_SECONDS = 30.0  # long enough to notice that the other server is dead
_PACKED = 20  # how much smaller frames are when they are packed


async def get_response(http: HttpRequest) -> Response:
    state = state_of(http)
    is_stream = _flag(http, "stream")
    first = _starting_after(http) + 1
    if first and not is_stream:
        raise InvalidRequest("'starting_after' needs stream=true.", param="starting_after")
    run = _run(http)
    if run is not None:
        if is_stream:
            return follow(state, run.log.follow(first))
        return write_json(http, run.response, run.num_chars)
    record = await _load(http)
    if not is_stream:
        return json_response(await _as_far_as_told(http, record))
    if record.status in UNFINISHED:
        return follow(state, _elsewhere(http, first), drain=state.drain)
    return follow(state, await _replay(http, record, first))


async def _as_far_as_told(http: HttpRequest, record: Record) -> Mapping[str, Any]:
    """What another server makes stays as it was asked for until it is over; what it said shows that it has begun."""
    if record.status == "queued":
        said = await state_of(http).store.said(record.owner, record.id, _BEGUN)
        if said is not None and said.frames:
            return {**record.body, "status": "in_progress"}
    return record.body


async def _elsewhere(http: HttpRequest, first: int) -> AsyncGenerator[str, None]:
    """The stream of a response that another server makes, from an event on: as it stores it, and at last its end."""
    store, owner, id_ = state_of(http).store, visit_of(http.scope).tenant, http.path_params["response_id"]
    while True:
        said = await store.said(owner, id_, first)
        if said is None:
            raise _not_found(id_)
        if said.is_over:
            break
        if said.frames:
            first += len(said.frames)
            yield "".join(said.frames)
        await asyncio.sleep(TELL_SECONDS)
    async with aclosing(await _replay(http, await _load(http), first)) as rest:
        async for frames in rest:
            yield frames


async def _replay(http: HttpRequest, record: Record, first: int) -> AsyncGenerator[str, None]:
    """The stream of a response that is over, from an event on."""
    frames = record.extra["frames"]
    if frames is not None:
        size = len(frames) * _PACKED  # unpacking may take long
        unpack = state_of(http).threads.run(lambda: unpacked(frames), record.owner, size)
        return FrameLog(await unpack, is_over=True).follow(first)
    # Its server is gone. What it said last is lost, and how much that was: the end follows what the client has seen.
    begun, end = lost_events(record.body)
    said = await state_of(http).store.said(record.owner, record.id, first)
    known = [] if said is None else said.frames
    if not known and first < len(begun):
        return FrameLog(numbered([*begun[first:], *end], first), is_over=True).follow()
    return FrameLog([*known, *numbered(end, first + len(known))], is_over=True).follow()


async def delete_response(http: HttpRequest) -> Response:
    state, owner, id_ = state_of(http), visit_of(http.scope).tenant, http.path_params["response_id"]
    is_running = _run(http) is not None and state.runs.drop(owner, id_)
    if not await state.store.delete("response", owner, id_) and not is_running:
        raise _not_found(id_)
    return json_response({"id": id_, "object": "response", "deleted": True})


async def cancel_response(http: HttpRequest) -> Response:
    run = _run(http)
    if run is not None and not run.log.is_over:
        run.cancel()
        await run.finished()
        return json_response(run.response)
    if run is None:
        record = await _load(http)
        if record.status in UNFINISHED:
            return json_response((await _cancelled(http, record)).body)
    body = record.body if run is None else run.response
    if body["status"] != "cancelled":
        reason = f"it is {body['status']} already" if body["background"] else "only background responses can be"
        raise InvalidRequest(f"The response cannot be cancelled: {reason}.", param="response_id")
    return json_response(body)


async def _cancelled(http: HttpRequest, record: Record) -> Record:
    """A response that another server makes, when that has ended it; or as it is, where that takes too long."""
    await state_of(http).store.ask_to_cancel(record.owner, record.id)
    for _ in range(int(_CANCEL_SECONDS / TELL_SECONDS)):
        state_of(http).drain.check()
        await asyncio.sleep(TELL_SECONDS)
        record = await _load(http)
        if record.status not in UNFINISHED:
            break
    return record


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


def _run(http: HttpRequest) -> ResponseRun | None:
    """A response in the foreground belongs to its connection: to everybody else it is not there yet."""
    run = state_of(http).runs.find(visit_of(http.scope).tenant, http.path_params["response_id"])
    return run if run is not None and run.is_background else None


async def _load(http: HttpRequest) -> Record:
    id_ = http.path_params["response_id"]
    record = await state_of(http).store.load("response", visit_of(http.scope).tenant, id_)
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
