"""Texts to the ids that the model wants, and vectors to the bodies of embeddings and rankings."""

import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from proxy_inference_engine.engine.embedding import unit_vectors
from proxy_inference_engine.errors import ContextLengthExceeded, InvalidRequest
from proxy_inference_engine.prompt.tokens import PromptEncoder, Span
from proxy_inference_engine.runners.base import EmbeddingInfo, Tokenizer, Vector, Vectors
from proxy_inference_engine.server.convert.request import check_ids
from proxy_inference_engine.server.jsons import dumps
from proxy_inference_engine.server.schemas.embeddings import MAX_TOKENS, EmbeddingRequest, Input, RerankRequest

_PLACES = re.compile(r"\{(query|document)\}")

Texts = list[Sequence[int]]


def embedding_texts(body: EmbeddingRequest, info: EmbeddingInfo, tokenizer: Tokenizer) -> Texts:
    """The ids of every input. Raises ClientError that names the input."""
    if info.pooling == "rank":
        raise InvalidRequest("This model ranks documents, it makes no embeddings: use /v1/rerank.", param="model")
    if body.dimensions is not None and body.dimensions > info.num_dimensions:
        raise InvalidRequest(
            f"'dimensions' is {body.dimensions}, but this model's embeddings have {info.num_dimensions}.",
            param="dimensions",
        )
    names = ["input"] if len(body.input) == 1 else [f"input[{index}]" for index in range(len(body.input))]
    pairs = zip(body.input, names, strict=True)
    return _proved((_input_ids(text, name, info, tokenizer) for text, name in pairs), names, info, "input")


def _input_ids(text: Input, name: str, info: EmbeddingInfo, tokenizer: Tokenizer) -> Sequence[int]:
    """A text gets the tokens that the model wants around it; token ids are taken as they are."""
    if not text:
        raise InvalidRequest(f"{name!r} is empty.", param=name)
    if not isinstance(text, str):
        check_ids(text, tokenizer, name)
        return text
    return [*info.prefix, *tokenizer.encode(text), *info.suffix]


def rerank_texts(body: RerankRequest, info: EmbeddingInfo, tokenizer: Tokenizer) -> Texts:
    """The ids of the query with each document. Raises ClientError."""
    if info.pooling != "rank":
        raise InvalidRequest(
            "This model does not rank documents: load one with rank pooling, or compare embeddings.", param="model"
        )
    names = [f"documents[{index}]" for index in range(len(body.documents))]
    documents = (document.text for document in body.documents)
    query = tokenizer.encode(body.query)
    _proved([query], ["query"], info, "query")
    if info.pair_template is None:
        start = (*info.prefix, *query, *info.middle)
        pairs: Iterable[Sequence[int]] = ((*start, *tokenizer.encode(text), *info.suffix) for text in documents)
    else:
        encoder, template = PromptEncoder(tokenizer), info.pair_template
        pairs = (_filled(encoder, template, body.query, text) for text in documents)
    return _proved(pairs, names, info, "documents")


def _filled(encoder: PromptEncoder, template: str, query: str, document: str) -> Sequence[int]:
    """The pair in the model's own words; nothing that the client wrote is special."""
    text, contents, end = "", [], 0
    for place in _PLACES.finditer(template):
        text += template[end : place.start()]
        value = query if place[1] == "query" else document
        contents.append(Span(len(text), len(text) + len(value)))
        text += value
        end = place.end()
    return encoder.encode(text + template[end:], contents)


def _proved(texts: Iterable[Sequence[int]], names: Sequence[str], info: EmbeddingInfo, param: str) -> Texts:
    """The texts, taken one by one, so that too many tokens are refused before they are all there."""
    proved: Texts = []
    total = 0
    for ids, name in zip(texts, names, strict=True):
        if not ids:
            raise InvalidRequest(f"{name!r} has no tokens.", param=name)
        if len(ids) > info.max_tokens:
            raise ContextLengthExceeded(
                f"This model takes texts of at most {info.max_tokens} tokens, but {name!r} has {len(ids)} tokens. "
                "Shorten it.",
                param=name,
            )
        proved.append(ids)
        total += len(ids)
        if total > MAX_TOKENS:
            raise InvalidRequest(
                f"{param!r} has more than {MAX_TOKENS} tokens, the most that one request may have.", param=param
            )
    return proved


def embeddings_body(body: EmbeddingRequest, vectors: Sequence[Vector], num_tokens: int, model: str) -> bytes:
    """Written item by item: one call for millions of numbers would hold up every other thread."""
    units = unit_vectors(vectors, body.dimensions or len(vectors[0]))
    usage = dumps({"prompt_tokens": num_tokens, "total_tokens": num_tokens})
    data = ",".join(_items(units, is_base64=body.encoding_format == "base64"))
    return f'{{"object":"list","data":[{data}],"model":{dumps(model)},"usage":{usage}}}'.encode()


def _items(units: Vectors, *, is_base64: bool) -> Iterator[str]:
    for index, unit in enumerate(units):
        embedding = b64encode(unit.astype("<f4").tobytes()).decode() if is_base64 else unit.tolist()
        yield dumps({"object": "embedding", "index": index, "embedding": embedding})


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
