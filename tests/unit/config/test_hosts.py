"""`fetch_allow` as people write it, and the other settings about images."""

from pathlib import Path

import pytest

from proxy_inference_engine.config import Config, load_config
from proxy_inference_engine.config.values import AllowedHost
from proxy_inference_engine.errors import StartupError


@pytest.mark.parametrize(
    ("value", "hosts"),
    [
        ("", ()),
        ("images.lan", (AllowedHost("images.lan", None),)),
        ("Images.lan:8080, 10.0.0.7,", (AllowedHost("images.lan", 8080), AllowedHost("10.0.0.7", None))),
        ("[fd00::7]:80", (AllowedHost("fd00::7", 80),)),
        (["a", "b:1"], (AllowedHost("a", None), AllowedHost("b", 1))),
        ((AllowedHost("a", 5),), (AllowedHost("a", 5),)),
    ],
)
def test_hosts(value: object, hosts: tuple[AllowedHost, ...]) -> None:
    assert Config(fetch_allow=value).fetch_allow == hosts  # type: ignore[arg-type]  # parsed


@pytest.mark.parametrize("value", ["http://a", "a:0", "a:65536", "a:b", "a b", "a/b", "u@a", "[::1", "*"])
def test_what_is_no_host_stops_the_start(value: str, tmp_path: Path) -> None:
    with pytest.raises(StartupError) as caught:
        load_config({}, {"PIE_FETCH_ALLOW": f"good.lan,{value}"}, tmp_path)
    assert "PIE_FETCH_ALLOW" in caught.value.message and value in caught.value.message


def test_toml_and_environment(tmp_path: Path) -> None:
    (tmp_path / "pie.toml").write_text('fetch_allow = ["a.lan:81"]\nfetch_images = false\nmax_image_bytes = "1MiB"\n')
    config = load_config({}, {"PIE_MAX_IMAGES": "3", "PIE_MAX_IMAGE_PIXELS": "1000"}, tmp_path)
    assert config.fetch_allow == (AllowedHost("a.lan", 81),) and not config.fetch_images
    assert (config.max_images, config.max_image_bytes, config.max_image_pixels) == (3, 1024**2, 1000)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_images", 0),
        ("max_image_pixels", 10**9),
        ("max_image_bytes", 0),
        ("image_timeout_seconds", 0),
        ("fetch_allow", 5),
    ],
)
def test_values_out_of_range(name: str, value: object, tmp_path: Path) -> None:
    with pytest.raises(StartupError, match=f"PIE_{name.upper()}"):
        load_config({}, {f"PIE_{name.upper()}": "http://x" if name == "fetch_allow" else str(value)}, tmp_path)
