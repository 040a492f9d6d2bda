"""Images in a prompt: a template writes a marker for each, and the marker becomes what the model takes in its place."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.interaction import Content, ContentType, Interaction
from proxy_inference_engine.runners.base import Eyes, ImageTokens
from proxy_inference_engine.types import Image, ImageSpan

IMAGE = "image"  # in the data of a content part: the decoded `Image`
PARAM = "param"  # in the data of a content part: how errors name it


class Placed(NamedTuple):
    """The ids of a prompt with its images in it."""

    ids: tuple[int, ...]
    images: tuple[ImageSpan, ...]


def image_parts(turns: Sequence[Interaction]) -> list[Content]:
    return [part for turn in turns for part in turn.content if part.type is ContentType.IMAGE]


def has_images(turn: Interaction) -> bool:
    return any(part.type is ContentType.IMAGE for part in turn.content)


def place_images(ids: tuple[int, ...], marker_id: int, parts: Sequence[Content], eyes: Eyes) -> Placed:
    """Every marker replaced by an image, in order. Raises InvalidRequest.

    No text becomes a marker: `ids` has one only where the template wrote it.
    """
    if ids.count(marker_id) != len(parts):
        param = _param(parts[0]) if parts else "messages"
        raise InvalidRequest(
            f"Invalid value for {param!r}: the chat template of this model has no place for an image there.",
            param=param,
            code="unsupported_content",
        )
    return _Placing(marker_id, eyes).place(ids, parts)


class _Placing:
    def __init__(self, marker_id: int, eyes: Eyes) -> None:
        self._marker_id = marker_id
        self._eyes = eyes

    def place(self, ids: tuple[int, ...], parts: Sequence[Content]) -> Placed:
        placed: list[int] = []
        spans: list[ImageSpan] = []
        end = 0
        for start, part in zip(self._markers(ids), parts, strict=True):
            placed += ids[end:start]
            image = part.data[IMAGE]
            assert isinstance(image, Image), "an image that was not loaded"
            tokens = self._tokens(image, part)
            spans.append(ImageSpan(len(placed) + tokens.start, tokens.num_tokens, image))
            placed += tokens.ids
            end = start + 1
        placed += ids[end:]
        return Placed(tuple(placed), tuple(spans))

    def _markers(self, ids: tuple[int, ...]) -> Iterator[int]:
        return (index for index, token_id in enumerate(ids) if token_id == self._marker_id)

    def _tokens(self, image: Image, part: Content) -> ImageTokens:
        height, width, _ = image.pixels.shape
        try:
            return self._eyes.tokens(width, height)
        except InvalidRequest as error:
            param = _param(part)
            message = f"Invalid value for {param!r}: {error.message.removesuffix('.')}."
            raise InvalidRequest(message, param=param, code=error.code or "invalid_image") from None


def _param(part: Content) -> str:
    return str(part.data.get(PARAM, "messages"))
