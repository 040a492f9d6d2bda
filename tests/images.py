"""Image files made on the spot, and the URLs that hold them."""

import base64
import struct
import zlib
from io import BytesIO
from typing import Any

from PIL import Image

CORNERS = ((255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255))  # from the upper left, line by line


def file_of(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    made = BytesIO()
    image.save(made, kind, **options)
    return made.getvalue()


def plain(width: int, height: int, colour: Any = "red", kind: str = "PNG", mode: str = "RGB") -> bytes:
    return file_of(Image.new(mode, (width, height), colour), kind)


def corners(width: int = 2, height: int = 2) -> Image.Image:
    """Four blocks of one colour each."""
    small = Image.new("RGB", (2, 2))
    small.putdata(CORNERS)
    return small.resize((width, height), Image.Resampling.NEAREST)


def data_url(data: bytes, media: str = "image/png") -> str:
    return f"data:{media};base64,{base64.b64encode(data).decode()}"


def red(width: int = 32, height: int = 32) -> str:
    return data_url(plain(width, height))


def blue(width: int = 32, height: int = 32) -> str:
    return data_url(plain(width, height, "blue"))


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(width: int, height: int, rows: bytes, *, before: bytes = b"", depth: int = 1, colour: int = 0) -> bytes:
    """A PNG by hand: `rows` with their filter bytes, not packed yet; `before` goes in front of them as it is."""
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + before + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
