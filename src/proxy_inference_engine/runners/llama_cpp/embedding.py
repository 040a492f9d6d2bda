"""Vectors of texts: an embedding context of its own, made on first use and as large as the longest text so far.

A causal model computes a text in pieces; its token vectors are pooled here. Any other model sees a batch as a whole and
llama.cpp pools. The context is unified: with a stream per text, llama.cpp pools texts of different lengths wrongly.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from proxy_inference_engine.runners.base import EmbeddingInfo, Pooling, Row, TokenIds, Vectors
from proxy_inference_engine.runners.llama_cpp.binding import floats
from proxy_inference_engine.runners.llama_cpp.lane import Batch
from proxy_inference_engine.runners.llama_cpp.model import Model
from proxy_inference_engine.runners.llama_cpp.tokenizer import Vocabulary

_POOLINGS: dict[str | None, Pooling] = {"1": "mean", "2": "cls", "3": "last", "4": "rank"}
_NONE = 0
_POOLING_TYPES: dict[Pooling, int] = {"mean": 1, "cls": 2, "last": 3, "rank": 4}
# llama.cpp computes the logits of every token too, and keeps them: this bounds the memory they take.
_MAX_BATCH = 256
_MAX_TEXTS = 32
_SOFTMAX_ARCHITECTURES = frozenset({"qwen3", "qwen3vl"})  # their ranking head ends in probabilities


@dataclass(slots=True)
class _Work:
    """One batch: all texts laid end to end, and how far they are computed."""

    texts: Sequence[TokenIds]
    sums: Vectors  # of token vectors, or the one that counts
    text: int = 0  # the first that is not computed, and how many of its tokens are
    position: int = 0


class LlamaEmbedder:
    """Implements `Embedder`."""

    max_batch_tokens = _MAX_BATCH
    max_texts = _MAX_TEXTS

    def __init__(self, model: Model, vocabulary: Vocabulary, *, threads: int, max_tokens: int) -> None:
        self._model = model
        self._threads = threads
        pooling = _POOLINGS.get(model.metadata(f"{model.architecture}.pooling_type"), "mean")
        self._is_divisible = model.can_generate and pooling != "rank"
        self._width = int(model.llama.llama_model_n_embd_out(model.handle))
        self._context: _EmbeddingContext | None = None
        self._work: _Work | None = None
        prefix, middle, suffix = vocabulary.frame()
        self.info = EmbeddingInfo(
            pooling=pooling,
            num_dimensions=1 if pooling == "rank" else self._width,
            max_tokens=min(max_tokens, model.context_tokens),
            prefix=prefix,
            middle=middle,
            suffix=suffix,
            pair_template=model.metadata("tokenizer.chat_template.rerank") if pooling == "rank" else None,
        )

    def begin(self, texts: Sequence[TokenIds]) -> None:
        assert 0 < len(texts) <= _MAX_TEXTS and all(len(ids) > 0 for ids in texts)
        self._work = None
        self._make_room(sum(len(ids) for ids in texts)).clear()
        self._work = _Work(texts, np.zeros((len(texts), self._width), np.float32))

    def advance(self, max_tokens: int) -> Vectors | None:
        assert self._work is not None and self._context is not None
        if not self._is_divisible:
            return self._compute_whole(self._work, self._context)
        rows = _next_rows(self._work, min(max_tokens, _MAX_BATCH))
        self._pool(self._work, rows, self._context.token_vectors(rows))
        if self._work.text < len(self._work.texts):
            return None
        vectors, self._work = self._work.sums, None
        return vectors

    def close(self) -> None:
        self._work = None
        if self._context is not None:
            self._context.close()
            self._context = None

    def _make_room(self, num_tokens: int) -> "_EmbeddingContext":
        """The context, grown to hold so many tokens: doubling, it is made anew a few times at most."""
        num_cells = _MAX_BATCH
        while num_cells < num_tokens:
            num_cells *= 2
        if self._context is None or self._context.num_cells < num_cells:
            self.close()
            pooling = _NONE if self._is_divisible else _POOLING_TYPES[self.info.pooling]
            piece = _MAX_BATCH if self._is_divisible else num_cells
            self._context = _EmbeddingContext(
                self._model, num_cells=num_cells, num_batch=piece, pooling=pooling, threads=self._threads
            )
        return self._context

    def _pool(self, work: _Work, rows: Sequence[Row], vectors: Vectors) -> None:
        start = 0
        for row in rows:
            piece = vectors[start : start + len(row.ids)]  # (tokens, dimensions)
            start += len(row.ids)
            total = len(work.texts[row.slot])
            if self.info.pooling == "mean":
                work.sums[row.slot] += piece.sum(axis=0) / total
            elif self.info.pooling == "cls" and row.start == 0:
                work.sums[row.slot] = piece[0]
            elif self.info.pooling == "last" and row.start + len(row.ids) == total:
                work.sums[row.slot] = piece[-1]

    def _compute_whole(self, work: _Work, context: "_EmbeddingContext") -> Vectors:
        rows = [Row(slot, 0, ids, len(ids)) for slot, ids in enumerate(work.texts)]
        self._work = None
        vectors = context.text_vectors(rows, self._width if self.info.pooling != "rank" else 1)
        if self.info.pooling != "rank" or self._model.architecture in _SOFTMAX_ARCHITECTURES:
            return vectors
        return ((np.tanh(vectors / 2) + 1) / 2).astype(np.float32)  # the logistic function, without its overflow


def _next_rows(work: _Work, max_tokens: int) -> list[Row]:
    """The next tokens of the batch, over as many texts as they reach."""
    rows: list[Row] = []
    while max_tokens > 0 and work.text < len(work.texts):
        ids = work.texts[work.text][work.position : work.position + max_tokens]
        rows.append(Row(work.text, work.position, ids, len(ids)))
        max_tokens -= len(ids)
        work.position += len(ids)
        if work.position == len(work.texts[work.text]):
            work.text, work.position = work.text + 1, 0
    return rows


class _EmbeddingContext:
    """One llama_context that gives vectors."""

    def __init__(self, model: Model, *, num_cells: int, num_batch: int, pooling: int, threads: int) -> None:
        self._llama = model.llama
        params = self._llama.llama_context_default_params()
        params.n_ctx = num_cells
        params.n_seq_max = _MAX_TEXTS
        params.kv_unified = True
        params.n_batch = params.n_ubatch = params.n_outputs_max = num_batch
        params.n_threads = params.n_threads_batch = threads
        params.embeddings = True
        params.pooling_type = pooling
        params.no_perf = True
        self.num_cells = num_cells
        self._width = int(self._llama.llama_model_n_embd_out(model.handle))
        self._model = model  # the context refers to it
        self._context = self._llama.llama_init_from_model(model.handle, params)
        if not self._context:
            raise MemoryError(f"llama.cpp could not make an embedding context of {num_cells} tokens")
        self._memory = self._llama.llama_get_memory(self._context)
        self._batch = Batch(num_batch)

    def clear(self) -> None:
        if self._memory:  # an encoder has none
            self._llama.llama_memory_clear(self._memory, False)

    def token_vectors(self, rows: Sequence[Row]) -> Vectors:
        """(tokens, dimensions): a view that the next call overwrites."""
        num_tokens = self._decode(rows)
        return floats(self._llama.llama_get_embeddings(self._context), num_tokens, self._width)

    def text_vectors(self, rows: Sequence[Row], width: int) -> Vectors:
        """(texts, width)"""
        self._decode(rows)
        addresses = [self._llama.llama_get_embeddings_seq(self._context, row.slot) for row in rows]
        return np.stack([floats(address, width) for address in addresses])

    def _decode(self, rows: Sequence[Row]) -> int:
        num_tokens = self._batch.fill(rows, 0)
        status = self._llama.llama_decode(self._context, self._batch.struct)
        if status != 0:
            raise RuntimeError(f"llama_decode returned {status} for embeddings")
        return num_tokens

    def close(self) -> None:
        if self._context:
            self._llama.llama_free(self._context)
            self._context = None
