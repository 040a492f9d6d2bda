"""D7: animations of very many images cost what their first one does."""

import struct

from proxy_inference_engine.images.decoder import decode
from tests.images import chunk, plain

NUM_FRAMES = 10_000
SIDE = 64


def animated_png() -> bytes:
    """The frames of the animation stand before and after the image that every reader sees."""
    data = plain(SIDE, SIDE)
    at = data.index(b"IDAT") - 4
    end = data.index(b"IEND") - 4
    pixels = data[at + 8 : end - 4]
    control = struct.pack(">IIIIHHBB", SIDE, SIDE, 0, 0, 1, 100, 0, 0)
    frames = b"".join(
        chunk(b"fcTL", struct.pack(">I", 2 * number + 1) + control)
        + chunk(b"fdAT", struct.pack(">I", 2 * number + 2) + pixels)
        for number in range(NUM_FRAMES - 1)
    )
    head = chunk(b"acTL", struct.pack(">II", NUM_FRAMES, 0)) + chunk(b"fcTL", struct.pack(">I", 0) + control)
    return data[:at] + head + data[at:end] + frames + data[end:]


def test_ten_thousand_images_are_one() -> None:
    data = animated_png()
    sizes: list[tuple[int, int]] = []
    image = decode(data, lambda width, height: sizes.append((width, height)))
    assert sizes == [(SIDE, SIDE)] and (image.pixels == (255, 0, 0)).all()
