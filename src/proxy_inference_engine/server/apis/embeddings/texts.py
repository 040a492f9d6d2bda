"""Pairs to rank as the ids that the model wants, and vectors as the bodies of embeddings and rankings."""

import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from proxy_inference_engine.engine.embedding import unit_vectors
from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.prompt.user_text import PromptEncoder, TextSpan
from proxy_inference_engine.runners.base import EmbeddingInfo, Tokenizer, Vector
from proxy_inference_engine.served.request import check_text
from proxy_inference_engine.server.apis.embeddings.schema import EmbeddingRequest, RerankRequest
from proxy_inference_engine.server.apis.shared.embedding import TextIds, checked_texts
from proxy_inference_engine.server.http.wire import JsonItems

_PLACES = re.compile(r"\{(query|document)\}")


def rerank_texts(body: RerankRequest, info: EmbeddingInfo, tokenizer: Tokenizer) -> TextIds:
    """The ids of the query with each document. Raises ClientError."""
    if info.pooling != "rank":
        raise InvalidRequest(
            "This model does not rank documents: load one with rank pooling, or compare embeddings.", param="model"
        )
    names = [f"documents[{index}]" for index in range(len(body.documents))]
    documents = _fitting(body, names, info, tokenizer)
    check_text([body.query], tokenizer, info.max_tokens, "query")
    query = tokenizer.encode(body.query)
    checked_texts([query], ["query"], info, "query")
    if info.pair_template is None:
        start = (*info.prefix, *query, *info.middle)
        pairs: Iterable[Sequence[int]] = ((*start, *tokenizer.encode(text), *info.suffix) for text in documents)
    else:
        encoder, template = PromptEncoder(tokenizer), info.pair_template
        pairs = (_filled(encoder, template, body.query, text) for text in documents)
    return checked_texts(pairs, names, info, "documents")


def _fitting(body: RerankRequest, names: Sequence[str], info: EmbeddingInfo, tokenizer: Tokenizer) -> Iterator[str]:
    for document, name in zip(body.documents, names, strict=True):
        check_text([document.text], tokenizer, info.max_tokens, name)
        yield document.text


def _filled(encoder: PromptEncoder, template: str, query: str, document: str) -> Sequence[int]:
    """The pair in the model's own words; nothing that the client wrote is special."""
    text, contents, end = "", [], 0
    for place in _PLACES.finditer(template):
        text += template[end : place.start()]
        value = query if place[1] == "query" else document
        contents.append(TextSpan(len(text), len(text) + len(value)))
        text += value
        end = place.end()
    return encoder.encode(text + template[end:], contents)


def embeddings_body(body: EmbeddingRequest, vectors: Sequence[Vector], num_tokens: int, model: str) -> dict[str, Any]:
    """The numbers are written one vector at a time: one call for millions of them would hold up every other thread."""
    units = unit_vectors(vectors, body.dimensions or len(vectors[0]))
    write = _base64 if body.encoding_format == "base64" else _floats

    def item(index: int) -> dict[str, Any]:
        return {"object": "embedding", "index": index, "embedding": write(units[index])}

    usage = {"prompt_tokens": num_tokens, "total_tokens": num_tokens}
    return {"object": "list", "data": JsonItems(len(units), item, at_once=1), "model": model, "usage": usage}


def _base64(unit: Vector) -> str:
    return b64encode(unit.astype("<f4").tobytes()).decode()


def _floats(unit: Vector) -> list[float]:
    floats: list[float] = unit.tolist()
    return floats


def rerank_body(body: RerankRequest, vectors: Sequence[Vector], num_tokens: int, model: str) -> dict[str, Any]:
    """The best documents first; equal ones in the order of the request."""
    scores = [float(vector[0]) for vector in vectors]
    best = sorted(range(len(scores)), key=lambda index: -scores[index])[: body.top_n]
    results: list[dict[str, Any]] = [{"index": index, "relevance_score": scores[index]} for index in best]
    if body.return_documents:
        for result in results:
            result["document"] = {"text": body.documents[result["index"]].text}
    return {
        "object": "list",
        "model": model,
        "usage": {"prompt_tokens": num_tokens, "total_tokens": num_tokens},
        "results": results,
    }
