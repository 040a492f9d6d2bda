"""llama.cpp's own routes that compute: /completion, /infill and /embedding."""

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.served.ask import Ask
from proxy_inference_engine.served.model import ServedModel
from proxy_inference_engine.served.request import check_ids, check_text
from proxy_inference_engine.server.apis.llama_cpp.ask import completion_asks, infill_asks
from proxy_inference_engine.server.apis.llama_cpp.schema import (
    InfillRequest,
    NativeEmbeddingRequest,
    NativeFields,
    NativeRequest,
)
from proxy_inference_engine.server.apis.llama_cpp.settings import generation_settings
from proxy_inference_engine.server.apis.llama_cpp.writer import SHAPE, NativeFrames, NativeShape, NativeWhole
from proxy_inference_engine.server.apis.shared.route import Exchange, ignored_headers, receive, relaxed_headers
from proxy_inference_engine.server.http.lifetime import supervise
from proxy_inference_engine.server.http.wire import new_id

_NUMBER_CHARS = 20  # what one number takes in an answer


async def native_completion(http: HttpRequest) -> Response:
    exchange = await receive(http, NativeRequest)
    body, id_ = exchange.body, new_id("cmpl-")
    prompts = [each if isinstance(each, str) else "" for each in body.prompt]
    return await _answer(exchange, completion_asks(body, exchange.tenant, id_), prompts)


async def native_infill(http: HttpRequest) -> Response:
    exchange = await receive(http, InfillRequest)
    body, id_ = exchange.body, new_id("cmpl-")
    asks = infill_asks(body, exchange.model, exchange.tenant, id_)
    return await _answer(exchange, asks, [body.input_prefix])


async def _answer(exchange: Exchange[Any], asks: Sequence[Ask], prompts: Sequence[str]) -> Response:
    body: NativeFields = exchange.body
    if body.n > 1 or body.num_candidates is not None:
        raise InvalidRequest("This route answers each prompt once.", param="n" if body.n > 1 else "best_of")
    with await exchange.answer(*asks) as stream:
        shape = NativeShape(
            exchange.model.id,
            stream.requests,
            prompts,
            body.logprobs is not None,
            body.response_fields,
            generation_settings(stream.requests[0], body.stop or ()),
            tells_timings=body.timings_per_token,
            tells_progress=body.return_progress,
        )
        headers = {**relaxed_headers(stream.relaxed), **ignored_headers(body.ignored)}
        if body.stream:
            return exchange.stream(stream, NativeFrames(shape, stream.counts), headers, shape=SHAPE)
        return await exchange.whole(stream, NativeWhole(shape, stream.counts), headers)


async def native_embedding(http: HttpRequest) -> Response:
    """One vector a text: the pooled one, in a list of its own as there."""
    exchange = await receive(http, NativeEmbeddingRequest)
    body, model = exchange.body, exchange.model
    size = sum(map(len, body.content))
    texts = await exchange.threads(lambda: [_ids(text, model) for text in body.content], size)
    exchange.state.drain.check()
    exchange.visit.num_prompt_tokens = sum(map(len, texts))
    vectors = await supervise(model.embed(texts, exchange.tenant), http.receive, exchange.state.drain)
    answer = [{"index": index, "embedding": [vector.tolist()]} for index, vector in enumerate(vectors)]
    return await exchange.write(answer, len(vectors) * len(vectors[0]) * _NUMBER_CHARS)


def _ids(text: str | Sequence[int], model: ServedModel) -> Sequence[int]:
    info, tokenizer = model.answerer.embedding, model.answerer.tokenizer
    if info.pooling == "rank":
        raise InvalidRequest("This model ranks documents, it makes no embeddings: use /v1/rerank.", param="model")
    if isinstance(text, str):
        check_text([text], tokenizer, info.max_tokens, "content")
        ids: Sequence[int] = [*info.prefix, *tokenizer.encode(text), *info.suffix]
    else:
        check_ids(text, tokenizer, "content")
        ids = text
    if not 0 < len(ids) <= info.max_tokens:
        raise InvalidRequest(f"'content' has {len(ids)} tokens: 1 to {info.max_tokens} are taken.", param="content")
    return ids
