"""Which engine runs a model: llama.cpp runs GGUF files, MLX folders of safetensors. Imports neither of them."""

import importlib.util
from typing import Literal

from proxy_inference_engine.config import Config
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models.resolve import ModelFile

EngineName = Literal["llama.cpp", "mlx"]  # that compute here
# What to try MLX with: the weights of the bundled model as their authors publish them.
_FOR_MLX = "HuggingFaceTB/SmolLM2-135M-Instruct"


def choose_engine(config: Config, file: ModelFile) -> EngineName:
    """The engine for a file. Raises StartupError where the operator insists on another, or it is not installed."""
    if config.engine == "vllm":
        raise StartupError("engine vllm computes elsewhere: only `pie serve` can use it")
    if file.kind == "gguf":
        if config.engine == "mlx":
            which = "the bundled model" if file.is_bundled else repr(file.name)
            raise StartupError(
                f"engine mlx cannot run {which}: llama.cpp runs GGUF files, mlx folders with safetensors; "
                f"use --engine llama.cpp, or give another model, such as --model {_FOR_MLX}"
            )
        return "llama.cpp"
    if config.engine == "llama.cpp":
        raise StartupError(
            f"engine llama.cpp cannot run {file.name!r}: llama.cpp runs GGUF files, mlx folders with safetensors; "
            "use --engine mlx, or give another model"
        )
    if importlib.util.find_spec("mlx_lm") is None:
        raise StartupError(
            f"{file.name!r} needs MLX, which is not installed: pip install 'proxy-inference-engine[mlx]', "
            "or [mlx-cuda] for an NVIDIA GPU"
        )
    return "mlx"
