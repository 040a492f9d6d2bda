"""From a configuration to a running engine."""

from proxy_inference_engine.models.load.engine import load_engine, load_words, share_processor
from proxy_inference_engine.models.load.far import is_far, load_far

__all__ = ["is_far", "load_engine", "load_far", "load_words", "share_processor"]
