"""What one family of vision models must say of itself, and the values that go between it and `vision.py`."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import mlx.core as mx

from proxy_inference_engine.runners.base import Eyes
from proxy_inference_engine.types import Image, ImageSpan


class LayerCache(Protocol):
    """The KV of one layer of one sequence, as mlx-lm's attention uses it."""

    @property
    def offset(self) -> int: ...

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Take (1, heads, tokens, dimensions) of both; all that the new tokens may look at."""
        ...

    def make_mask(self, num_tokens: int, *, window_size: int | None, return_array: bool) -> Any:
        """What new tokens see: "causal", None, or booleans (new tokens, all tokens)."""
        ...


class Features(NamedTuple):
    """An encoded image."""

    rows: mx.array  # (tokens, hidden): stands where embeddings of tokens stand
    deepstack: tuple[mx.array, ...] = ()  # (tokens, hidden) each: added to what the first layers give

    @property
    def num_bytes(self) -> int:
        return int(self.rows.nbytes + sum(part.nbytes for part in self.deepstack))


class Seen(NamedTuple):
    """An encoded image in a row: where in the row it stands."""

    start: int
    features: Features

    @property
    def end(self) -> int:
        return self.start + int(self.features.rows.shape[0])


class Embedded(NamedTuple):
    """A row that is ready for the layers."""

    hidden: mx.array  # (1, tokens, hidden)
    start: int  # position of its first token in the sequence
    seen: tuple[Seen, ...]
    images: tuple[ImageSpan, ...]  # all of the sequence


class Family(Protocol):
    """How one architecture encodes images and computes a row that holds some. Belongs to the engine thread."""

    @property
    def eyes(self) -> Eyes: ...

    def encode(self, image: Image) -> Features:
        """Order the work of the image tower."""
        ...

    def words(self, ids: mx.array) -> mx.array:
        """(1, tokens) → (1, tokens, hidden): what the first layer gets for text."""
        ...

    def shift(self, start: int, images: tuple[ImageSpan, ...]) -> int:
        """By how much the rotary position of text at `start` differs from its index."""
        ...

    def call(self, row: Embedded, caches: Sequence[LayerCache]) -> mx.array:
        """All layers and the last norm: (1, tokens, hidden)."""
        ...
