"""What one family of vision models must say of itself, and the values that go between it and `image_rows.py`."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import mlx.core as mx

from proxy_inference_engine.runners.base import ImageEncoder
from proxy_inference_engine.types import Image, ImageSpan


class VisionCache(Protocol):
    """The KV of one layer of one sequence, as mlx-lm's attention uses it."""

    @property
    def offset(self) -> int: ...

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Add keys and values (1, heads, tokens, dimensions); all of both that the new tokens may attend to."""
        ...

    def make_mask(self, num_tokens: int, *, window_size: int | None, return_array: bool) -> Any:
        """What new tokens see: "causal", None, or booleans (new tokens, all tokens)."""
        ...


class Features(NamedTuple):
    """What the image tower makes of an image."""

    rows: mx.array  # (tokens, hidden): stands where embeddings of tokens stand
    deepstack: tuple[mx.array, ...] = ()  # (tokens, hidden) each: added to what the first layers give

    @property
    def num_bytes(self) -> int:
        return int(self.rows.nbytes + sum(part.nbytes for part in self.deepstack))


class EncodedImage(NamedTuple):
    """The features of an image, and where in a row it stands."""

    start: int
    features: Features

    @property
    def end(self) -> int:
        return self.start + int(self.features.rows.shape[0])


class Embedded(NamedTuple):
    """A row that is ready for the layers."""

    hidden: mx.array  # (1, tokens, hidden)
    start: int  # position of its first token in the sequence
    encoded: tuple[EncodedImage, ...]
    images: tuple[ImageSpan, ...]  # all of the sequence


class Family(Protocol):
    """How one architecture encodes images and computes a row that holds some. Belongs to the engine thread."""

    @property
    def image_encoder(self) -> ImageEncoder: ...

    def encode(self, image: Image) -> Features:
        """Order the work of the image tower."""
        ...

    def words(self, ids: mx.array) -> mx.array:
        """(1, tokens) → (1, tokens, hidden): what the first layer gets for text."""
        ...

    def shift(self, start: int, images: tuple[ImageSpan, ...]) -> int:
        """How much the rotary position of text at `start` differs from its index."""
        ...

    def call(self, row: Embedded, caches: Sequence[VisionCache]) -> mx.array:
        """All layers and the last norm: (1, tokens, hidden)."""
        ...
