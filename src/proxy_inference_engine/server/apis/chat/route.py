"""POST /v1/chat/completions, with one conversation or several."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from proxy_inference_engine.served.ask import Ask
from proxy_inference_engine.served.model import ServedModel
from proxy_inference_engine.served.stream import AnswerStream, Step
from proxy_inference_engine.server.apis.chat.ask import Conversation, make_ask, names_tool, not_honoured
from proxy_inference_engine.server.apis.chat.batch import RawBatch, validate_batch
from proxy_inference_engine.server.apis.chat.schema import ChatRequest
from proxy_inference_engine.server.apis.chat.stored import chat_record, check_size
from proxy_inference_engine.server.apis.chat.writer import ChatFrames, ChatShape, ChatWhole
from proxy_inference_engine.server.apis.shared.chunks import AnswerHead
from proxy_inference_engine.server.apis.shared.fields import validate
from proxy_inference_engine.server.apis.shared.route import (
    exchange_of,
    ignored_headers,
    image_names,
    relaxed_headers,
    write_json,
)
from proxy_inference_engine.server.apis.shared.tools import ChatCustom
from proxy_inference_engine.server.http.body import body_size, read_json, share_of
from proxy_inference_engine.server.http.wire import new_id
from proxy_inference_engine.store import too_large

_BATCH_CHARS = 1 << 16  # what several conversations count for beside their text: each is a whole body

KeepAnswer = Callable[[dict[str, Any]], Awaitable[None]]


async def create_chat_completion(http: HttpRequest) -> Response:
    conversations = await _read(http)
    body = conversations[0].body  # what they share is in each
    exchange = await exchange_of(http, body, body.model)
    store, tenant = exchange.state.store, exchange.tenant
    if body.store:
        check_size(body, store.max_bytes)
    asks = await exchange.off_loop(lambda: _asks(conversations, exchange.model, tenant))
    with await exchange.answer(*asks) as stream:
        tier = None if body.service_tier is None else exchange.rank.tier
        head = AnswerHead.of(asks[0].id, exchange.model, tier, body.metadata)
        shapes = [_shape(each.body) for each in conversations]
        ignored = [name for each in conversations for name in not_honoured(each, exchange.model)]
        ignored = list(dict.fromkeys([*ignored, *image_names(stream.skipped_images)]))
        headers = {**relaxed_headers(stream.relaxed), **ignored_headers(ignored)}
        whole = ChatWhole(head, stream.counts, *shapes)

        async def keep(answer: dict[str, Any]) -> None:
            await store.save(chat_record(tenant, answer, body.messages))

        if body.stream:
            frames = ChatFrames(head, stream.counts, *shapes)
            steps = _kept(stream, whole, keep, store.max_bytes) if body.store else None
            return exchange.stream(stream, frames, headers, steps=steps)
        if not body.store:
            return await exchange.whole(stream, whole, headers)
        await exchange.fold(stream, lambda step: _feed_kept(step, whole, store.max_bytes))
        answer = whole.body()
        await keep(answer)
        return write_json(http, answer, whole.num_chars, headers)


async def _read(http: HttpRequest) -> list[Conversation]:
    read = await read_json(http.scope, http.receive, _validate)
    if not isinstance(read, RawBatch):
        return [Conversation(read)]
    return await share_of(http.scope).run(lambda: validate_batch(read), body_size(http.scope) + _BATCH_CHARS)


def _validate(data: Any) -> ChatRequest | RawBatch:
    """A body with several conversations is left as it is."""
    messages = data.get("messages") if isinstance(data, dict) else None
    if isinstance(messages, list) and messages and isinstance(messages[0], list):
        return RawBatch(data)
    return validate(ChatRequest, data)


def _asks(conversations: Sequence[Conversation], model: ServedModel, tenant: str) -> list[Ask]:
    """The first has the id of the answer."""
    id_ = new_id("chatcmpl-")
    return [
        make_ask(each, model, tenant, f"{id_}-{number}" if number else id_) for number, each in enumerate(conversations)
    ]


def _feed_kept(step: Step, whole: ChatWhole, max_bytes: int) -> None:
    """Raises TooLarge as soon as the answer is more than can be kept."""
    whole.feed(step)
    if whole.least_chars > max_bytes:
        raise too_large(max_bytes)


async def _kept(stream: AnswerStream, whole: ChatWhole, keep: KeepAnswer, max_bytes: int) -> AsyncGenerator[Step, None]:
    """The steps, but the last one comes when the whole answer is stored: who sees the end can count on it."""
    async with aclosing(stream.steps()) as steps:
        async for step in steps:
            _feed_kept(step, whole, max_bytes)
            if stream.counts.are_final:
                await keep(whole.body())
            yield step


def _shape(body: ChatRequest) -> ChatShape:
    return ChatShape(
        num_choices=body.n,
        has_logprobs=body.logprobs,
        include_usage=body.include_usage,
        custom_names=frozenset(tool.custom.name for tool in body.tools if isinstance(tool, ChatCustom)),
        names_tool=names_tool(body),
        may_call=bool(body.tools) and body.tool_choice != "none",
        num_candidates=body.num_candidates,
        tells_timings=body.timings_per_token,
        tells_progress=body.return_progress,
        is_oldest="functions" in body.words,
    )
