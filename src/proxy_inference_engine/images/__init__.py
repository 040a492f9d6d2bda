"""Images of a request, from a URL to pixels. Knows no wire format and no model."""

from proxy_inference_engine.images.fetcher import Fetcher, FetchLimits
from proxy_inference_engine.images.loader import ImageLimits, ImageLoader
from proxy_inference_engine.images.refusal import ImageRefused
from proxy_inference_engine.images.target import AllowedHosts

__all__ = ["AllowedHosts", "FetchLimits", "Fetcher", "ImageLimits", "ImageLoader", "ImageRefused"]
