"""Images in a prompt: a template writes a marker for each, and the marker becomes what the model takes in its place."""

from collections.abc import Sequence
from typing import NamedTuple

from proxy_inference_engine import errors
from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.interaction import Content, Interaction
from proxy_inference_engine.runners.base import ImageEncoder, ImageTokens
from proxy_inference_engine.types import Image, ImageSpan

IMAGE = "image"  # in the data of a content part: the decoded `Image`
PARAM = "param"  # in the data of a content part: how errors name it


class Placed(NamedTuple):
    """The ids of a prompt with its images in it."""

    ids: tuple[int, ...]
    images: tuple[ImageSpan, ...]


def image_parts(turns: Sequence[Interaction]) -> list[Content]:
    """The images of a conversation, in order."""
    return [part for turn in turns for part in turn.images]


def place_images(ids: tuple[int, ...], marker_id: int, parts: Sequence[Content], image_encoder: ImageEncoder) -> Placed:
    """Every marker replaced by an image, in order. Raises InvalidRequest.

    No text becomes a marker: `ids` has one only where the template wrote it.
    """
    if ids.count(marker_id) != len(parts):
        param = _param(parts[0]) if parts else "messages"
        raise InvalidRequest(
            f"Invalid value for {errors.PARAM}: the chat template of this model has no place for an image there.",
            param=param,
            code="unsupported_content",
        )
    placed: list[int] = []
    spans: list[ImageSpan] = []
    end = 0
    markers = (index for index, token_id in enumerate(ids) if token_id == marker_id)
    for start, part in zip(markers, parts, strict=True):
        placed += ids[end:start]
        image = part.data[IMAGE]
        assert isinstance(image, Image), "an image that was not loaded"
        tokens = _tokens(image, part, image_encoder)
        spans.append(ImageSpan(len(placed) + tokens.start, tokens.num_tokens, image))
        placed += tokens.ids
        end = start + 1
    placed += ids[end:]
    return Placed(tuple(placed), tuple(spans))


def _tokens(image: Image, part: Content, image_encoder: ImageEncoder) -> ImageTokens:
    height, width, _ = image.pixels.shape
    try:
        return image_encoder.tokens(width, height)
    except InvalidRequest as error:
        message = f"Invalid value for {errors.PARAM}: {error.message.removesuffix('.')}."
        raise InvalidRequest(message, param=_param(part), code=error.code or "invalid_image") from None


def _param(part: Content) -> str:
    return str(part.data.get(PARAM, "messages"))
