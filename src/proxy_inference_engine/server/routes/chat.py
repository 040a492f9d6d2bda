"""POST /v1/chat/completions, with one conversation or several."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
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
from proxy_inference_engine.server.convert.relaxed import ignored_headers, relaxed_headers
from proxy_inference_engine.server.convert.request import extra_work, num_top_logprobs
from proxy_inference_engine.server.convert.stored import chat_record, check_size
from proxy_inference_engine.server.convert.tools import is_named, make_tools, may_call
from proxy_inference_engine.server.convert.usage import Tally
from proxy_inference_engine.server.generation import Asked, Generation
from proxy_inference_engine.server.ids import new_id
from proxy_inference_engine.server.keeping import Keep, Kept
from proxy_inference_engine.server.off_loop import off_loop
from proxy_inference_engine.server.record import record_of
from proxy_inference_engine.server.routes.answering import fold, json_response, stream
from proxy_inference_engine.server.schemas.batches import Conversation, RawBatch, validate_batch, validate_chat
from proxy_inference_engine.server.schemas.chat import ChatRequest
from proxy_inference_engine.server.schemas.tools import CustomTool
from proxy_inference_engine.server.seeing import Seen, Turns, Unseen, ignored_name, see
from proxy_inference_engine.server.services import Services, services_of


async def create_chat_completion(http: HttpRequest) -> Response:
    services, record = services_of(http), record_of(http.scope)
    conversations = await _read(http)
    body = conversations[0].body  # what they share is in each
    services.check_model(body.model)
    services.drain.check()
    if body.store:
        check_size(body.messages, services.store.max_bytes)
    size = sum(_size(each.body) for each in conversations)
    seen = await _see(http, conversations, size)
    prepared = await off_loop(lambda: _prepare_all(conversations, seen.chats, services, record.tenant), size)

    head = _head(prepared[0].request.id, services, body)
    shapes = [_shape(each.body, services.format.stop_strings) for each in conversations]
    relaxed = dict.fromkeys(path for each in prepared for path in each.machine.relaxed)
    headers = {**relaxed_headers(list(relaxed)), **_ignored(conversations, seen)}

    def tally() -> Tally:
        return Tally([len(each.request.prompt_ids) for each in prepared], body.num_generated, record)

    frames, answer = ChatFrames(head, tally(), *shapes), ChatAnswer(head, tally(), *shapes)
    keep = _keep(services, record.tenant, body)
    asked = [_asked(each, ready, services) for each, ready in zip(conversations, prepared, strict=True)]
    # Submitted last: from here on somebody always cancels it.
    generation = Generation(services.engine, asked, (), services.metrics)
    if body.stream:
        return stream(services, Kept(generation, answer, keep) if body.store else generation, frames, headers)
    whole = await fold(http, services, generation, answer)
    if body.store:
        await keep(whole)
    return json_response(whole, headers)


async def _read(http: HttpRequest) -> list[Conversation]:
    read = await read_json(http.scope, http.receive, validate_chat)
    return await asyncio.to_thread(validate_batch, read) if isinstance(read, RawBatch) else [read]


def _size(body: ChatRequest) -> int:
    guess = 0 if body.prediction is None else len(body.prediction.text)
    return num_chars(body.messages) + extra_work(body) + demand_work(body) + guess


async def _see(http: HttpRequest, conversations: Sequence[Conversation], size: int) -> Seen:
    """Their turns, with the images in them loaded."""
    chats = await off_loop(lambda: [_turns(each) for each in conversations], size)
    try:
        return await see(http, *chats)
    except Unseen as error:
        with conversations[error.chat].named():
            raise


def _ignored(conversations: Sequence[Conversation], seen: Seen) -> Mapping[str, str]:
    names = [ignored_name(conversations[each.chat].param(each.param)) for each in seen.skipped]
    return ignored_headers(list(dict.fromkeys(names)))


def _turns(each: Conversation) -> Turns:
    with each.named():
        return conversation(each.body.messages)


def _prepare_all(
    conversations: Sequence[Conversation], chats: Sequence[Turns], services: Services, tenant: str
) -> list[Prepared]:
    """All are proved before any is submitted. The first has the id of the answer."""
    id_ = new_id("chatcmpl-")
    prepared = []
    for number, (each, turns) in enumerate(zip(conversations, chats, strict=True)):
        with each.named():
            prepared.append(prepare(each.body, services, tenant, f"{id_}-{number}" if number else id_, turns))
    return prepared


def prepare(
    body: ChatRequest, services: Services, tenant: str, id_: str | None = None, turns: Turns | None = None
) -> Prepared:
    """`turns` are those of the body, with its images loaded; None: it has none."""
    turns = conversation(body.messages) if turns is None else turns
    prepared = asking.prepare(make_ask(body, turns, services, id_ or new_id("chatcmpl-")), services, tenant)
    return prepared._replace(request=replace(prepared.request, draft_ids=_draft(body, services)))


def _draft(body: ChatRequest, services: Services) -> tuple[int, ...]:
    """The guess in tokens; no answer can follow one that is longer than the context."""
    if body.prediction is None:
        return ()
    return tuple(services.engine.tokenizer.encode(body.prediction.text)[: services.engine.context_tokens])


def _asked(conversation: Conversation, prepared: Prepared, services: Services) -> Asked:
    stops = [*(conversation.body.stop or ()), *services.format.stop_strings]
    return Asked(prepared.request, stops, prepared.machine.labels)


def _keep(services: Services, owner: str, body: ChatRequest) -> Keep:
    return lambda answer: services.store.save(chat_record(owner, answer, body.messages))


def make_ask(body: ChatRequest, turns: Turns, services: Services, id_: str) -> Ask:
    tools = make_tools(body.tools)
    reasoning = make_reasoning(body, services.format, services.renderer.variables)
    return Ask(
        id=id_,
        turns=turns,
        knobs=body,
        demand=make_demand(body, tools, reasoning),
        blame=blame,
        max_tokens=_max_tokens(body),
        variables=reasoning.variables,
        num_choices=body.num_generated,
        num_top_logprobs=num_top_logprobs(_shown_top_logprobs(body), body),
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


def _shown_top_logprobs(body: ChatRequest) -> int | None:
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
    return ChatShape(
        num_choices=body.n,
        has_logprobs=body.logprobs,
        include_usage=body.include_usage,
        hidden_stops=hidden,
        custom_names=custom_names,
        names_tool=is_named(body),
        may_call=may_call(body),
        num_candidates=body.num_candidates,
    )
