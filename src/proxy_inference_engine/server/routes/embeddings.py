"""POST /v1/embeddings and /v1/rerank: texts in, vectors or an order out. Nothing is generated."""

from functools import partial

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from proxy_inference_engine.runners.base import Vector
from proxy_inference_engine.server.body import read_json
from proxy_inference_engine.server.convert.embeddings import (
    Texts,
    embedding_texts,
    embeddings_body,
    rerank_body,
    rerank_texts,
)
from proxy_inference_engine.server.off_loop import off_loop
from proxy_inference_engine.server.record import record_of
from proxy_inference_engine.server.routes.answering import json_response
from proxy_inference_engine.server.schemas.base import validate
from proxy_inference_engine.server.schemas.embeddings import EmbeddingRequest, RerankRequest
from proxy_inference_engine.server.services import Services, services_of
from proxy_inference_engine.server.supervise import supervise

_NUMBER_CHARS = 20  # what one number takes in the answer


async def create_embeddings(http: HttpRequest) -> Response:
    services = services_of(http)
    body = await read_json(http.scope, http.receive, partial(validate, EmbeddingRequest))
    services.check_model(body.model)
    engine = services.engine
    size = sum(map(len, body.input))
    texts = await off_loop(lambda: embedding_texts(body, engine.embedding, engine.tokenizer), size)
    vectors = await _embed(http, services, texts)
    num_tokens = sum(map(len, texts))
    num_chars = len(vectors) * len(vectors[0]) * _NUMBER_CHARS
    answer = await off_loop(lambda: embeddings_body(body, vectors, num_tokens, services.model_id), num_chars)
    return Response(answer, media_type="application/json")


async def rerank(http: HttpRequest) -> Response:
    services = services_of(http)
    body = await read_json(http.scope, http.receive, partial(validate, RerankRequest))
    services.check_model(body.model)
    engine = services.engine
    size = len(body.query) * len(body.documents) + sum(len(document.text) for document in body.documents)
    texts = await off_loop(lambda: rerank_texts(body, engine.embedding, engine.tokenizer), size)
    vectors = await _embed(http, services, texts)
    return json_response(rerank_body(body, vectors, sum(map(len, texts)), services.model_id))


async def _embed(http: HttpRequest, services: Services, texts: Texts) -> list[Vector]:
    """Stops computing when the client leaves or the server ends."""
    services.drain.check()
    record = record_of(http.scope)
    record.num_prompt_tokens = sum(map(len, texts))
    return await supervise(services.engine.embed(texts, record.tenant), http.receive, services.drain)
