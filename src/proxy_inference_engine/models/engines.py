"""Which engine runs a model. Imports none of them."""

import importlib.util
from typing import Literal

from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models.resolve import ModelFile

Engine = Literal["llama.cpp", "mlx"]

_BY_KIND: dict[str, Engine] = {"gguf": "llama.cpp", "safetensors": "mlx"}


def choose_engine(wanted: Literal["auto"] | Engine, file: ModelFile) -> Engine:
    """The engine for a model. Raises StartupError where the wanted one cannot run it, or is not installed."""
    engine = _BY_KIND[file.kind]
    if wanted not in ("auto", engine):
        raise StartupError(
            f"engine {wanted} cannot run {file.name!r}: llama.cpp runs GGUF files, mlx folders with safetensors; "
            f"use --engine {engine}, or give another model"
        )
    if engine == "mlx" and importlib.util.find_spec("mlx_lm") is None:
        raise StartupError(
            f"{file.name!r} needs MLX, which is not installed: pip install 'proxy-inference-engine[mlx]', "
            "or [mlx-cuda] for an NVIDIA GPU"
        )
    return engine
