"""Rotary positions of three axes (time, height, width), as Qwen's vision models have them.

Text has the same position on all axes, which is plain rotary embedding; only rows with images need this file.
"""

from typing import NamedTuple

import mlx.core as mx
import numpy as np
from mlx import nn
from numpy.typing import NDArray

from proxy_inference_engine.runners.mlx.vision.family import VisionCache

AXES = 3


class Angles(NamedTuple):
    """How far the tokens of a row are turned: (tokens, dimensions / 2) each."""

    cos: mx.array
    sin: mx.array


class Mrope:
    """Stands in for the rotary embedding of an attention: an offset that is `Angles` is applied as it is."""

    def __init__(self, plain: nn.RoPE) -> None:
        self._plain = plain

    def __call__(self, x: mx.array, offset: "int | mx.array | Angles" = 0) -> mx.array:
        if not isinstance(offset, Angles):
            turned: mx.array = self._plain(x, offset=offset)  # type: ignore[arg-type]  # it takes arrays as well
            return turned
        left, right = mx.split(x.astype(mx.float32), 2, axis=-1)
        cos, sin = offset
        return mx.concatenate([left * cos - right * sin, right * cos + left * sin], axis=-1).astype(x.dtype)


class PlacedCache:
    """A layer's cache whose new tokens are turned by angles instead of their index."""

    def __init__(self, cache: VisionCache, angles: Angles) -> None:
        self._cache = cache
        self.offset = angles

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        return self._cache.update_and_fetch(keys, values)


class Turner:
    """Positions to angles. The axes take turns over the frequencies, time first, until their sections are used up."""

    def __init__(self, rope: nn.RoPE, sections: tuple[int, int, int]) -> None:
        num_frequencies = rope.dims // 2
        self._frequencies = rope.base ** -(np.arange(num_frequencies) / num_frequencies)
        self._axes = np.zeros(num_frequencies, np.int64)
        for axis in range(1, AXES):
            self._axes[axis : sections[axis] * AXES : AXES] = axis

    def angles(self, positions: NDArray[np.int64]) -> Angles:
        """The angles of positions (axes, tokens)."""
        turns = positions[self._axes].T * self._frequencies  # (tokens, frequencies)
        return Angles(mx.array(np.cos(turns).astype(np.float32)), mx.array(np.sin(turns).astype(np.float32)))
