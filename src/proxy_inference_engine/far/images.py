"""Images as vLLM takes them beside token ids: a file for each, and one token in the prompt where it puts its own."""

import base64
from collections.abc import Sequence
from io import BytesIO
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow

from proxy_inference_engine.runners.base import ImageEncoder
from proxy_inference_engine.types import Image, ImageSpan

_LEVEL = 1  # a file that is read once is not worth more of a processor
# Of one request with all its choices, of which each is sent them: noise takes as many bytes as it has pixels, and more.
MAX_SENT_BYTES = 128 * 1024 * 1024


class FarImageEncoder(ImageEncoder, Protocol):
    """Counts the tokens of an image here, as vLLM counts them there."""

    def seen(self, pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """The pixels that the model looks at, of which there are no more than it was made for."""
        ...


def draw(images: Sequence[Image], image_encoder: FarImageEncoder) -> tuple[str, ...]:
    """URLs with the images in them. Takes long: call it off the event loop."""
    return tuple(_data_url(image_encoder.seen(image.pixels)) for image in images)


def _data_url(pixels: NDArray[np.uint8]) -> str:
    file = BytesIO()
    Pillow.fromarray(pixels).save(file, "PNG", compress_level=_LEVEL)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def with_markers(ids: tuple[int, ...], images: Sequence[ImageSpan]) -> tuple[int, ...]:
    """A prompt in which each image is one token: vLLM replaces that by as many as it counts."""
    parts: list[int] = []
    end = 0
    for span in images:
        parts += ids[end : span.start + 1]
        end = span.start + span.num_tokens
    return (*parts, *ids[end:])
