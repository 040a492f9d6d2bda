"""Pixels as image towers want them, by the numbers in a checkpoint's processor files. Knows no model and no tensors."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow

from proxy_inference_engine.runners.checkpoint import Json, read_optional

Triple = tuple[float, float, float]

HALF: Triple = (0.5, 0.5, 0.5)


def read_settings(folder: Path) -> Json:
    """What the folder says of image processing: newer checkpoints have it inside of `processor_config.json`."""
    inner = read_optional(folder / "processor_config.json").get("image_processor")
    return {**read_optional(folder / "preprocessor_config.json"), **(inner or {})}


@dataclass(frozen=True, slots=True)
class Pixels:
    """Resizes, rescales and normalises, in this order."""

    resample: Pillow.Resampling
    factor: float
    mean: Triple
    std: Triple

    @classmethod
    def of(cls, settings: Json, resample: Pillow.Resampling) -> "Pixels":
        """What a checkpoint's settings say; `resample` is the family's own way, where the files name none."""
        is_normalised = settings.get("do_normalize", True)
        named = settings.get("resample")
        return cls(
            resample if named is None else Pillow.Resampling(named),
            float(settings.get("rescale_factor", 1 / 255)) if settings.get("do_rescale", True) else 1.0,
            _triple(settings.get("image_mean") or HALF) if is_normalised else (0.0, 0.0, 0.0),
            _triple(settings.get("image_std") or HALF) if is_normalised else (1.0, 1.0, 1.0),
        )

    def prepare(self, pixels: NDArray[np.uint8], width: int, height: int) -> NDArray[np.float32]:
        """Pixels of an image as numbers around zero, (height, width, 3)."""
        scaled = self.resized(pixels, width, height).astype(np.float32) * np.float32(self.factor)
        normal: NDArray[np.float32] = np.divide(scaled - np.array(self.mean, np.float32), self.std, dtype=np.float32)
        return normal

    def resized(self, pixels: NDArray[np.uint8], width: int, height: int) -> NDArray[np.uint8]:
        if pixels.shape[:2] == (height, width):
            return pixels
        return np.asarray(Pillow.fromarray(pixels).resize((width, height), self.resample))


def _triple(values: Any) -> Triple:
    red, green, blue = values
    return float(red), float(green), float(blue)
