"""Images inside their URL: `data:image/png;base64,…`, read strictly and never before their size is known."""

import binascii
import re

from proxy_inference_engine.images.refusal import ImageRefused

MEDIA_TYPES = frozenset({"image/png", "image/jpeg", "image/jpg", "image/webp", "image/gif"})
_HEAD_CHARS = 64  # `data:image/jpeg;base64,` and nothing like it is longer
_HEAD = re.compile(r"data:([a-z0-9.+-]+/[a-z0-9.+-]+);base64", re.ASCII | re.IGNORECASE)


def is_data_url(url: str) -> bool:
    return url[:5].lower() == "data:"


def read_data_url(url: str, max_bytes: int) -> bytes:
    """The bytes of an image. Raises ImageRefused."""
    end = url.find(",", 0, _HEAD_CHARS)
    head = _HEAD.fullmatch(url, 0, max(end, 0))
    if head is None:
        raise _wrong("a data URL has to begin with data:image/png;base64, or the like")
    if head[1].lower() not in MEDIA_TYPES:
        raise _wrong("its type is none of image/png, image/jpeg, image/webp and image/gif")
    num_chars = len(url) - end - 1
    if num_chars // 4 * 3 > max_bytes + 2:
        raise ImageRefused(f"the image has more than {max_bytes} bytes")
    try:
        data = binascii.a2b_base64(url[end + 1 :], strict_mode=True)
    except ValueError:
        raise _wrong("its base64 is not valid") from None
    if len(data) > max_bytes:
        raise ImageRefused(f"the image has more than {max_bytes} bytes")
    return data


def _wrong(reason: str) -> ImageRefused:
    return ImageRefused(reason, "invalid_image_url")
