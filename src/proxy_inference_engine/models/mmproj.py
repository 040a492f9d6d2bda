"""Eyes for a GGUF model: the mmproj file that is set, or the one beside the model."""

import logging
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from proxy_inference_engine.config import Config
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models.resolve import ModelFile
from proxy_inference_engine.runners.llama_cpp.model import Model

if TYPE_CHECKING:
    from proxy_inference_engine.runners.llama_cpp.vision import Vision

_log = logging.getLogger(__name__)

_NONE = "none"  # what switches a file beside the model off
_PREFERRED = ("f16", "bf16", "q8_0", "f32")  # of several: all see nearly the same, and not every one is fast everywhere
