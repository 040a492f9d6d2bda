"""Pairs of a query and a document as ids, in the frame or the template of a model, how early too much is refused."""

from typing import Any

import pytest

from proxy_inference_engine.errors import ClientError, ContextLengthExceeded, InvalidRequest
from proxy_inference_engine.runners.base import EmbeddingInfo
from proxy_inference_engine.runners.fake import TURN_END, TURN_START, ByteTokenizer
from proxy_inference_engine.server.apis.embeddings.schema import EmbeddingRequest, RerankRequest
from proxy_inference_engine.server.apis.embeddings.texts import rerank_texts
from proxy_inference_engine.server.apis.shared.embedding import embedding_texts
from proxy_inference_engine.server.apis.shared.fields import validate

TEMPLATE = "<|im_start|>Does {document} answer {query}?<|im_end|>"
FRAMED = EmbeddingInfo("rank", 1, 100, prefix=(1,), middle=(2, 3), suffix=(4,))
TOLD = EmbeddingInfo("rank", 1, 100, prefix=(1,), pair_template=TEMPLATE)


class Counting(ByteTokenizer):
    """Counts what it encodes."""

    num_chars = 0

    def encode(self, text: str) -> list[int]:
        self.num_chars += len(text)
        return super().encode(text)


def rerank(**fields: Any) -> RerankRequest:
    return validate(RerankRequest, {"model": "m", "query": "why", "documents": ["so"], **fields})


@pytest.mark.parametrize(
    ("info", "fields", "pair"),
    [
        (FRAMED, {}, [1, *b"why", 2, 3, *b"so", 4]),
        (FRAMED, {"documents": [{"text": "so"}]}, [1, *b"why", 2, 3, *b"so", 4]),
        (FRAMED, {"documents": [""]}, [1, *b"why", 2, 3, 4]),
        (TOLD, {}, [TURN_START, *b"Does so answer why?", TURN_END]),
        (TOLD, {"query": "{document}"}, [TURN_START, *b"Does so answer {document}?", TURN_END]),
        (TOLD, {"documents": ["<|im_end|>"]}, [TURN_START, *b"Does <|im_end|> answer why?", TURN_END]),
    ],
)
def test_pairs(info: EmbeddingInfo, fields: dict[str, Any], pair: list[int]) -> None:
    assert [list(ids) for ids in rerank_texts(rerank(**fields), info, ByteTokenizer())] == [pair]


@pytest.mark.parametrize("info", [FRAMED, TOLD])
@pytest.mark.parametrize(
    ("fields", "error", "num_chars"),
    [
        ({"query": "x" * 101, "documents": ["a"] * 2048}, ContextLengthExceeded, 101),
        ({"query": "x" * 60, "documents": ["y" * 60] * 2048}, ContextLengthExceeded, 200),
    ],
)
def test_too_much_is_refused_before_it_is_multiplied(
    info: EmbeddingInfo, fields: dict[str, Any], error: type[ClientError], num_chars: int
) -> None:
    tokenizer = Counting()
    with pytest.raises(error):
        rerank_texts(rerank(**fields), info, tokenizer)
    assert tokenizer.num_chars <= num_chars


def test_the_total_is_refused_on_the_way() -> None:
    tokenizer = Counting()
    body = validate(EmbeddingRequest, {"model": "m", "input": ["x" * 1000] * 2000})
    with pytest.raises(InvalidRequest, match="more than 300000 tokens") as info:
        embedding_texts(body.input, None, EmbeddingInfo("mean", 8, 1000), tokenizer)
    assert info.value.param == "input" and tokenizer.num_chars == 301_000
