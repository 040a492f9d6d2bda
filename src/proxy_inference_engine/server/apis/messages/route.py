"""POST /v1/messages and /v1/messages/count_tokens: Anthropic's API over the same models."""

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from proxy_inference_engine.server.apis.messages.ask import make_ask, not_honoured
from proxy_inference_engine.server.apis.messages.errors import SHAPE
from proxy_inference_engine.server.apis.messages.schema import CountRequest, MessageRequest
from proxy_inference_engine.server.apis.messages.writer import (
    MessageEvents,
    MessageFrames,
    MessageShape,
    MessageWhole,
)
from proxy_inference_engine.server.apis.shared.route import (
    ignored_headers,
    image_names,
    json_response,
    receive,
    relaxed_headers,
)
from proxy_inference_engine.server.apis.shared.sealer import Sealer
from proxy_inference_engine.types import Request


async def create_message(http: HttpRequest) -> Response:
    exchange = await receive(http, MessageRequest)
    body, model = exchange.body, exchange.model
    sealer = exchange.state.sealer.of(exchange.tenant)
    ask = await exchange.off_loop(lambda: make_ask(body, model, exchange.tenant, sealer))
    with await exchange.answer(ask) as stream:
        events = MessageEvents(_shape(body, stream.requests[0], model.id, sealer), stream.counts)
        ignored = [*not_honoured(body, model), *image_names(stream.skipped_images)]
        headers = {**relaxed_headers(stream.relaxed), **ignored_headers(ignored)}
        if body.stream:
            return exchange.stream(stream, MessageFrames(events), headers, shape=SHAPE)
        return await exchange.whole(stream, MessageWhole(events), headers)


async def count_tokens(http: HttpRequest) -> Response:
    exchange = await receive(http, CountRequest)
    body, model = exchange.body, exchange.model
    sealer = exchange.state.sealer.of(exchange.tenant)
    counted = await exchange.count(await exchange.off_loop(lambda: make_ask(body, model, exchange.tenant, sealer)))
    ignored = [*not_honoured(body, model), *image_names(counted.skipped_images)]
    return json_response({"input_tokens": len(counted.ids)}, ignored_headers(ignored))


def _shape(body: MessageRequest, request: Request, model_id: str, sealer: Sealer) -> MessageShape:
    return MessageShape(
        id=request.id,
        # As the client calls it: Claude Code throws thinking away that another model seems to have written.
        model=body.model or model_id,
        is_clamped=request.limits.max_tokens < body.max_tokens and not body.is_prewarming,
        sealer=sealer if body.thinking is not None and body.thinking.display == "omitted" else None,
    )
