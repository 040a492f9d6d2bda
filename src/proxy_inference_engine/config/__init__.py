"""What the operator decides: one frozen `Config`, read from flags, environment, `.env` and TOML."""

from proxy_inference_engine.config.callers import check_origins
from proxy_inference_engine.config.fields import Config
from proxy_inference_engine.config.hardware import available_cores, available_memory
from proxy_inference_engine.config.keys import ApiKey, is_loopback, require_keys
from proxy_inference_engine.config.sources import load_config

__all__ = [
    "ApiKey",
    "Config",
    "available_cores",
    "available_memory",
    "check_origins",
    "is_loopback",
    "load_config",
    "require_keys",
]
