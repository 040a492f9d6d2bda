"""The bodies of POST /v1/embeddings (as OpenAI's) and /v1/rerank (as Jina's)."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainValidator

from proxy_inference_engine.server.apis.shared.embedding import MAX_TEXTS, MAX_TOKENS, Input
from proxy_inference_engine.server.apis.shared.fields import Label, Positive, RequestSchema


def _inputs(value: Any) -> list[Input]:
    """The four ways to write texts, as one: string, list of strings, token ids, lists of token ids."""
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list) or not value:
        raise ValueError("a string, a list of strings, token ids or lists of token ids are expected, and not none")
    if type(value[0]) is int:
        return [_ids(value)]
    if len(value) > MAX_TEXTS:
        raise ValueError(f"{len(value)} texts are too many, at most {MAX_TEXTS} are allowed")
    if all(isinstance(item, str) for item in value):
        return value
    return [_ids(item) for item in value]


def _ids(value: Any) -> list[int]:
    if not isinstance(value, list) or not value or any(type(item) is not int for item in value):
        raise ValueError("a list has to hold either strings, or token ids, or non-empty lists of token ids")
    if len(value) > MAX_TOKENS:
        raise ValueError(f"{len(value)} token ids are too many, at most {MAX_TOKENS} are allowed")
    return value


class EmbeddingRequest(RequestSchema):
    model: str | None = None
    input: Annotated[list[Input], PlainValidator(_inputs)]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Positive | None = None
    user: Label | None = None


class RerankDocument(RequestSchema):
    text: str


def _document(value: object) -> object:
    return {"text": value} if isinstance(value, str) else value


class RerankRequest(RequestSchema):
    model: str | None = None
    query: Annotated[str, Field(min_length=1)]
    documents: Annotated[
        list[Annotated[RerankDocument, BeforeValidator(_document)]],
        Field(min_length=1, max_length=MAX_TEXTS, fail_fast=True),
    ]
    top_n: Positive | None = None
    return_documents: bool = True
