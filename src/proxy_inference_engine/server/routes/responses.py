"""POST /v1/responses, and POST /v1/responses/input_tokens, which only counts."""

from collections.abc import Mapping
from functools import partial
from time import time

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.server.asking import Prepared
from proxy_inference_engine.server.background import Following, Run
from proxy_inference_engine.server.body import body_size, read_json
from proxy_inference_engine.server.convert.relaxed import relaxed_headers
from proxy_inference_engine.server.convert.request import extra_work
from proxy_inference_engine.server.convert.responses_demand import demand_work
from proxy_inference_engine.server.convert.responses_events import ResponseEvents, Shape
from proxy_inference_engine.server.convert.responses_object import Head
from proxy_inference_engine.server.convert.usage import Tally
from proxy_inference_engine.server.generation import Generation
from proxy_inference_engine.server.history import History, Keeper, gather
from proxy_inference_engine.server.ids import new_id
from proxy_inference_engine.server.off_loop import off_loop
from proxy_inference_engine.server.record import record_of
from proxy_inference_engine.server.responding import Asker, make_turns, skipped_headers
from proxy_inference_engine.server.routes.answering import json_response
from proxy_inference_engine.server.schemas.base import validate
from proxy_inference_engine.server.schemas.responses import Conversing, CustomTool, ResponseRequest
from proxy_inference_engine.server.seeing import Seen, see
from proxy_inference_engine.server.services import Services, services_of
from proxy_inference_engine.server.sse import EventStream
from proxy_inference_engine.server.supervise import Drain, supervise
from proxy_inference_engine.store import Store


async def create_response(http: HttpRequest) -> Response:
    services, record = services_of(http), record_of(http.scope)
    body = await read_json(http.scope, http.receive, partial(validate, ResponseRequest))
    services.check_model(body.model)
    services.drain.check()
    _check(body)
    history = await gather(body, services.store, record.tenant)
    asker = Asker(body, services, new_id("resp_"), record.tenant)
    keeper = _keeper(body, services.store, record.tenant, history)
    prepared, seen = await _prepare(http, asker, history)

    tally = Tally([len(prepared.request.prompt_ids)], 1, record)
    head = Head(asker.id, int(time()), services.model_id, body, services.defaults)
    events = ResponseEvents(head, tally, _shape(body, services, record.tenant))
    stops = [*(body.stop or ()), *services.format.stop_strings]
    # Submitted last: from here on somebody always cancels it.
    generation = Generation(services.engine, [prepared.request], stops, services.metrics, prepared.machine.labels)
    if body.background and keeper is not None:
        await _begin(keeper, events, generation)
    run = Run(events, generation, None if keeper is None else keeper.end, is_background=body.background)
    services.runs.start(record.tenant, asker.id, run, services.drain)
    headers = {**relaxed_headers(prepared.machine.relaxed), **skipped_headers(body, history, services, seen.ignored)}
    return await _answer(http, run, body, headers)


def _keeper(body: ResponseRequest, store: Store, owner: str, history: History) -> Keeper | None:
    if not body.store and body.conversation_id is None:
        return None
    keeper = Keeper(store, owner, history, body.conversation_id, is_stored=body.store)
    keeper.check()
    return keeper


async def _begin(keeper: Keeper, events: ResponseEvents, generation: Generation) -> None:
    """Before anybody hears of it: a crash leaves a trace. After it was accepted: a refusal leaves none."""
    try:
        await keeper.begin(events.snapshot())
    except BaseException:
        generation.cancel()
        raise


async def _answer(http: HttpRequest, run: Run, body: ResponseRequest, headers: Mapping[str, str]) -> Response:
    services, record = services_of(http), record_of(http.scope)

    def leave() -> None:
        record.error_code = None if run.error is None else run.error.code
        run.abandon()

    if body.stream:
        return follow(services, Following(run.log, leave=None if body.background else leave), headers)
    if body.background:
        return json_response(run.response, headers)
    try:
        return json_response(await supervise(run.result(), http.receive, Drain()), headers)
    finally:
        run.abandon()


def follow(services: Services, following: Following, headers: Mapping[str, str] | None = None) -> Response:
    # A run ends by itself when the server does: its followers wait for that.
    return EventStream(following, following, Drain(), services.patience, headers)


def _check(body: ResponseRequest) -> None:
    if body.background and not body.store:
        raise InvalidRequest("'background' needs store: true, or nobody could ask for the answer.", param="background")


async def _prepare(http: HttpRequest, asker: Asker, history: History) -> tuple[Prepared, Seen]:
    body = asker.body
    size = history.num_chars + len(body.instructions or "") + extra_work(body) + demand_work(body)
    seen = await see(http, await off_loop(lambda: make_turns(asker, history), size))
    return await off_loop(lambda: asker.prepare(seen.chats[0]), size), seen


def _shape(body: ResponseRequest, services: Services, tenant: str) -> Shape:
    return Shape(
        custom_names=frozenset(tool.name for tool in body.tools if isinstance(tool, CustomTool)),
        sealer=services.sealer.of(tenant) if "reasoning.encrypted_content" in body.include else None,
        is_background=body.background,
    )


async def count_input_tokens(http: HttpRequest) -> Response:
    services, record = services_of(http), record_of(http.scope)
    body = await read_json(http.scope, http.receive, partial(validate, Conversing))
    services.check_model(body.model)
    history = await gather(body, services.store, record.tenant)
    asker = Asker(body, services, new_id("resp_"), record.tenant)
    size = history.num_chars + body_size(http.scope)
    seen = await see(http, await off_loop(lambda: make_turns(asker, history), size))
    num_tokens = await off_loop(lambda: asker.num_tokens(seen.chats[0]), size)
    counted = {"object": "response.input_tokens", "input_tokens": num_tokens}
    return json_response(counted, skipped_headers(body, history, services, seen.ignored))
