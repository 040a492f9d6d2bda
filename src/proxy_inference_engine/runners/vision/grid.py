"""How Qwen's vision models cut an image: a size near its own that tokens divide, patches in the tower's order."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow

from proxy_inference_engine.errors import InvalidRequest, StartupError
from proxy_inference_engine.runners.base import ImageTokens, Tokenizer
from proxy_inference_engine.runners.checkpoint import Json
from proxy_inference_engine.runners.vision.pixels import Pixels

MARKER = "<|image_pad|>"
MAX_RATIO = 200  # of the longer side to the shorter one; the models saw nothing beyond


class Grid(NamedTuple):
    """Tokens of an image, in rows and columns."""

    num_rows: int
    num_columns: int

    @property
    def num_tokens(self) -> int:
        return self.num_rows * self.num_columns

    @property
    def extent(self) -> int:
        """How many rotary positions the image takes up."""
        return max(self)


@dataclass(frozen=True, slots=True)
class Cutter:
    """A token is `merge` x `merge` patches of `patch` pixels; a still image fills all `frames` of a patch."""

    pixels: Pixels
    patch: int
    merge: int
    frames: int
    min_pixels: int
    max_pixels: int

    @classmethod
    def of(cls, settings: Json, max_tokens: int | None) -> "Cutter":
        """A cutter by a checkpoint's settings; `max_tokens` limits one image where the files allow more."""
        size = settings.get("size") or {}
        patch, merge = int(settings.get("patch_size", 16)), int(settings.get("merge_size", 2))
        least = settings.get("min_pixels") or size.get("shortest_edge") or size.get("min_pixels") or 256 * 256
        most = settings.get("max_pixels") or size.get("longest_edge") or size.get("max_pixels") or 4096 * 4096
        return cls(
            Pixels.of(settings, Pillow.Resampling.BICUBIC),
            patch,
            merge,
            int(settings.get("temporal_patch_size", 2)),
            int(least),
            int(most) if max_tokens is None else min(int(most), max_tokens * (patch * merge) ** 2),
        )

    @property
    def side(self) -> int:
        """The side of one token's square, in pixels."""
        return self.patch * self.merge

    def grid(self, width: int, height: int) -> Grid:
        """The nearest grid that keeps the shape and lies within the limits. Raises InvalidRequest."""
        if min(width, height) < 1:
            raise InvalidRequest(f"An image of {width}x{height} pixels cannot be seen.")
        if max(width, height) > MAX_RATIO * min(width, height):
            raise InvalidRequest(
                f"An image of {width}x{height} pixels cannot be seen: a side is more than {MAX_RATIO} times the other."
            )
        num_rows, num_columns = round(height / self.side), round(width / self.side)
        area = num_rows * num_columns * self.side**2
        if area > self.max_pixels:
            shrink = math.sqrt(height * width / self.max_pixels)
            num_rows, num_columns = int(height / shrink / self.side), int(width / shrink / self.side)
        elif area < self.min_pixels:
            grow = math.sqrt(self.min_pixels / (height * width))
            num_rows, num_columns = math.ceil(height * grow / self.side), math.ceil(width * grow / self.side)
        return Grid(max(num_rows, 1), max(num_columns, 1))

    def seen(self, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """The image in the size of its grid: what is left to do is no matter of sizes. Raises InvalidRequest."""
        rows, columns = self.grid(image.shape[1], image.shape[0])
        return self.pixels.resized(image, columns * self.side, rows * self.side)

    def patches(self, image: NDArray[np.uint8]) -> NDArray[np.float32]:
        """(patches, numbers of one): token by token, and the patches of a token next to each other."""
        rows, columns = self.grid(image.shape[1], image.shape[0])
        prepared = self.pixels.prepare(image, columns * self.side, rows * self.side)
        parts = prepared.reshape(rows, self.merge, self.patch, columns, self.merge, self.patch, 3)
        ordered = parts.transpose(0, 3, 1, 4, 6, 2, 5)  # row, column, two of merge, colour, two of patch
        still = np.repeat(ordered[..., None, :, :], self.frames, axis=-3)
        return still.reshape(rows * columns * self.merge**2, -1)


class QwenImageEncoder:
    """Implements `base.ImageEncoder`: a template writes one token between a start and an end; it is repeated."""

    before = after = ""

    def __init__(self, tokenizer: Tokenizer, cutter: Cutter) -> None:
        found = tokenizer.specials.get(MARKER)
        if found is None:
            raise StartupError(f"The tokenizer of this Qwen VL model lacks {MARKER}.")
        self._id = found
        self._cutter = cutter

    @property
    def marker(self) -> str:
        return MARKER

    def tokens(self, width: int, height: int) -> ImageTokens:
        num_tokens = self._cutter.grid(width, height).num_tokens
        return ImageTokens((self._id,) * num_tokens, 0, num_tokens)

    def seen(self, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """The pixels that the model looks at."""
        return self._cutter.seen(image)
