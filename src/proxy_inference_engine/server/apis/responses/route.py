"""POST /v1/responses, and POST /v1/responses/input_tokens, which only counts."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from time import time
from typing import NamedTuple

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.served.ask import Ask, LimitWishes
from proxy_inference_engine.served.stream import AnswerStream
from proxy_inference_engine.server.apis.responses.ask import make_ask, make_turns, not_honoured
from proxy_inference_engine.server.apis.responses.history import History, ResponseKeeper, gather
from proxy_inference_engine.server.apis.responses.items import AdditionalToolsItem, AnyItem, FoundToolsItem
from proxy_inference_engine.server.apis.responses.object import ResponseHead
from proxy_inference_engine.server.apis.responses.offer import NOTHING, OfferedTools, offered_tools
from proxy_inference_engine.server.apis.responses.run import AsWritten, ResponseRun
from proxy_inference_engine.server.apis.responses.schema import Conversing, ResponseRequest
from proxy_inference_engine.server.apis.responses.writer import ResponseShape, ResponseWriter
from proxy_inference_engine.server.apis.shared.chunks import LEAST_CHARS
from proxy_inference_engine.server.apis.shared.route import (
    Exchange,
    ignored_headers,
    image_names,
    json_response,
    receive,
    relaxed_headers,
    state_of,
    waiting_news,
    write_json,
)
from proxy_inference_engine.server.http.access import cancelled
from proxy_inference_engine.server.http.errors import COMMON
from proxy_inference_engine.server.http.lifetime import Drain, supervise
from proxy_inference_engine.server.http.sse import EventStream
from proxy_inference_engine.server.http.wire import new_id
from proxy_inference_engine.server.state import ServerState
from proxy_inference_engine.store import too_large


class StartedResponse(NamedTuple):
    run: ResponseRun
    headers: Mapping[str, str]


async def create_response(http: HttpRequest) -> Response:
    exchange = await receive(http, ResponseRequest)
    body = exchange.body
    exchange.state.drain.check()
    if body.background and not body.store:
        raise InvalidRequest("'background' needs store: true, or nobody could ask for the answer.", param="background")
    history = await gather(body, exchange.state.store, exchange.tenant)
    return await _answer(exchange, await start_response(exchange, history))


async def start_response(
    exchange: Exchange[ResponseRequest], history: History, *, generates: bool = True
) -> StartedResponse:
    """Accepted, and being made. With `generates` false the prompt is computed, for whoever goes on from it."""
    body, state, tenant = exchange.body, exchange.state, exchange.tenant
    keeper = _keeper(exchange, history)
    ask, offered = await _ask(exchange, history)
    if not generates:
        ask = replace(ask, limits=LimitWishes(0))
    with await exchange.answer(ask) as stream:
        model = exchange.model
        head = ResponseHead(ask.id, int(time()), model.id, body, model.defaults, exchange.rank.tier)
        writer = ResponseWriter(head, stream.counts, _shape(exchange, offered, generates))
        if body.background and keeper is not None:
            # Before anybody hears of it: a crash leaves a trace. After it was accepted: a refusal leaves none.
            await keeper.begin(writer.snapshot())
        run = ResponseRun(
            writer,
            stream,
            None if keeper is None else keeper.end,
            is_background=body.background,
            off_loop=exchange.threads,
            check=None if keeper is None else lambda: keeper.check_said(writer.num_chars),
            lease=exchange.lease.hand_on(),
        )
        state.runs.start(tenant, ask.id, run, state.drain)
        if body.background:
            state.teller.begin()
        else:
            exchange.visit.stop = lambda: run.cancel(cancelled())
    return StartedResponse(run, _headers(exchange, history, stream))


async def _ask(exchange: Exchange[Conversing], history: History) -> tuple[Ask, OfferedTools]:
    sealer = exchange.state.sealer.of(exchange.tenant)

    def make() -> tuple[Ask, OfferedTools]:
        items = history.items
        turns = make_turns(exchange.body, items, len(history.earlier), sealer)
        offered = _offered(exchange.body, items, len(history.earlier))
        ask = make_ask(exchange.body, turns, exchange.model, exchange.tenant, new_id("resp_"), offered)
        return ask, offered

    return await exchange.off_loop(make, history.num_chars)


def _offered(body: Conversing, items: Sequence[AnyItem], num_earlier: int) -> OfferedTools:
    if not body.tools and not any(isinstance(item, AdditionalToolsItem | FoundToolsItem) for item in items):
        return NOTHING
    return offered_tools(body.tools, items, num_earlier)


def _keeper(exchange: Exchange[ResponseRequest], history: History) -> ResponseKeeper | None:
    body = exchange.body
    if not body.store and body.conversation_id is None:
        return None
    store, owner = exchange.state.store, exchange.tenant
    threads = exchange.model.threads
    keeper = ResponseKeeper(store, owner, history, body.conversation_id, threads, is_stored=body.store)
    keeper.check()
    num_logprobs = 0 if body.num_top_logprobs is None else body.min_tokens * (1 + body.num_top_logprobs)
    if body.store and num_logprobs * LEAST_CHARS > store.max_bytes:
        raise too_large(store.max_bytes, param="min_tokens")
    return keeper


def _headers(exchange: Exchange[ResponseRequest], history: History, stream: AnswerStream) -> Mapping[str, str]:
    ignored = [*not_honoured(exchange.body, history, exchange.model), *image_names(stream.skipped_images)]
    return {**relaxed_headers(stream.relaxed), **ignored_headers(ignored)}


async def _answer(exchange: Exchange[ResponseRequest], started: StartedResponse) -> Response:
    body, visit = exchange.body, exchange.visit
    run, headers = started

    def leave() -> None:
        visit.error_code = None if run.error is None else run.error.code
        run.abandon()

    if body.stream:
        leaving = None if body.background else leave
        return follow(exchange.state, run.log.follow(), headers, leaving, news=partial(_news, run))
    if body.background:
        return json_response(run.response, headers)
    try:
        response = await supervise(run.result(), exchange.http.receive, Drain())
        return write_json(exchange.http, response, run.num_chars, headers)
    finally:
        run.abandon()


def follow(
    state: ServerState,
    frames: AsyncGenerator[str, None],
    headers: Mapping[str, str] | None = None,
    leave: Callable[[], None] | None = None,
    drain: Drain | None = None,
    news: Callable[[], str | None] | None = None,
) -> Response:
    # A run ends by itself when the server does: its followers wait for that, so their own drain never ends.
    drain = drain or Drain()
    return EventStream(frames, AsWritten(), COMMON, drain, state.patience, leave or _stay, headers, news)


def _news(run: ResponseRun) -> str | None:
    return None if run.answer is None else waiting_news(run.answer)


def _stay() -> None:
    """Who only watches leaves nothing behind."""


def _shape(exchange: Exchange[ResponseRequest], offered: OfferedTools, generates: bool) -> ResponseShape:
    body = exchange.body
    is_sealed = "reasoning.encrypted_content" in body.include
    return ResponseShape(
        names=offered.names,
        sealer=exchange.state.sealer.of(exchange.tenant) if is_sealed else None,
        is_background=body.background,
        generates=generates,
    )


async def count_input_tokens(http: HttpRequest) -> Response:
    exchange = await receive(http, Conversing)
    history = await gather(exchange.body, state_of(http).store, exchange.tenant)
    ask, _ = await _ask(exchange, history)
    counted = await exchange.count(ask)
    ignored = [*not_honoured(exchange.body, history, exchange.model), *image_names(counted.skipped_images)]
    answer = {"object": "response.input_tokens", "input_tokens": len(counted.ids)}
    return json_response(answer, ignored_headers(ignored))
