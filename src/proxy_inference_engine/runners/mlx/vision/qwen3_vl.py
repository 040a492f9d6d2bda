"""Qwen 3 VL, dense or with experts: features go into the first layers too, and positions have three axes."""

from collections.abc import Sequence
from pathlib import Path

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx_vlm.models import qwen3_vl
from numpy.typing import NDArray

from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.runners.base import Tokenizer
from proxy_inference_engine.runners.checkpoint import Json
from proxy_inference_engine.runners.mlx.vision.family import Embedded, Features, VisionCache
from proxy_inference_engine.runners.mlx.vision.language import LanguageModel
from proxy_inference_engine.runners.mlx.vision.mrope import AXES, Mrope, PlacedCache, Turner
from proxy_inference_engine.runners.mlx.vision.tower import join, load_tower
from proxy_inference_engine.runners.vision.grid import Cutter, Grid, QwenImageEncoder
from proxy_inference_engine.runners.vision.pixels import read_settings
from proxy_inference_engine.types import Image, ImageSpan

_SECTIONS = (24, 20, 20)

# Of one image. Files allow 16,384; a CPU keeps a number for each pair of patches, and a token is four patches.
_MAX_TOKENS = {mx.DeviceType.gpu: 4096, mx.DeviceType.cpu: 1024}


class Qwen3VL:
    """Implements `Family`."""

    def __init__(self, folder: Path, config: Json, language: LanguageModel, tokenizer: Tokenizer) -> None:
        # One tower for all: mlx-vlm's other copy of it has its activations mixed up, and newer files a name it rejects.
        vision = qwen3_vl.VisionConfig.from_dict({**config["vision_config"], "model_type": "qwen3_vl"})
        self._language = language
        self._cutter = Cutter.of(read_settings(folder), _MAX_TOKENS[mx.default_device().type])
        _check(self._cutter, config["vision_config"])
        self._image_encoder = QwenImageEncoder(tokenizer, self._cutter)
        self._tower = join(vision_tower=qwen3_vl.VisionModel(vision))
        load_tower(folder, config, self._tower)
        self._turner = _turn_by_axes(language, config)

    @property
    def image_encoder(self) -> QwenImageEncoder:
        return self._image_encoder

    def encode(self, image: Image) -> Features:
        grid, merge = self._grid(image), self._cutter.merge
        sides = mx.array([[1, grid.num_rows * merge, grid.num_columns * merge]])
        vision = self._tower.vision_tower
        patches = mx.array(self._cutter.patches(image.pixels)).astype(vision.patch_embed.proj.weight.dtype)
        rows, deepstack = vision(patches, sides)
        return Features(rows, tuple(deepstack))

    def words(self, ids: mx.array) -> mx.array:
        return self._language.embed(ids)

    def shift(self, start: int, images: tuple[ImageSpan, ...]) -> int:
        return sum(self._grid(span.image).extent - span.num_tokens for span in images if span.start < start)

    def call(self, row: Embedded, caches: Sequence[VisionCache]) -> mx.array:
        hidden = row.hidden
        mask = caches[0].make_mask(hidden.shape[1], window_size=None, return_array=False)
        angles = self._turner.angles(self.positions(row.start, hidden.shape[1], row.images))
        for index, (layer, cache) in enumerate(zip(self._language.layers, caches, strict=True)):
            hidden = layer(hidden, mask, PlacedCache(cache, angles))
            for image in row.encoded:
                if index < len(image.features.deepstack):
                    deeper = image.features.deepstack[index].astype(hidden.dtype)
                    hidden = hidden.at[:, image.start : image.end].add(deeper)
        return self._language.norm(hidden)

    def positions(self, start: int, num_tokens: int, images: tuple[ImageSpan, ...]) -> NDArray[np.int64]:
        """(axes, tokens): text counts on all axes; an image counts its rows and columns from where it starts."""
        end = start + num_tokens
        places = np.tile(np.arange(start, end) + self.shift(start, images), (AXES, 1))
        for span in images:
            if start <= span.start < end:
                grid, first = self._grid(span.image), span.start - start
                after = first + span.num_tokens
                place = places[0, first]
                places[:, after:] += grid.extent - span.num_tokens
                places[0, first:after] = place
                places[1, first:after] = place + np.repeat(np.arange(grid.num_rows), grid.num_columns)
                places[2, first:after] = place + np.tile(np.arange(grid.num_columns), grid.num_rows)
        return places

    def _grid(self, image: Image) -> Grid:
        height, width = image.pixels.shape[:2]
        return self._cutter.grid(width, height)


def _check(cutter: Cutter, vision: Json) -> None:
    for name, ours in (
        ("patch_size", cutter.patch),
        ("spatial_merge_size", cutter.merge),
        ("temporal_patch_size", cutter.frames),
    ):
        if vision.get(name, ours) != ours:
            raise StartupError(f"The processor files say {ours} where the image tower has a {name} of {vision[name]}.")


def _turn_by_axes(language: LanguageModel, config: Json) -> Turner:
    """Let every attention take angles as well as an offset."""
    text = config["text_config"]
    scaling = text.get("rope_scaling") or text.get("rope_parameters") or {}
    time, height, width = scaling.get("mrope_section") or _SECTIONS
    rope = language.layers[0].self_attn.rope
    if not isinstance(rope, nn.RoPE):
        raise StartupError(f"Images with a rotary embedding of type {type(rope).__name__} are not supported.")
    for layer in language.layers:
        layer.self_attn.rope = Mrope(layer.self_attn.rope)
    return Turner(rope, (time, height, width))
