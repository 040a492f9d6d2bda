"""Images for MLX models: rows that hold some are embedded and computed here, alone; all other rows stay plain text.

The language model is the one mlx-lm loaded; only the image tower beside it is loaded here. Knows no slots.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path

import mlx.core as mx
from mlx import nn

from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.runners.base import ImageEncoder, Tokenizer
from proxy_inference_engine.runners.checkpoint import Json
from proxy_inference_engine.runners.mlx.vision.family import Embedded, EncodedImage, Family, Features, VisionCache
from proxy_inference_engine.runners.mlx.vision.gemma3 import Gemma3
from proxy_inference_engine.runners.mlx.vision.language import LanguageModel
from proxy_inference_engine.runners.mlx.vision.qwen3_vl import Qwen3VL
from proxy_inference_engine.runners.mlx.vision.tower import has_tower
from proxy_inference_engine.types import Image, ImageSpan

MAX_FEATURE_BYTES = 256 << 20

_FAMILIES: dict[str, type[Gemma3] | type[Qwen3VL]] = {"gemma3": Gemma3, "qwen3_vl": Qwen3VL, "qwen3_vl_moe": Qwen3VL}


class FeatureCache:
    """Encoded images, kept on the device by their digest; bounded by bytes, the least recently used dropped first.

    `encode` is called once for an image that is not here; then its buffers go back to the system.
    """

    def __init__(self, encode: Callable[[Image], Features], max_bytes: int) -> None:
        self._encode = encode
        self._max_bytes = max_bytes
        self._kept: OrderedDict[bytes, Features] = OrderedDict()
        self.num_bytes = 0
        self.num_hits = 0
        self.num_misses = 0

    def get(self, image: Image) -> Features:
        found = self._kept.get(image.digest)
        if found is not None:
            self.num_hits += 1
            self._kept.move_to_end(image.digest)
            return found
        self.num_misses += 1
        features = self._encode(image)
        # Computed here and now, so that never more than one image's activations are alive.
        mx.eval(features.rows, features.deepstack)
        mx.clear_cache()
        self._keep(image.digest, features)
        return features

    def clear(self) -> None:
        self._kept.clear()
        self.num_bytes = 0

    def _keep(self, digest: bytes, features: Features) -> None:
        if features.num_bytes > self._max_bytes:
            return
        while self.num_bytes + features.num_bytes > self._max_bytes:
            _, dropped = self._kept.popitem(last=False)
            self.num_bytes -= dropped.num_bytes
        self._kept[digest] = features
        self.num_bytes += features.num_bytes


class Vision:
    """Computes rows with images. Everything but `image_encoder` belongs to the engine thread."""

    def __init__(self, family: Family, language: LanguageModel, max_feature_bytes: int = MAX_FEATURE_BYTES) -> None:
        self._family = family
        self._language = language
        self.features = FeatureCache(family.encode, max_feature_bytes)

    @property
    def image_encoder(self) -> ImageEncoder:
        return self._family.image_encoder

    def holds_image(self, start: int, num_tokens: int, images: tuple[ImageSpan, ...]) -> bool:
        """Whether a row holds an image; one that does not is text, turned by `shift`."""
        return any(start <= span.start < start + num_tokens for span in images)

    def shift(self, start: int, images: tuple[ImageSpan, ...]) -> int:
        """Rotary position less index, of the tokens of a row of text at `start`; never positive."""
        return self._family.shift(start, images)

    def embed(self, ids: mx.array, start: int, images: tuple[ImageSpan, ...]) -> Embedded:
        """A row of (tokens,) at `start`; ids below zero are pieces of images. Waits for what has to be encoded."""
        hidden = self._family.words(mx.maximum(ids, 0)[None])
        encoded = []
        for span in images:
            if start <= span.start < start + ids.shape[0]:
                one = EncodedImage(span.start - start, self.features.get(span.image))
                assert one.end - one.start == span.num_tokens, "a span of another length than its image has tokens"
                hidden[:, one.start : one.end] = one.features.rows.astype(hidden.dtype)
                encoded.append(one)
        return Embedded(hidden, start, tuple(encoded), images)

    def call(self, row: Embedded, caches: Sequence[VisionCache]) -> mx.array:
        """All layers and the last norm, extending the caches: (1, tokens, hidden)."""
        return self._family.call(row, caches)

    def head(self, hidden: mx.array) -> mx.array:
        """Logits of hidden states (…, hidden)."""
        return self._language.head(hidden)


def load_vision(folder: Path, config: Json, model: nn.Module, tokenizer: Tokenizer) -> Vision | None:
    """The image tower of a model; None where there is none, or one of an unknown family. Raises StartupError."""
    family = _FAMILIES.get(config.get("model_type", ""))
    if family is None or not config.get("vision_config") or not has_tower(folder):
        return None
    language = LanguageModel(model)
    try:
        return Vision(family(folder, config, language, tokenizer), language)
    except (KeyError, TypeError, ValueError) as error:
        raise StartupError(
            f"The image tower in {folder} is described in a way that is not understood: {error!r}."
        ) from error
