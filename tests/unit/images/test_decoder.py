"""Files to pixels: what is read, that it is upright, and that nothing large is made before its size is known."""

import resource
import struct
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pillow

from proxy_inference_engine.images import ImageRefused
from proxy_inference_engine.images.decoder import decode
from proxy_inference_engine.types import Image
from tests.images import CORNERS, chunk, corners, file_of, plain, png

RED, GREEN, BLUE, WHITE = CORNERS
LIMIT = 40_000_000
EXACT: dict[str, dict[str, Any]] = {"WEBP": {"lossless": True}, "JPEG": {"quality": 100, "subsampling": 0}}


def bounded(width: int, height: int) -> None:
    if width * height > LIMIT:
        raise ImageRefused("too many pixels")


def read(data: bytes) -> Image:
    return decode(data, bounded)


def colours(image: Image) -> list[tuple[int, ...]]:
    """Of the corners, line by line."""
    pixels = image.pixels
    return [tuple(map(int, pixels[y, x])) for y in (0, -1) for x in (0, -1)]


@pytest.mark.parametrize("kind", ["PNG", "GIF", "WEBP", "JPEG"])
def test_every_format_is_read(kind: str) -> None:
    image = read(file_of(corners(32, 16), kind, **EXACT.get(kind, {})))
    assert image.pixels.shape == (16, 32, 3) and image.pixels.dtype == np.uint8
    assert image.pixels.flags.c_contiguous and not image.pixels.flags.writeable and len(image.digest) == 32
    assert np.abs(np.array(colours(image)) - np.array(CORNERS)).max() < 8


def test_webp_in_its_three_shapes() -> None:
    lossy, alpha = file_of(corners(32, 16), "WEBP"), file_of(corners(32, 16).convert("RGBA"), "WEBP", exif=exif(1))
    lossless = file_of(corners(32, 16), "WEBP", lossless=True)
    assert [data[12:16] for data in (lossy, lossless, alpha)] == [b"VP8 ", b"VP8L", b"VP8X"]
    sizes: list[tuple[int, int]] = []
    for data in (lossy, lossless, alpha):
        decode(data, lambda width, height: sizes.append((width, height)))
    assert sizes == [(32, 16)] * 3


# D8


def exif(orientation: int) -> bytes:
    notes = Pillow.Exif()
    notes[0x0112] = orientation
    return notes.tobytes()


UPRIGHT = [
    (1, [RED, GREEN, BLUE, WHITE]),
    (2, [GREEN, RED, WHITE, BLUE]),
    (3, [WHITE, BLUE, GREEN, RED]),
    (4, [BLUE, WHITE, RED, GREEN]),
    (5, [RED, BLUE, GREEN, WHITE]),
    (6, [BLUE, RED, WHITE, GREEN]),
    (7, [WHITE, GREEN, BLUE, RED]),
    (8, [GREEN, WHITE, RED, BLUE]),
    (9, [RED, GREEN, BLUE, WHITE]),
]


@pytest.mark.parametrize(("orientation", "expected"), UPRIGHT)
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_images_are_turned_upright(orientation: int, expected: list[tuple[int, ...]], kind: str) -> None:
    image = read(file_of(corners(64, 32), kind, exif=exif(orientation), **EXACT.get(kind, {})))
    assert image.pixels.shape == ((64, 32, 3) if 5 <= orientation <= 8 else (32, 64, 3))
    assert np.abs(np.array(colours(image)) - np.array(expected)).max() < 8


def test_notes_that_cannot_be_read_do_no_harm() -> None:
    assert colours(read(file_of(corners(), "PNG", exif=b"Exif\x00\x00nonsense"))) == list(CORNERS)
    assert colours(read(file_of(corners(), "PNG", exif=b"Exif\x00\x00II*\x00\xff\xff\xff\xff"))) == list(CORNERS)


def palette(transparent: int | None) -> bytes:
    image = corners().convert("P", palette=Pillow.Palette.ADAPTIVE, colors=4)
    red = image.getpixel((0, 0))
    return file_of(image, "PNG", **({} if transparent is None else {"transparency": red}))


def wide_grey() -> bytes:
    rows = b"".join(b"\x00" + struct.pack(">HH", *pair) for pair in ((0, 0xFFFF), (0x8080, 0x00FF)))
    return png(2, 2, rows, depth=16, colour=0)


def wide_rgb() -> bytes:
    rows = b"".join(b"\x00" + struct.pack(">6H", *(0xFFFF, 0, 0x8000), *(0, 0xFFFF, 0x1200)) for _ in range(2))
    return png(2, 2, rows, depth=16, colour=2)


MODES: list[tuple[str, Callable[[], bytes], list[tuple[int, ...]]]] = [
    ("grey", lambda: plain(2, 2, 77, mode="L"), [(77, 77, 77)] * 4),
    ("one bit", lambda: file_of(Pillow.new("1", (2, 2), 1)), [(255, 255, 255)] * 4),
    ("palette", lambda: palette(None), list(CORNERS)),
    ("palette with transparency", lambda: palette(0), [WHITE, GREEN, BLUE, WHITE]),
    ("grey with alpha", lambda: plain(2, 2, (0, 0), mode="LA"), [WHITE] * 4),
    ("half transparent", lambda: plain(2, 2, (255, 0, 0, 128), mode="RGBA"), [(255, 127, 127)] * 4),
    ("transparent gif", lambda: file_of(Pillow.new("P", (2, 2)), "GIF", transparency=0), [WHITE] * 4),
    (
        "rgb with a colour that is none",
        lambda: file_of(corners(), "PNG", transparency=RED),
        [WHITE, GREEN, BLUE, WHITE],
    ),
    ("16 bits of grey", wide_grey, [(0, 0, 0), WHITE, (128, 128, 128), (0, 0, 0)]),
    ("16 bits of colour", wide_rgb, [(255, 0, 128), (0, 255, 18)] * 2),
    ("cmyk", lambda: plain(8, 8, (0, 255, 255, 0), "JPEG", "CMYK"), [(254, 0, 0)] * 4),
    ("one pixel", lambda: plain(1, 1, "blue"), [BLUE] * 4),
    ("very wide", lambda: plain(10_000, 1, "blue"), [BLUE] * 4),
    ("very high", lambda: plain(1, 10_000, "blue"), [BLUE] * 4),
]


@pytest.mark.parametrize(("make", "expected"), [row[1:] for row in MODES], ids=[row[0] for row in MODES])
def test_every_mode_becomes_rgb(make: Callable[[], bytes], expected: list[tuple[int, ...]]) -> None:
    assert np.abs(np.array(colours(read(make()))) - np.array(expected)).max() <= 1


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP"])
def test_the_first_image_of_an_animation_is_read(kind: str) -> None:
    frames = [Pillow.new("RGB", (8, 8), colour) for colour in ("red", "green", "blue")]
    data = file_of(
        frames[0], kind, save_all=True, append_images=frames[1:], **({"lossless": True} if kind == "WEBP" else {})
    )
    assert colours(read(data)) == [RED] * 4


def test_many_images_in_one_file_cost_no_more_than_one() -> None:
    """D7: of 10,000 frames one is decoded."""
    frame = file_of(Pillow.new("P", (64, 64)), "GIF")
    body = frame[frame.index(b",") : -1]
    data = frame[: frame.index(b",")] + body * 10_000 + b";"
    assert read(data).pixels.shape == (64, 64, 3)


# D7, D8: what is refused


def jpeg2000() -> bytes:
    return b"\x00\x00\x00\x0cjP  \r\n\x87\n" + bytes(64)


def gif_with_huge_frame() -> bytes:
    data = bytearray(file_of(Pillow.new("P", (4, 4)), "GIF"))
    at = data.index(b",")
    data[at + 5 : at + 9] = struct.pack("<HH", 65535, 65535)
    return bytes(data)


def webp_with_huge_canvas() -> bytes:
    head = b"\x00" * 4 + (65535).to_bytes(3, "little") + (65534).to_bytes(3, "little")
    body = b"WEBPVP8X" + struct.pack("<I", 10) + head
    return b"RIFF" + struct.pack("<I", len(body)) + body


def webp_with_other_canvas() -> bytes:
    data = bytearray(file_of(corners(64, 64).convert("RGBA"), "WEBP", exif=exif(1)))
    data[24:30] = (7).to_bytes(3, "little") * 2
    return bytes(data)


def many_scans() -> bytes:
    data = file_of(corners(64, 64), "JPEG", progressive=True)
    at = data.rindex(b"\xff\xda")
    return data[:at] + data[at:-2] * 40 + data[-2:]


REFUSED: list[tuple[str, Callable[[], bytes]]] = [
    ("nothing", lambda: b""),
    ("one byte", lambda: b"\x89"),
    ("png of 65535x65535", lambda: png(65535, 65535, bytes(100))),
    ("png of too many pixels", lambda: png(8001, 5000, bytes(100))),
    (
        "jpeg of 65500x65500",
        lambda: plain(8, 8, kind="JPEG").replace(b"\x08\x00\x08\x00\x08", b"\x08\xff\xdc\xff\xdc", 1),
    ),
    ("gif with a huge frame", gif_with_huge_frame),
    (
        "gif with a huge screen",
        lambda: b"GIF89a" + struct.pack("<HH", 65535, 65535) + b"\x80\x00\x00" + bytes(6) + b";",
    ),
    ("webp with a huge canvas", webp_with_huge_canvas),
    ("webp that lies about its size", lambda: webp_with_other_canvas()),
    ("webp of 12 bytes", lambda: b"RIFF\x00\x00\x00\x00WEBP"),
    (
        "zTXt bomb",
        lambda: png(1, 1, b"\x00\x00", before=chunk(b"zTXt", b"a\x00\x00" + zlib.compress(bytes(80_000_000)))),
    ),
    (
        "iCCP bomb",
        lambda: png(1, 1, b"\x00\x00", before=chunk(b"iCCP", b"a\x00\x00" + zlib.compress(bytes(80_000_000)))),
    ),
    ("png without pixels", lambda: png(0, 0, b"")),
    ("jpeg of many scans", many_scans),
    ("tiff", lambda: plain(4, 4, kind="TIFF")),
    ("bmp", lambda: plain(4, 4, kind="BMP")),
    ("ico", lambda: plain(16, 16, kind="ICO")),
    ("ppm", lambda: plain(4, 4, kind="PPM")),
    ("jpeg 2000", jpeg2000),
    ("eps", lambda: b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"),
    ("psd", lambda: b"8BPS\x00\x01" + bytes(40)),
    ("fits", lambda: b"SIMPLE  =                    T" + bytes(100)),
    ("svg", lambda: b"<svg xmlns='http://www.w3.org/2000/svg'/>"),
    ("avif", lambda: b"\x00\x00\x00\x1cftypavif" + bytes(64)),
    ("html", lambda: b"<html>"),
    ("a text after a png's first bytes", lambda: b"\x89PNG\r\n\x1a\nhello"),
    *(
        (f"truncated {kind}", lambda kind=kind: plain(64, 64, kind=kind)[:-40])
        for kind in ("PNG", "JPEG", "GIF", "WEBP")
    ),
    *(
        (f"half a {kind}", lambda kind=kind: file_of(Pillow.effect_noise((64, 64), 50), kind)[:300])
        for kind in ("PNG", "JPEG")
    ),
    ("a png with wrong checksums", lambda: plain(64, 64).replace(b"IDAT", b"IDAT\x00", 1)),
]


@pytest.mark.parametrize("make", [row[1] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_what_is_no_sound_image_is_refused(make: Callable[[], bytes]) -> None:
    """D14: in words of ours, whatever the library had to say."""
    data = make()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ImageRefused) as caught:
        read(data)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 1024
    assert caught.value.code == "invalid_image" and caught.value.reason.startswith(("the image", "too many pixels"))
    assert "0x" not in caught.value.reason and "/" not in caught.value.reason


# D11


def test_equal_images_have_equal_digests_and_others_have_not() -> None:
    noise = Pillow.effect_noise((100, 30), 50).convert("RGB")
    same = [
        file_of(noise),
        file_of(noise, "WEBP", lossless=True),
        file_of(noise, exif=exif(1)),
        file_of(noise.convert("RGBA")),
    ]
    assert len({read(data).digest for data in same}) == 1
    reshaped = Pillow.frombytes("RGB", (30, 100), noise.tobytes())
    others = [
        file_of(reshaped),
        file_of(noise, exif=exif(3)),
        plain(1, 1),
        plain(1, 1, "blue"),
    ]
    assert len({read(data).digest for data in [same[0], *others]}) == 5


def test_the_size_is_told_before_anything_is_decoded() -> None:
    def refuse(width: int, height: int) -> None:
        raise ImageRefused(f"{width}x{height}")

    for kind in ("PNG", "JPEG", "GIF", "WEBP"):
        whole = plain(640, 480, kind=kind)
        with pytest.raises(ImageRefused, match="640x480"):
            decode(whole[: max(700, len(whole) // 2)], refuse)
