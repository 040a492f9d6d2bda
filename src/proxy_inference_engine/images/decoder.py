"""Bytes of a file to pixels: four formats, told by their first bytes; the size is known before anything is decoded.

Only the first image of an animation is read. Knows no URLs.
"""

import struct
from collections.abc import Callable
from hashlib import blake2b
from io import BytesIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow
from PIL.GifImagePlugin import GifImageFile
from PIL.ImageFile import ImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.WebPImagePlugin import WebPImageFile

from proxy_inference_engine.errors import PieError
from proxy_inference_engine.images.refusal import ImageRefused
from proxy_inference_engine.types import Image

_ORIENTATION = 0x0112  # the tag of EXIF
_TURNS = {
    2: Pillow.Transpose.FLIP_LEFT_RIGHT,
    3: Pillow.Transpose.ROTATE_180,
    4: Pillow.Transpose.FLIP_TOP_BOTTOM,
    5: Pillow.Transpose.TRANSPOSE,
    6: Pillow.Transpose.ROTATE_270,
    7: Pillow.Transpose.TRANSVERSE,
    8: Pillow.Transpose.ROTATE_90,
}
_ALPHA_MODES = frozenset({"LA", "La", "PA", "RGBA", "RGBa"})
_WIDE_MODES = frozenset({"I", "I;16", "I;16L", "I;16B", "I;16N"})  # 16 bits of grey
_SCAN = b"\xff\xda"
_MAX_SCANS = 32  # each scan of a JPEG goes over the whole image, and an empty one takes ten bytes

OnSize = Callable[[int, int], None]  # may raise ImageRefused or a PieError; nothing was allocated then


def decode(data: bytes, on_size: OnSize) -> Image:
    """The image, upright, in RGB, on white where it is transparent. Raises ImageRefused."""
    opener = _opener(data)
    # The library of WebP allocates when it opens a file.
    size = _webp_size(data) if opener is WebPImageFile else None
    if size is not None:
        on_size(*size)
    try:
        with opener(BytesIO(data)) as file:
            if size is None:
                on_size(*file.size)
            elif file.size != size:
                raise _damaged()
            pixels = _pixels(_upright(file))
    except (ImageRefused, PieError):
        raise
    except Exception:
        # Damaged files make the library raise almost anything, and its messages are not for clients.
        raise _damaged() from None
    pixels.flags.writeable = False
    return Image(_digest(pixels), pixels)


def _damaged() -> ImageRefused:
    return ImageRefused("the image cannot be decoded: it is damaged or incomplete")


def _opener(data: bytes) -> type[ImageFile]:
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return PngImageFile
    if data.startswith(b"\xff\xd8\xff"):
        if data.count(_SCAN) > _MAX_SCANS:
            raise ImageRefused(f"the image has more than {_MAX_SCANS} scans")
        return JpegImageFile
    if data.startswith((b"GIF87a", b"GIF89a")):
        return GifImageFile
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return WebPImageFile
    raise ImageRefused("the image is empty" if not data else "the image is neither PNG nor JPEG, WebP or GIF")


def _webp_size(data: bytes) -> tuple[int, int]:
    """Width and height, from the head: https://developers.google.com/speed/webp/docs/riff_container"""
    kind, head = data[12:16], data[20:30]
    if len(head) < 10:
        raise _damaged()
    if kind == b"VP8X":
        return 1 + int.from_bytes(head[4:7], "little"), 1 + int.from_bytes(head[7:10], "little")
    if kind == b"VP8L":
        bits = int.from_bytes(head[1:5], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    return int.from_bytes(head[6:8], "little") & 0x3FFF, int.from_bytes(head[8:10], "little") & 0x3FFF


def _upright(file: ImageFile) -> Pillow.Image:
    file.load()
    try:
        turn = _TURNS.get(file.getexif().get(_ORIENTATION, 1))
    except Exception:
        turn = None  # notes that cannot be read are no reason to refuse an image that can
    return file if turn is None else file.transpose(turn)


def _pixels(image: Pillow.Image) -> NDArray[np.uint8]:
    """(height, width, 3)"""
    if image.mode in _WIDE_MODES:
        grey = np.clip(np.asarray(image, np.int64) >> 8, 0, 255).astype(np.uint8)
        return np.ascontiguousarray(np.broadcast_to(grey[:, :, None], (*grey.shape, 3)))
    if image.mode in _ALPHA_MODES or "transparency" in image.info:
        image = _on_white(image.convert("RGBA"))
    return np.array(image.convert("RGB"), np.uint8)


def _on_white(image: Pillow.Image) -> Pillow.Image:
    white = Pillow.new("RGB", image.size, "white")
    white.paste(image, mask=image.getchannel("A"))
    return white


def _digest(pixels: NDArray[np.uint8]) -> bytes:
    height, width, _ = pixels.shape
    digest = blake2b(struct.pack("<QQ", width, height), digest_size=32)
    digest.update(pixels.data)
    return digest.digest()
