"""The cache of encoded images: bytes are bounded, the least recently used goes first."""

import mlx.core as mx

from proxy_inference_engine.runners.mlx.vision.family import Features
from proxy_inference_engine.runners.mlx.vision.image_rows import FeatureCache
from proxy_inference_engine.types import Image
from tests.tiny.image_models import make_image

SMALL, MEDIUM, LARGE, HUGE = (make_image(seed, width, 8) for seed, width in enumerate((8, 16, 32, 64)))


def encode(image: Image) -> Features:
    """As many bytes as the image is wide, half of them for deeper layers."""
    half = mx.ones((1, image.pixels.shape[1] // 8))
    return Features(half, (half + 1,))


def test_features_are_kept_while_there_is_room() -> None:
    cache = FeatureCache(encode, max_bytes=60)
    for image in (SMALL, MEDIUM, LARGE, SMALL, MEDIUM, LARGE):
        assert cache.get(image).num_bytes == image.pixels.shape[1]
    assert (cache.num_hits, cache.num_misses, cache.num_bytes) == (3, 3, 56)


def test_the_least_recently_used_goes_first() -> None:
    cache = FeatureCache(encode, max_bytes=48)
    for image in (MEDIUM, SMALL, MEDIUM, LARGE):  # the small one has to go
        cache.get(image)
    assert cache.num_bytes == 48
    num_hits = cache.num_hits
    cache.get(MEDIUM)
    cache.get(LARGE)
    assert cache.num_hits == num_hits + 2
    cache.get(SMALL)
    assert (cache.num_hits, cache.num_bytes) == (num_hits + 2, 40)


def test_what_is_larger_than_the_cache_is_not_kept() -> None:
    cache = FeatureCache(encode, max_bytes=48)
    cache.get(SMALL)
    assert cache.get(HUGE).num_bytes == 64
    assert cache.num_bytes == 8
    cache.get(SMALL)
    assert cache.num_hits == 1


def test_equal_images_are_one() -> None:
    cache = FeatureCache(encode, max_bytes=48)
    cache.get(SMALL)
    cache.get(Image(SMALL.digest, SMALL.pixels.copy()))
    assert cache.num_misses == 1
    cache.clear()
    cache.get(SMALL)
    assert (cache.num_misses, cache.num_bytes) == (2, 8)
