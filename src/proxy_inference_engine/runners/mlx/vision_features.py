"""Encoded images, kept on the device by their digest, the least recently used dropped first. Bounded by bytes."""

from collections import OrderedDict
from collections.abc import Callable

import mlx.core as mx

from proxy_inference_engine.runners.mlx.vision_family import Features
from proxy_inference_engine.types import Image


class FeatureCache:
    """`encode` is called once for an image that is not here; then its buffers go back to the system."""

    def __init__(self, encode: Callable[[Image], Features], max_bytes: int) -> None:
        self._encode = encode
        self._max_bytes = max_bytes
        self._kept: OrderedDict[bytes, Features] = OrderedDict()
        self.num_bytes = 0
        self.num_hits = 0
        self.num_misses = 0

    def get(self, image: Image) -> Features:
        found = self._kept.get(image.digest)
        if found is not None:
            self.num_hits += 1
            self._kept.move_to_end(image.digest)
            return found
        self.num_misses += 1
        features = self._encode(image)
        # Computed here and now, so that never more than one image's activations are alive.
        mx.eval(features.rows, features.deepstack)
        mx.clear_cache()
        self._keep(image.digest, features)
        return features

    def clear(self) -> None:
        self._kept.clear()
        self.num_bytes = 0

    def _keep(self, digest: bytes, features: Features) -> None:
        if features.num_bytes > self._max_bytes:
            return
        while self.num_bytes + features.num_bytes > self._max_bytes:
            _, dropped = self._kept.popitem(last=False)
            self.num_bytes -= dropped.num_bytes
        self._kept[digest] = features
        self.num_bytes += features.num_bytes
