"""Vectors of texts: the mean of a model's last hidden states, one text after another."""

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np
from mlx_lm.models.cache import make_prompt_cache

from proxy_inference_engine.runners.base import EmbeddingInfo, TokenIds, Vector, Vectors
from proxy_inference_engine.runners.mlx.head import OutputHead
from proxy_inference_engine.runners.mlx.model import MlxModel


class MlxEmbedder:
    """Implements `base.Embedder`. A text is computed in pieces; its caches live as long as it takes."""

    max_batch_tokens = 2048
    max_texts = 32

    def __init__(self, loaded: MlxModel, head: OutputHead, *, max_tokens: int) -> None:
        self._loaded = loaded
        self._head = head
        bos_id = loaded.vocabulary.bos_id
        probe = head.hidden(mx.array([[0]]), make_prompt_cache(loaded.model))
        self.info = EmbeddingInfo(
            pooling="mean",
            num_dimensions=int(probe.shape[-1]),
            max_tokens=max_tokens,
            prefix=() if bos_id is None else (bos_id,),
        )
        self._texts: list[TokenIds] = []
        self._vectors: list[Vector] = []
        self._next()

    def begin(self, texts: Sequence[TokenIds]) -> None:
        self._texts = list(texts)
        self._vectors = []
        self._next()

    def advance(self, max_tokens: int) -> Vectors | None:
        num_left = max_tokens
        while self._texts and num_left > 0:
            num_left -= self._compute(min(num_left, self.max_batch_tokens))
        return None if self._texts else np.stack(self._vectors)

    def _next(self) -> None:
        """Make ready for a text."""
        self._caches: list[Any] = []
        self._total = mx.zeros((self.info.num_dimensions,))
        self._num_done = 0

    def _compute(self, max_tokens: int) -> int:
        """A piece of the first text that is left; how many tokens it has."""
        text = self._texts[0]
        piece = text[self._num_done : self._num_done + max_tokens]
        self._caches = self._caches or make_prompt_cache(self._loaded.model)
        hidden = self._head.hidden(mx.array(piece)[None], self._caches).astype(mx.float32)
        self._total = self._total + hidden[0].sum(axis=0)
        mx.eval(self._total)
        self._num_done += len(piece)
        if self._num_done == len(text):
            self._vectors.append(np.array(self._total / len(text), np.float32))
            self._texts.pop(0)
            self._next()
        return len(piece)
