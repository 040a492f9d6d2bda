"""The language model that mlx-lm loaded, opened: embeddings, layers, last norm, head."""

from typing import Any

import mlx.core as mx
from mlx import nn


class LanguageModel:
    """Shares every weight with the model it is made of."""

    def __init__(self, model: nn.Module) -> None:
        self._whole: Any = model.language_model
        self._body: Any = self._whole.model

    @property
    def layers(self) -> list[Any]:
        return list(self._body.layers)

    @property
    def window(self) -> int | None:
        """How many tokens the layers that do not see everything see."""
        return getattr(self._body, "window_size", None)

    @property
    def args(self) -> Any:
        return self._body.args

    def embed(self, ids: mx.array) -> mx.array:
        hidden: mx.array = self._body.embed_tokens(ids)
        return hidden

    def norm(self, hidden: mx.array) -> mx.array:
        normed: mx.array = self._body.norm(hidden)
        return normed

    def head(self, hidden: mx.array) -> mx.array:
        is_tied = "lm_head" not in self._whole
        logits: mx.array = self._body.embed_tokens.as_linear(hidden) if is_tied else self._whole.lm_head(hidden)
        return logits
