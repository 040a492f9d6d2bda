"""Eyes for MLX models: rows that hold images are embedded and computed here, alone; all other rows stay plain text.

The language model is the one mlx-lm loaded; only the image tower beside it is loaded here. Knows no slots.
"""

from collections.abc import Sequence
from pathlib import Path

import mlx.core as mx
from mlx import nn

from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.runners.base import Eyes, Tokenizer
from proxy_inference_engine.runners.checkpoint import Json
from proxy_inference_engine.runners.mlx.vision_family import Embedded, Family, LayerCache, Seen
from proxy_inference_engine.runners.mlx.vision_features import FeatureCache
from proxy_inference_engine.runners.mlx.vision_gemma3 import Gemma3
from proxy_inference_engine.runners.mlx.vision_language import Language
from proxy_inference_engine.runners.mlx.vision_qwen3_vl import Qwen3VL
from proxy_inference_engine.runners.mlx.vision_tower import has_tower
from proxy_inference_engine.types import ImageSpan

MAX_FEATURE_BYTES = 256 << 20

_FAMILIES: dict[str, type[Gemma3] | type[Qwen3VL]] = {"gemma3": Gemma3, "qwen3_vl": Qwen3VL, "qwen3_vl_moe": Qwen3VL}


class Vision:
    """Everything but `eyes` belongs to the engine thread."""

    def __init__(self, family: Family, language: Language, max_feature_bytes: int = MAX_FEATURE_BYTES) -> None:
        self._family = family
        self._language = language
        self.features = FeatureCache(family.encode, max_feature_bytes)

    @property
    def eyes(self) -> Eyes:
        return self._family.eyes

    def sees(self, start: int, num_tokens: int, images: tuple[ImageSpan, ...]) -> bool:
        """Whether a row holds an image; one that does not is text, turned by `shift`."""
        return any(start <= span.start < start + num_tokens for span in images)

    def shift(self, start: int, images: tuple[ImageSpan, ...]) -> int:
        """Rotary position less index, of the tokens of a row of text at `start`; never positive."""
        return self._family.shift(start, images)

    def embed(self, ids: mx.array, start: int, images: tuple[ImageSpan, ...]) -> Embedded:
        """A row of (tokens,) at `start`; ids below zero are pieces of images. Waits for what has to be encoded."""
        hidden = self._family.words(mx.maximum(ids, 0)[None])
        seen = []
        for span in images:
            if start <= span.start < start + ids.shape[0]:
                one = Seen(span.start - start, self.features.get(span.image))
                assert one.end - one.start == span.num_tokens, "a span of another length than its image has tokens"
                hidden[:, one.start : one.end] = one.features.rows.astype(hidden.dtype)
                seen.append(one)
        return Embedded(hidden, start, tuple(seen), images)

    def call(self, row: Embedded, caches: Sequence[LayerCache]) -> mx.array:
        """All layers and the last norm, extending the caches: (1, tokens, hidden)."""
        return self._family.call(row, caches)

    def head(self, hidden: mx.array) -> mx.array:
        """Logits of (…, hidden)."""
        return self._language.head(hidden)


def load_vision(folder: Path, config: Json, model: nn.Module, tokenizer: Tokenizer) -> Vision | None:
    """None for a model without an image tower, or with one of a family that is not known. Raises StartupError."""
    family = _FAMILIES.get(config.get("model_type", ""))
    if family is None or not config.get("vision_config") or not has_tower(folder):
        return None
    language = Language(model)
    try:
        return Vision(family(folder, config, language, tokenizer), language)
    except (KeyError, TypeError, ValueError) as error:
        raise StartupError(
            f"The image tower in {folder} is described in a way that is not understood: {error!r}."
        ) from error
