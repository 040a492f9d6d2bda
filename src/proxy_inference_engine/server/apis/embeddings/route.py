"""POST /v1/embeddings and /v1/rerank: texts in, vectors or an order out. Nothing is generated."""

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from proxy_inference_engine.server.apis.embeddings.schema import EmbeddingRequest, RerankRequest
from proxy_inference_engine.server.apis.embeddings.texts import (
    embeddings_body,
    rerank_body,
    rerank_texts,
)
from proxy_inference_engine.server.apis.shared.embedding import NUMBER_CHARS, embed, embedding_texts
from proxy_inference_engine.server.apis.shared.route import receive, write_json


async def create_embeddings(http: HttpRequest) -> Response:
    exchange = await receive(http, EmbeddingRequest)
    body, model, answerer = exchange.body, exchange.model, exchange.model.answerer
    info, tokenizer, size = answerer.embedding, answerer.tokenizer, sum(map(len, body.input))
    texts = await exchange.threads(lambda: embedding_texts(body.input, body.dimensions, info, tokenizer), size)
    vectors = await embed(exchange, texts)
    num_tokens = sum(map(len, texts))
    num_chars = len(vectors) * len(vectors[0]) * NUMBER_CHARS
    answer = await exchange.threads(lambda: embeddings_body(body, vectors, num_tokens, model.id), num_chars)
    return await exchange.write(answer, num_chars)


async def rerank(http: HttpRequest) -> Response:
    exchange = await receive(http, RerankRequest)
    body, answerer = exchange.body, exchange.model.answerer
    size = len(body.query) * len(body.documents) + sum(len(document.text) for document in body.documents)
    texts = await exchange.threads(lambda: rerank_texts(body, answerer.embedding, answerer.tokenizer), size)
    vectors = await embed(exchange, texts)
    answer = rerank_body(body, vectors, sum(map(len, texts)), exchange.model.id)
    return write_json(http, answer, body.return_documents * sum(len(document.text) for document in body.documents))
