"""D9: data URLs, read strictly."""

import pytest

from proxy_inference_engine.images import ImageRefused
from proxy_inference_engine.images.data_url import is_data_url, read_data_url

LIMIT = 100


@pytest.mark.parametrize(
    ("url", "data"),
    [
        ("data:image/png;base64,aGVsbG8=", b"hello"),
        ("DATA:IMAGE/JPEG;BASE64,aGVsbG8h", b"hello!"),
        ("data:image/jpg;base64,aA==", b"h"),
        ("data:image/webp;base64,", b""),
        ("data:image/gif;base64," + "A" * 132 + "AA==", bytes(100)),
    ],
)
def test_what_is_read(url: str, data: bytes) -> None:
    assert is_data_url(url) and read_data_url(url, LIMIT) == data


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("data:", "invalid_image_url"),
        ("data:,", "invalid_image_url"),
        ("data:image/png;base64", "invalid_image_url"),
        ("data:image/png,aGVsbG8=", "invalid_image_url"),
        ("data:;base64,aGVsbG8=", "invalid_image_url"),
        ("data:image/png;charset=utf-8;base64,aGVsbG8=", "invalid_image_url"),
        ("data:image/png;base64;x=y,aGVsbG8=", "invalid_image_url"),
        ("data:text/html;base64,aGVsbG8=", "invalid_image_url"),
        ("data:image/svg+xml;base64,aGVsbG8=", "invalid_image_url"),
        ("data:image/tiff;base64,aGVsbG8=", "invalid_image_url"),
        ("data:image/png;base64,data:image/png;base64,aGVsbG8=", "invalid_image_url"),
        ("data:image/png;base64,aGVsbG8", "invalid_image_url"),
        ("data:image/png;base64,aGVsbG8==", "invalid_image_url"),
        ("data:image/png;base64,aGVs bG8=", "invalid_image_url"),
        ("data:image/png;base64,aGVs\nbG8=", "invalid_image_url"),
        ("data:image/png;base64,aGV=bG8=", "invalid_image_url"),
        ("data:image/png;base64,aGVsbG8-", "invalid_image_url"),
        ("data:image/png;base64,é", "invalid_image_url"),
        ("data:image/png;base64,=", "invalid_image_url"),
        ("data:image/png;base64," + "A" * 136, "invalid_image"),
        ("data:image/png;base64," + "A" * 100_000_000, "invalid_image"),
        ("data:image/png;base64," + "!" * 100_000, "invalid_image"),  # the size is looked at first
        ("data:image/png" + ";" * 100_000 + "base64,aGVsbG8=", "invalid_image_url"),
    ],
    ids=range(23),
)
def test_what_is_refused(url: str, code: str) -> None:
    with pytest.raises(ImageRefused) as caught:
        read_data_url(url, LIMIT)
    assert caught.value.code == code and "aGV" not in caught.value.reason


def test_other_urls_are_none() -> None:
    assert not any(map(is_data_url, ["", "dat", "http://data:", " data:image/png", "data"]))
