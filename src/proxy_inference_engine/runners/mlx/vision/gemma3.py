"""Gemma 3: every image becomes a square of one size and the same number of tokens, which see each other both ways."""

from collections.abc import Sequence
from pathlib import Path

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx_vlm.models import gemma3
from mlx_vlm.models.gemma3.gemma3 import Gemma3MultiModalProjector
from PIL import Image as Pillow

from proxy_inference_engine.errors import InvalidRequest, StartupError
from proxy_inference_engine.runners.base import ImageTokens, Tokenizer
from proxy_inference_engine.runners.checkpoint import Json
from proxy_inference_engine.runners.mlx.vision.family import Embedded, Features, VisionCache
from proxy_inference_engine.runners.mlx.vision.language import LanguageModel
from proxy_inference_engine.runners.mlx.vision.tower import join, load_tower
from proxy_inference_engine.runners.vision.pixels import Pixels, read_settings
from proxy_inference_engine.types import Image, ImageSpan

START = "<start_of_image>"
SOFT = "<image_soft_token>"
END = "<end_of_image>"
AROUND = "\n\n"


class Gemma3ImageEncoder:
    """Implements `base.ImageEncoder`: a template writes the start token, and all the rest is put around it."""

    before = after = AROUND

    def __init__(self, tokenizer: Tokenizer, num_tokens: int) -> None:
        specials = tokenizer.specials
        missing = [text for text in (START, SOFT, END) if text not in specials]
        if missing:
            raise StartupError(f"The tokenizer of this Gemma 3 model lacks {', '.join(missing)}.")
        soft = [specials[SOFT]] * num_tokens
        self._tokens = ImageTokens((specials[START], *soft, specials[END]), 1, num_tokens)

    @property
    def marker(self) -> str:
        return START

    def tokens(self, width: int, height: int) -> ImageTokens:
        if width < 1 or height < 1:
            raise InvalidRequest(f"An image of {width}x{height} pixels cannot be seen.")
        return self._tokens


class Gemma3:
    """Implements `Family`."""

    def __init__(self, folder: Path, config: Json, language: LanguageModel, tokenizer: Tokenizer) -> None:
        settings = read_settings(folder)
        self._language = language
        self._tower = _tower(config)
        self._size = int(config["vision_config"].get("image_size", 224))
        self._check(settings)
        self._pixels = Pixels.of(settings, Pillow.Resampling.BILINEAR)
        load_tower(folder, config, self._tower)
        self._image_encoder = Gemma3ImageEncoder(tokenizer, _num_tokens(config))
        # Rounded as the language model rounds it.
        self._scale = mx.array(language.args.hidden_size**0.5, mx.bfloat16)

    @property
    def image_encoder(self) -> Gemma3ImageEncoder:
        return self._image_encoder

    def encode(self, image: Image) -> Features:
        pixels = self._pixels.prepare(image.pixels, self._size, self._size)
        vision = self._tower.vision_tower
        dtype = vision.vision_model.embeddings.patch_embedding.weight.dtype
        hidden, _, _ = vision(mx.array(pixels)[None].astype(dtype))
        return Features(self._tower.multi_modal_projector(hidden)[0])

    def words(self, ids: mx.array) -> mx.array:
        hidden = self._language.embed(ids)
        return hidden * self._scale.astype(hidden.dtype)

    def shift(self, start: int, images: tuple[ImageSpan, ...]) -> int:
        return 0

    def call(self, row: Embedded, caches: Sequence[VisionCache]) -> mx.array:
        hidden = row.hidden
        masks: dict[bool, mx.array] = {}
        for layer, cache in zip(self._language.layers, caches, strict=True):
            is_sliding = layer.self_attn.is_sliding
            if is_sliding not in masks:
                masks[is_sliding] = _mask(row, cache, self._language.window if is_sliding else None)
            hidden = layer(hidden, masks[is_sliding], cache)
        return self._language.norm(hidden)

    def _check(self, settings: Json) -> None:
        size = settings.get("size") or {}
        if size and (size.get("width"), size.get("height")) != (self._size, self._size):
            raise StartupError(f"The processor files make images of {size}, but the tower takes {self._size} a side.")


def _tower(config: Json) -> nn.Module:
    vision = gemma3.VisionConfig.from_dict(config["vision_config"])
    text = gemma3.TextConfig.from_dict(config["text_config"])
    text.mm_tokens_per_image = _num_tokens(config)
    whole = gemma3.ModelConfig(text_config=text, vision_config=vision, model_type="gemma3")
    tower = gemma3.VisionModel(vision)
    tower.vision_model.post_layernorm.eps = vision.layer_norm_eps  # mlx-vlm leaves its own default there
    return join(vision_tower=tower, multi_modal_projector=Gemma3MultiModalProjector(whole))


def _num_tokens(config: Json) -> int:
    return int(config.get("mm_tokens_per_image") or config["text_config"].get("mm_tokens_per_image") or 256)


def _mask(row: Embedded, cache: VisionCache, window: int | None) -> mx.array:
    """The mask of a row: text sees what is before it, and every image the whole of itself."""
    num_tokens = row.hidden.shape[1]
    causal: mx.array = cache.make_mask(num_tokens, window_size=window, return_array=True)  # (new, all)
    before = causal.shape[-1] - num_tokens
    own = np.zeros((num_tokens, causal.shape[-1]), np.bool_)
    for image in row.encoded:
        own[image.start : image.end, before + image.start : before + image.end] = True
    return causal | mx.array(own)
