"""Texts to the ids that a model wants, and ids to vectors: what every API that embeds does alike."""

import time
from collections.abc import Iterable, Sequence
from typing import Any

from proxy_inference_engine.errors import ContextLengthExceeded, InvalidRequest
from proxy_inference_engine.runners.base import EmbeddingInfo, Tokenizer, Vector
from proxy_inference_engine.served.request import check_ids, check_text, cut_hopeless
from proxy_inference_engine.server.apis.shared.route import Exchange
from proxy_inference_engine.server.http.lifetime import supervise

MAX_TEXTS = 2048
MAX_TOKENS = 300_000  # of one request, all texts together
NUMBER_CHARS = 20  # what one number takes in an answer

Input = str | list[int]
TextIds = list[Sequence[int]]


def embedding_texts(
    inputs: Sequence[Input],
    dimensions: int | None,
    info: EmbeddingInfo,
    tokenizer: Tokenizer,
    *,
    param: str = "input",
    cuts: bool = False,
) -> TextIds:
    """The ids of every input; with `cuts`, what is too long loses its end. Raises ClientError that names the input."""
    if info.pooling == "rank":
        raise InvalidRequest("This model ranks documents, it makes no embeddings: use /v1/rerank.", param="model")
    if dimensions is not None and dimensions > info.num_dimensions:
        raise InvalidRequest(
            f"'dimensions' is {dimensions}, but this model's embeddings have {info.num_dimensions}.",
            param="dimensions",
        )
    names = [param] if len(inputs) == 1 else [f"{param}[{index}]" for index in range(len(inputs))]
    pairs = zip(inputs, names, strict=True)
    return checked_texts((_input_ids(text, name, info, tokenizer, cuts) for text, name in pairs), names, info, param)


def _input_ids(text: Input, name: str, info: EmbeddingInfo, tokenizer: Tokenizer, cuts: bool) -> Sequence[int]:
    """A text gets the tokens that the model wants around it; token ids are taken as they are."""
    if not text:
        raise InvalidRequest(f"{name!r} is empty.", param=name)
    if not isinstance(text, str):
        check_ids(text, tokenizer, name)
        return text
    if cuts:
        num_room = info.max_tokens - len(info.prefix) - len(info.suffix)
        return [*info.prefix, *tokenizer.encode(cut_hopeless(text, info.max_tokens))[:num_room], *info.suffix]
    check_text([text], tokenizer, info.max_tokens, name)
    return [*info.prefix, *tokenizer.encode(text), *info.suffix]


def checked_texts(texts: Iterable[Sequence[int]], names: Sequence[str], info: EmbeddingInfo, param: str) -> TextIds:
    """The texts, taken one by one, so that too many tokens are refused before they are all there."""
    checked: TextIds = []
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
        checked.append(ids)
        total += len(ids)
        if total > MAX_TOKENS:
            raise InvalidRequest(
                f"{param!r} has more than {MAX_TOKENS} tokens, the most that one request may have.", param=param
            )
    return checked


async def embed(exchange: Exchange[Any], texts: TextIds) -> list[Vector]:
    """Stops computing when the client leaves or the server ends."""
    drain = exchange.state.drain
    drain.check()
    num_tokens, began = sum(map(len, texts)), time.monotonic()
    exchange.note_prompt(num_tokens)
    work = exchange.model.embed(texts, exchange.tenant, exchange.rank.priority)
    vectors = await supervise(work, exchange.http.receive, drain)
    if exchange.visit.trace is not None:
        exchange.visit.trace.took("embed", began, exchange.model.id, num_tokens)
    return vectors
