"""POST /v1/files, which takes a form, and what is done with a file then: listed, read, deleted.

Only the key that made one sees it; to every other it does not exist.
"""

from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.server.apis.files.content import FileContent
from proxy_inference_engine.server.apis.shared.file_objects import FILE, IN_THREAD, file_of, file_record
from proxy_inference_engine.server.apis.shared.pages import PageQuery, list_body, parse_query
from proxy_inference_engine.server.apis.shared.route import json_response, state_of
from proxy_inference_engine.server.http.access import visit_of
from proxy_inference_engine.server.http.body import share_of
from proxy_inference_engine.server.http.multipart import PIECE_BYTES, FormReader, form_reader, read_form
from proxy_inference_engine.server.http.wire import new_id
from proxy_inference_engine.server.state import ServerState
from proxy_inference_engine.store import NewFile, Record
from proxy_inference_engine.store.files import no_room

PURPOSES = ("batch", "user_data")
LISTED_PURPOSES = (*PURPOSES, "batch_output")
MAX_LISTED = 10_000
_ANCHOR, _SECONDS = "expires_after[anchor]", "expires_after[seconds]"
_FIELDS = ("purpose", _ANCHOR, _SECONDS)
MIN_EXPIRY_S, MAX_EXPIRY_S = 3600, 2_592_000
_FORM_BYTES = 64 * 1024  # beside the file


async def create_file(http: HttpRequest) -> Response:
    state, owner = state_of(http), visit_of(http.scope).tenant
    state.drain.check()
    reader = form_reader(http.scope, _FIELDS)
    share = share_of(http.scope)
    share.grow_to(2 * PIECE_BYTES)
    id_, files, threads = new_id("file-"), state.store.files, state.threads
    num_announced = max(0, _length(http) - _FORM_BYTES)
    file = await threads.run(lambda: files.create(owner, id_, num_announced), owner, IN_THREAD)

    async def write(data: bytes) -> None:
        await threads.run(lambda: file.write(data), owner, IN_THREAD)

    try:
        await read_form(http.receive, reader, write)
        record = _record(owner, id_, reader, file)
        await threads.run(file.finish, owner, IN_THREAD)
        if await threads.run(lambda: files.overflows(owner), owner, IN_THREAD):
            raise no_room()
        await state.store.save(record)
    except BaseException:
        file.abandon()
        files.delete(owner, id_)
        raise
    finally:
        share.release()
    return json_response(record.body)


def _length(http: HttpRequest) -> int:
    length = http.headers.get("content-length", "")
    return int(length) if length.isdecimal() and len(length) <= 18 else 0


def _record(owner: str, id_: str, reader: FormReader, file: NewFile) -> Record:
    """Raises InvalidRequest by name."""
    if reader.file_name is None:
        raise _missing("file")
    purpose = reader.fields.get("purpose")
    if purpose is None:
        raise _missing("purpose")
    if purpose not in PURPOSES:
        raise InvalidRequest(f"Invalid value for 'purpose': it is {' or '.join(PURPOSES)} here.", param="purpose")
    expiry = _expiry(reader.fields)
    return file_record(owner, id_, reader.file_name, purpose, file.num_bytes, expiry)


def _expiry(fields: dict[str, str]) -> int | None:
    anchor, seconds = fields.get(_ANCHOR), fields.get(_SECONDS)
    if anchor is None and seconds is None:
        return None
    if anchor != "created_at":
        raise InvalidRequest("'expires_after.anchor' is created_at.", param="expires_after.anchor")
    if seconds is None or not seconds.isdecimal() or not MIN_EXPIRY_S <= int(seconds[:9]) <= MAX_EXPIRY_S:
        reason = f"a number from {MIN_EXPIRY_S} to {MAX_EXPIRY_S} is expected"
        raise InvalidRequest(f"Invalid value for 'expires_after.seconds': {reason}.", param="expires_after.seconds")
    return int(seconds)


def _missing(name: str) -> InvalidRequest:
    return InvalidRequest(f"Missing required parameter: {name!r}.", param=name, code="missing_parameter")


async def list_files(http: HttpRequest) -> Response:
    query = parse_query(
        http.query_params, has_filters=False, further=("purpose",), max_limit=MAX_LISTED, default_order="desc"
    )
    purpose = query.further.get("purpose")
    if purpose is not None and purpose not in LISTED_PURPOSES:
        raise InvalidRequest(f"Invalid value for 'purpose': {', '.join(LISTED_PURPOSES)}.", param="purpose")
    found, has_more = await _found(state_of(http), visit_of(http.scope).tenant, query, purpose)
    return json_response(list_body(found, has_more))


async def _found(
    state: ServerState, owner: str, query: PageQuery, purpose: str | None
) -> tuple[list[dict[str, Any]], bool]:
    found: list[dict[str, Any]] = []
    after, has_more = query.after, True
    while has_more:
        page = await state.store.list(FILE, owner, after=after, limit=query.limit, order=query.order)
        has_more = page.has_more
        for record in page.records:
            after = record.id
            if purpose in (None, record.body["purpose"]):
                if len(found) == query.limit:
                    return found, True
                found.append(record.body)
        if len(found) == query.limit and purpose is None:
            break
    return found, has_more


async def get_file(http: HttpRequest) -> Response:
    return json_response((await file_of(http)).body)


async def get_file_content(http: HttpRequest) -> Response:
    record, state = await file_of(http), state_of(http)
    path = state.store.files.path(record.owner, record.id)
    return FileContent(path, record.body, state)


async def delete_file(http: HttpRequest) -> Response:
    record, state = await file_of(http), state_of(http)
    await state.store.delete(FILE, record.owner, record.id)
    await state.threads.run(lambda: state.store.files.delete(record.owner, record.id), record.owner, IN_THREAD)
    return json_response({"id": record.id, "object": "file", "deleted": True})
