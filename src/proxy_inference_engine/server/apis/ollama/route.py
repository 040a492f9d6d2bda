"""POST /api/chat, /api/generate, /api/embed and /api/embeddings: Ollama's API over the same models."""

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from proxy_inference_engine.engine.embedding import unit_vectors
from proxy_inference_engine.served.ask import Ask
from proxy_inference_engine.served.model import ServedModel
from proxy_inference_engine.server.apis.ollama.ask import (
    idle_options,
    make_chat_ask,
    make_generate_ask,
    not_honoured,
)
from proxy_inference_engine.server.apis.ollama.errors import SHAPE
from proxy_inference_engine.server.apis.ollama.names import known_name
from proxy_inference_engine.server.apis.ollama.schema import (
    OllamaChat,
    OllamaEmbed,
    OllamaEmbeddings,
    OllamaFields,
    OllamaGenerate,
)
from proxy_inference_engine.server.apis.ollama.writer import OllamaLines, OllamaReply, OllamaWhole, Stopwatch
from proxy_inference_engine.server.apis.shared.embedding import NUMBER_CHARS, embed, embedding_texts
from proxy_inference_engine.server.apis.shared.fields import RequestSchema, validate
from proxy_inference_engine.server.apis.shared.route import (
    Exchange,
    exchange_of,
    ignored_headers,
    image_names,
    json_response,
    relaxed_headers,
    state_of,
)
from proxy_inference_engine.server.http.body import JSON_MEDIA, read_json
from proxy_inference_engine.server.http.wire import JsonItems

SchemaT = TypeVar("SchemaT", bound=RequestSchema)
FieldsT = TypeVar("FieldsT", bound=OllamaFields)

# What its clients really send: none, or that of a form, which is what `curl -d` says of everything. A page of another
# site could send these too, but not without an Origin, and that is refused before the body is read.
MEDIA = (JSON_MEDIA, "", "application/x-www-form-urlencoded")


async def read_body(http: HttpRequest, schema: type[SchemaT]) -> SchemaT:
    return await read_json(http.scope, http.receive, partial(validate, schema), media=MEDIA)


async def _exchange(http: HttpRequest, body: SchemaT, began_ns: int) -> tuple[Exchange[SchemaT], Stopwatch]:
    asked_ns = time.monotonic_ns()
    exchange = await exchange_of(http, body, known_name(state_of(http).models, getattr(body, "model", None)))
    return exchange, Stopwatch(began_ns, time.monotonic_ns() - asked_ns)


async def create_chat(http: HttpRequest) -> Response:
    return await _create(http, OllamaChat, make_chat_ask)


async def create_generation(http: HttpRequest) -> Response:
    return await _create(http, OllamaGenerate, make_generate_ask)


async def _create(
    http: HttpRequest, schema: type[FieldsT], make: Callable[[FieldsT, ServedModel, str], Ask]
) -> Response:
    began_ns = time.monotonic_ns()
    body = await read_body(http, schema)
    if body.says_nothing and body.keep_alive == 0:
        return _gone(http, body, began_ns)
    exchange, watch = await _exchange(http, body, began_ns)
    reply = _reply(body, exchange.model.id, watch)
    if body.says_nothing:
        ignored = idle_options(body.options.num_ctx, body.keep_alive, exchange.model.context_tokens)
        return json_response(reply.idle("load"), ignored_headers([*body.unknown, *ignored]))
    ask = await exchange.off_loop(lambda: make(body, exchange.model, exchange.tenant))
    return await _answer(exchange, ask, reply)


def _gone(http: HttpRequest, body: OllamaFields, began_ns: int) -> Response:
    """Who asks for a model to go is told whether it is there. What is loaded is the operator's to say."""
    models = state_of(http).models
    member = models.find(known_name(models, body.model))
    reply = _reply(body, member.id, Stopwatch(began_ns, 0))
    if member.model is None:
        return json_response(reply.idle("unload"), ignored_headers(body.unknown))
    return json_response(reply.idle("load"), ignored_headers([*body.unknown, "keep_alive"]))


def _reply(body: OllamaFields, model_id: str, watch: Stopwatch) -> OllamaReply:
    return OllamaReply(body.model or model_id, isinstance(body, OllamaChat), watch, body.logprobs)


async def _answer(exchange: Exchange[OllamaFields], ask: Ask, reply: OllamaReply) -> Response:
    body = exchange.body
    with await exchange.answer(ask) as stream:
        ignored = [*not_honoured(body, exchange.model), *image_names(stream.skipped_images)]
        headers = {**relaxed_headers(stream.relaxed), **ignored_headers(ignored)}
        if body.stream:
            return exchange.stream(stream, OllamaLines(reply, stream.counts), headers, shape=SHAPE)
        return await exchange.whole(stream, OllamaWhole(reply, stream.counts), headers)


async def create_embed(http: HttpRequest) -> Response:
    """Vectors of length one."""
    began_ns = time.monotonic_ns()
    exchange, watch = await _exchange(http, await read_body(http, OllamaEmbed), began_ns)
    body, answerer = exchange.body, exchange.model.answerer
    head: dict[str, Any] = {"model": body.model or exchange.model.id}
    headers = _embed_headers(exchange)
    if not body.input:
        return json_response({**head, "embeddings": []}, headers)
    info, tokenizer, size = answerer.embedding, answerer.tokenizer, sum(map(len, body.input))
    texts = await exchange.threads(
        lambda: embedding_texts(body.input, body.dimensions, info, tokenizer, cuts=body.truncate), size
    )
    vectors = await embed(exchange, texts)
    units = unit_vectors(vectors, body.dimensions or len(vectors[0]))
    rows = JsonItems(len(units), lambda index: units[index].tolist(), at_once=1)
    answer = {**head, "embeddings": rows, **watch.durations(), "prompt_eval_count": sum(map(len, texts))}
    return await exchange.write(answer, len(vectors) * len(vectors[0]) * NUMBER_CHARS, headers)


async def create_embedding(http: HttpRequest) -> Response:
    """The older way: one text, and its vector as the model made it."""
    exchange, _ = await _exchange(http, await read_body(http, OllamaEmbeddings), 0)
    body, answerer = exchange.body, exchange.model.answerer
    headers = _embed_headers(exchange)
    if not body.prompt:
        return json_response({"embedding": []}, headers)
    info, tokenizer, texts = answerer.embedding, answerer.tokenizer, [body.prompt]
    ids = await exchange.threads(
        lambda: embedding_texts(texts, None, info, tokenizer, param="prompt", cuts=True), len(body.prompt)
    )
    (vector,) = await embed(exchange, ids)
    return await exchange.write({"embedding": vector.tolist()}, len(vector) * NUMBER_CHARS, headers)


def _embed_headers(exchange: Exchange[Any]) -> Mapping[str, str]:
    body = exchange.body
    idle = idle_options(body.options.num_ctx, body.keep_alive, exchange.model.context_tokens)
    return ignored_headers([*body.unknown, *idle])
