"""POST /v1/chat/completions."""

from collections.abc import Sequence
from functools import partial
from time import time

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.server.body import read_json
from proxy_inference_engine.server.convert.chat import ChatAnswer, ChatFrames, ChatShape
from proxy_inference_engine.server.convert.head import Head
from proxy_inference_engine.server.convert.messages import conversation, num_chars, prompt_end
from proxy_inference_engine.server.convert.request import check_prompt, extra_work, make_limits, make_sampling
from proxy_inference_engine.server.convert.usage import Tally
from proxy_inference_engine.server.generation import Generation
from proxy_inference_engine.server.ids import new_id
from proxy_inference_engine.server.off_loop import off_loop
from proxy_inference_engine.server.record import record_of
from proxy_inference_engine.server.routes.answering import answer, stream
from proxy_inference_engine.server.schemas.base import validate
from proxy_inference_engine.server.schemas.chat import ChatRequest
from proxy_inference_engine.server.services import Services, services_of
from proxy_inference_engine.types import Request


async def create_chat_completion(http: HttpRequest) -> Response:
    services, record = services_of(http), record_of(http.scope)
    body = await read_json(http.scope, http.receive, partial(validate, ChatRequest))
    services.check_model(body.model)
    services.drain.check()
    size = num_chars(body.messages) + extra_work(body)
    request = await off_loop(lambda: prepare(body, services, record.tenant), size)

    tally = Tally([len(request.prompt_ids)], body.n, record)
    family_stops = services.format.stop_strings
    head, shape = _head(request.id, services, body), _shape(body, family_stops)
    stops = [*(body.stop or ()), *family_stops]
    # Submitted last: from here on somebody always cancels it.
    generation = Generation(services.engine, [request], stops, services.metrics)
    if body.stream:
        return stream(services, generation, ChatFrames(head, tally, shape))
    return await answer(http, services, generation, ChatAnswer(head, tally, shape))


def prepare(body: ChatRequest, services: Services, tenant: str) -> Request:
    """The proved request of the engine."""
    engine = services.engine
    sampling = make_sampling(body, services.defaults, engine.tokenizer, services.breakers)
    max_tokens = _max_tokens(body)
    turns = conversation(body.messages)
    ids = services.renderer.chat(turns, **prompt_end(turns, body)).ids
    check_prompt(ids, engine.context_tokens, "messages", needs_answer=True)
    return Request(
        id=new_id("chatcmpl-"),
        tenant=tenant,
        prompt_ids=tuple(ids),
        sampling=sampling,
        limits=make_limits(body, max_tokens, len(ids), engine.context_tokens, engine.tokenizer),
        num_choices=body.n,
        num_top_logprobs=_num_top_logprobs(body),
    )


def _max_tokens(body: ChatRequest) -> int | None:
    """The limit has two names; both may be given when they agree."""
    if body.max_tokens is None or body.max_completion_tokens is None:
        return body.max_completion_tokens or body.max_tokens
    if body.max_tokens != body.max_completion_tokens:
        raise InvalidRequest(
            "'max_tokens' and 'max_completion_tokens' are the same limit and have different values.", param="max_tokens"
        )
    return body.max_tokens


def _num_top_logprobs(body: ChatRequest) -> int | None:
    if not body.logprobs:
        if body.top_logprobs:
            raise InvalidRequest("'top_logprobs' needs logprobs: true.", param="top_logprobs")
        return None
    return body.top_logprobs or 0


def _head(request_id: str, services: Services, body: ChatRequest) -> Head:
    return Head(
        id=request_id,
        model=services.model_id,
        fingerprint=services.engine.info.fingerprint,
        created=int(time()),
        service_tier=None if body.service_tier is None else "default",
        metadata=body.metadata,
    )


def _shape(body: ChatRequest, family_stops: Sequence[str]) -> ChatShape:
    hidden = frozenset(family_stops).difference(body.stop or ())
    return ChatShape(body.n, body.logprobs, body.include_usage, hidden)
