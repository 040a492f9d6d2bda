"""POST /v1/batches, and what is done with a batch then: read, listed, cancelled. Only the key that made one sees it."""

from functools import partial

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from proxy_inference_engine.errors import InvalidRequest, NotFound
from proxy_inference_engine.server.apis.batches.object import BATCH, new_batch
from proxy_inference_engine.server.apis.batches.runs import BatchRuns
from proxy_inference_engine.server.apis.batches.schema import BatchRequest
from proxy_inference_engine.server.apis.shared.fields import validate
from proxy_inference_engine.server.apis.shared.file_objects import load_file
from proxy_inference_engine.server.apis.shared.pages import list_body, parse_query
from proxy_inference_engine.server.apis.shared.route import json_response, state_of, write_parsed
from proxy_inference_engine.server.http.access import visit_of
from proxy_inference_engine.server.http.body import read_json
from proxy_inference_engine.server.http.wire import new_id


async def create_batch(http: HttpRequest) -> Response:
    state, owner = state_of(http), visit_of(http.scope).tenant
    state.drain.check()
    body = await read_json(http.scope, http.receive, partial(validate, BatchRequest))
    file = await load_file(state.store, owner, body.input_file_id, param="input_file_id")
    if file.body["purpose"] != "batch":
        message = "Invalid value for 'input_file_id': the purpose of the file has to be batch."
        raise InvalidRequest(message, param="input_file_id")
    record = new_batch(owner, new_id("batch_"), body)
    await state.store.save(record)
    _runs_of(http).start(record)
    return json_response(record.body)


async def list_batches(http: HttpRequest) -> Response:
    owner = visit_of(http.scope).tenant
    query = parse_query(http.query_params, has_filters=False, default_order="desc")
    page = await state_of(http).store.list(BATCH, owner, after=query.after, limit=query.limit, order=query.order)
    return write_parsed(http, list_body([record.body for record in page.records], page.has_more), page.num_bytes)


async def get_batch(http: HttpRequest) -> Response:
    record = await state_of(http).store.load(BATCH, visit_of(http.scope).tenant, http.path_params["batch_id"])
    if record is None:
        raise _not_found()
    return json_response(record.body)


async def cancel_batch(http: HttpRequest) -> Response:
    record = await _runs_of(http).cancel(visit_of(http.scope).tenant, http.path_params["batch_id"])
    if record is None:
        raise _not_found()
    return json_response(record.body)


def _runs_of(http: HttpRequest) -> BatchRuns:
    runs = http.app.state.batches
    assert isinstance(runs, BatchRuns)
    return runs


def _not_found() -> NotFound:
    return NotFound("There is no batch with this id.", param="batch_id")
