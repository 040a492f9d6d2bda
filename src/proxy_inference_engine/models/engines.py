"""Which engine runs a model on this machine. Imports none of them."""

import importlib.util
import platform
import sys
from typing import Literal, NamedTuple

from proxy_inference_engine.config import Config
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models.convert_gguf import reason_against
from proxy_inference_engine.models.mmproj import find_mmproj
from proxy_inference_engine.models.resolve import ModelFile

Engine = Literal["llama.cpp", "mlx"]


class Machine(NamedTuple):
    """As Python names them."""

    system: str
    processor: str

    @property
    def is_apple_silicon(self) -> bool:
        return (self.system, self.processor) == ("darwin", "arm64")


class Choice(NamedTuple):
    engine: Engine
    is_tried: bool = False  # nobody insists on it: where it fails, llama.cpp runs the same file


def this_machine() -> Machine:
    return Machine(sys.platform, platform.machine())


def choose_engine(config: Config, file: ModelFile, machine: Machine) -> Choice:
    """Raises StartupError where the wanted engine cannot run a model, or is not installed."""
    if file.kind == "gguf":
        return _for_gguf(config, file, machine)
    if config.engine == "llama.cpp":
        raise StartupError(
            f"engine llama.cpp cannot run {file.name!r}: llama.cpp runs GGUF files, mlx folders with safetensors; "
            "use --engine mlx, or give another model"
        )
    if not _has_mlx():
        raise _not_installed(file)
    return Choice("mlx")


def _for_gguf(config: Config, file: ModelFile, machine: Machine) -> Choice:
    """llama.cpp's own files; MLX has to convert them first."""
    if config.engine == "llama.cpp":
        return Choice("llama.cpp")
    if config.engine == "mlx":
        if not _has_mlx():
            raise _not_installed(file)
        reason = _unwanted(config, file) or reason_against(file)
        if reason is not None:
            raise StartupError(
                f"engine mlx cannot run {file.name!r}: the file would have to be converted, but {reason}; "
                "use --engine llama.cpp, or give a folder with safetensors"
            )
        return Choice("mlx")
    is_for_mlx = machine.is_apple_silicon and _has_mlx() and not _needs_llama(config, file)
    return Choice("mlx", is_tried=True) if is_for_mlx and reason_against(file) is None else Choice("llama.cpp")


def _needs_llama(config: Config, file: ModelFile) -> bool:
    """Whether the operator asks for what only llama.cpp does with a GGUF file."""
    is_set = config.exact or config.gpu_layers >= 0 or config.draft_model or config.convert_weights == "never"
    return bool(is_set) or find_mmproj(config.mmproj, file) is not None


def _unwanted(config: Config, file: ModelFile) -> str | None:
    """What an operator said besides `--engine mlx` that MLX cannot do with a GGUF file."""
    mmproj = find_mmproj(config.mmproj, file)
    if mmproj is not None and mmproj.is_set:
        return "mmproj is set, which only llama.cpp reads"
    return "convert_weights is never" if config.convert_weights == "never" else None


def _has_mlx() -> bool:
    return importlib.util.find_spec("mlx_lm") is not None


def _not_installed(file: ModelFile) -> StartupError:
    return StartupError(
        f"{file.name!r} needs MLX, which is not installed: pip install 'proxy-inference-engine[mlx]', "
        "or [mlx-cuda] for an NVIDIA GPU"
    )
