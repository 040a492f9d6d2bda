"""POST /v1/messages and /v1/messages/count_tokens: Anthropic's API over the same engine."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from proxy_inference_engine.errors import InvalidRequest, PieError
from proxy_inference_engine.formats.history import calls_of
from proxy_inference_engine.interaction import Role
from proxy_inference_engine.server import asking
from proxy_inference_engine.server.asking import Ask
from proxy_inference_engine.server.body import read_json
from proxy_inference_engine.server.convert.anthropic_demand import (
    demand_work,
    make_blame,
    make_demand,
    make_reasoning,
    not_honoured,
)
from proxy_inference_engine.server.convert.anthropic_errors import error_event
from proxy_inference_engine.server.convert.anthropic_events import (
    MessageAnswer,
    MessageEvents,
    MessageFrames,
    MessageShape,
    frame,
)
from proxy_inference_engine.server.convert.anthropic_turns import conversation, num_chars
from proxy_inference_engine.server.convert.relaxed import relaxed_headers
from proxy_inference_engine.server.convert.usage import Tally
from proxy_inference_engine.server.generation import Generation
from proxy_inference_engine.server.ids import new_id
from proxy_inference_engine.server.off_loop import off_loop
from proxy_inference_engine.server.record import record_of
from proxy_inference_engine.server.routes.answering import answer, json_response
from proxy_inference_engine.server.schemas.anthropic import CountRequest, MessageRequest
from proxy_inference_engine.server.schemas.base import validate
from proxy_inference_engine.server.schemas.generating import Generating
from proxy_inference_engine.server.seeing import Seen, Turns, see
from proxy_inference_engine.server.services import Services, services_of
from proxy_inference_engine.server.sse import EventStream, Manner
from proxy_inference_engine.types import Request


async def create_message(http: HttpRequest) -> Response:
    services, record = services_of(http), record_of(http.scope)
    body = await read_json(http.scope, http.receive, partial(validate, MessageRequest))
    services.check_model(body.model)
    services.drain.check()
    size = num_chars(body) + demand_work(body)
    seen = await see(http, await off_loop(lambda: conversation(body), size))
    request, machine = await off_loop(
        lambda: asking.prepare(make_ask(body, seen.chats[0], services), services, record.tenant), size
    )

    events = MessageEvents(_shape(body, request, services), Tally([len(request.prompt_ids)], 1, record))
    stops = [*(body.stop_sequences or ()), *services.format.stop_strings]
    headers = {**relaxed_headers(machine.relaxed), **_ignored(body, services, seen)}
    # Submitted last: from here on somebody always cancels it.
    generation = Generation(services.engine, [request], stops, services.metrics, machine.labels)
    if body.stream:
        return MessageStream(generation, MessageFrames(events), services.drain, services.patience, headers)
    return await answer(http, services, generation, MessageAnswer(events), headers)


async def count_tokens(http: HttpRequest) -> Response:
    services = services_of(http)
    body = await read_json(http.scope, http.receive, partial(validate, CountRequest))
    services.check_model(body.model)
    size = num_chars(body) + demand_work(body)
    seen = await see(http, await off_loop(lambda: conversation(body), size))
    count = await off_loop(lambda: _count(make_ask(body, seen.chats[0], services), services), size)
    return json_response({"input_tokens": count}, _ignored(body, services, seen))


def _count(ask: Ask, services: Services) -> int:
    prompt = services.renderer.chat(
        ask.turns,
        tools=ask.demand.tools,
        variables=ask.variables,
        add_generation_prompt=ask.add_generation_prompt,
        continue_final=ask.continue_final,
    )
    return len(prompt.ids)


def make_ask(body: CountRequest, turns: Turns, services: Services) -> Ask:
    continues = _continues(turns)
    reasoning = make_reasoning(body, services.format, services.renderer.variables)
    demand = make_demand(body, reasoning)
    return Ask(
        id=new_id("msg_"),
        turns=turns,
        knobs=_knobs(body),
        # Who has begun to answer does not go back to thinking.
        demand=replace(demand, can_reason=False, max_reasoning_tokens=None) if continues else demand,
        blame=make_blame(body),
        max_tokens=body.max_tokens if isinstance(body, MessageRequest) else None,
        variables=reasoning.variables,
        add_generation_prompt=not continues,
        continue_final=continues,
    )


def _continues(turns: Turns) -> bool:
    """In this format a last message of the assistant is the beginning of the answer."""
    last = turns[-1]
    if last.role is not Role.ASSISTANT:
        return False
    if calls_of(last):
        raise InvalidRequest("The last message has calls: send their results after it.", param="messages")
    return bool(last.text.strip())


def _knobs(body: CountRequest) -> Generating:
    if not isinstance(body, MessageRequest):
        return Generating(model=body.model)
    return Generating(
        model=body.model,
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=body.top_k,
    )


def _shape(body: MessageRequest, request: Request, services: Services) -> MessageShape:
    return MessageShape(
        id=request.id,
        # As the client calls it: Claude Code throws thinking away that another model seems to have written.
        model=body.model,
        hidden_stops=frozenset(services.format.stop_strings).difference(body.stop_sequences or ()),
        is_clamped=request.limits.max_tokens < body.max_tokens,
        hides_thinking=body.thinking is not None and body.thinking.display == "omitted",
    )


def _ignored(body: CountRequest, services: Services, seen: Seen) -> Mapping[str, str]:
    return not_honoured(body, services.format, services.renderer.variables, seen.ignored)


def _failure(error: PieError, request_id: str) -> str:
    return frame(error_event(error, request_id))


class MessageStream(EventStream):
    """Where this format differs: a ping and a failure are events, and nothing follows the last one."""

    manner = Manner(frame({"type": "ping"}), "", _failure)
