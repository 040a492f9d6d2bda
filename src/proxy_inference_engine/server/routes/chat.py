"""POST /v1/chat/completions."""

from collections.abc import Sequence
from functools import partial
from time import time

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.server import asking
from proxy_inference_engine.server.asking import Ask, Prepared
from proxy_inference_engine.server.body import read_json
from proxy_inference_engine.server.convert.chat import ChatAnswer, ChatFrames, ChatShape
from proxy_inference_engine.server.convert.demand import blame, demand_work, make_demand
from proxy_inference_engine.server.convert.head import Head
from proxy_inference_engine.server.convert.messages import conversation, num_chars, prompt_end
from proxy_inference_engine.server.convert.reasoning import make_reasoning
from proxy_inference_engine.server.convert.relaxed import relaxed_headers
from proxy_inference_engine.server.convert.request import extra_work
from proxy_inference_engine.server.convert.tools import is_named, make_tools
from proxy_inference_engine.server.convert.usage import Tally
from proxy_inference_engine.server.generation import Generation
from proxy_inference_engine.server.ids import new_id
from proxy_inference_engine.server.off_loop import off_loop
from proxy_inference_engine.server.record import record_of
from proxy_inference_engine.server.routes.answering import answer, stream
from proxy_inference_engine.server.schemas.base import validate
from proxy_inference_engine.server.schemas.chat import ChatRequest
from proxy_inference_engine.server.schemas.tools import CustomTool
from proxy_inference_engine.server.services import Services, services_of


async def create_chat_completion(http: HttpRequest) -> Response:
    services, record = services_of(http), record_of(http.scope)
    body = await read_json(http.scope, http.receive, partial(validate, ChatRequest))
    services.check_model(body.model)
    services.drain.check()
    size = num_chars(body.messages) + extra_work(body) + demand_work(body)
    request, machine = await off_loop(lambda: prepare(body, services, record.tenant), size)

    tally = Tally([len(request.prompt_ids)], body.n, record)
    family_stops = services.format.stop_strings
    head, shape = _head(request.id, services, body), _shape(body, family_stops)
    stops = [*(body.stop or ()), *family_stops]
    headers = relaxed_headers(machine.relaxed)
    # Submitted last: from here on somebody always cancels it.
    generation = Generation(services.engine, [request], stops, services.metrics, machine.labels)
    if body.stream:
        return stream(services, generation, ChatFrames(head, tally, shape), headers)
    return await answer(http, services, generation, ChatAnswer(head, tally, shape), headers)


def prepare(body: ChatRequest, services: Services, tenant: str) -> Prepared:
    return asking.prepare(make_ask(body, services), services, tenant)


def make_ask(body: ChatRequest, services: Services) -> Ask:
    tools = make_tools(body.tools)
    reasoning = make_reasoning(body, services.format, services.renderer.variables)
    turns = conversation(body.messages)
    return Ask(
        id=new_id("chatcmpl-"),
        turns=turns,
        knobs=body,
        demand=make_demand(body, tools, reasoning),
        blame=blame,
        max_tokens=_max_tokens(body),
        variables=reasoning.variables,
        num_choices=body.n,
        num_top_logprobs=_num_top_logprobs(body),
        **prompt_end(turns, body),
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
    custom_names = frozenset(tool.custom.name for tool in body.tools if isinstance(tool, CustomTool))
    return ChatShape(body.n, body.logprobs, body.include_usage, hidden, custom_names, is_named(body))
