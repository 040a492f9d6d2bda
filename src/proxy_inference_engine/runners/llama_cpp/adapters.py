"""LoRA adapters over one model: loaded with it, and switched on and off between the passes of a context."""

import ctypes
from collections.abc import Mapping
from pathlib import Path

from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.runners.llama_cpp.model import Model
from proxy_inference_engine.runners.llama_cpp.soundness import check_soundness


class Adapters:
    """Owns what llama.cpp loaded. Raises StartupError for a file that is no adapter of this model."""

    def __init__(self, model: Model, paths: Mapping[str, Path]) -> None:
        self._llama = model.llama
        self._handles: dict[str, int] = {}
        try:
            for name, path in paths.items():
                self._handles[name] = self._load(model, name, path)
        except BaseException:
            self.close()
            raise

    def _load(self, model: Model, name: str, path: Path) -> int:
        if not path.is_file():
            raise StartupError(f"adapter {name!r}: no such file: {str(path)!r}")
        try:
            check_soundness(path)
        except StartupError as error:
            raise StartupError(f"adapter {name!r}: {error.message}") from None
        handle: int | None = self._llama.llama_adapter_lora_init(model.handle, str(path).encode())
        if not handle:
            raise StartupError(f"adapter {name!r} ({path.name}) is no LoRA adapter in GGUF for this model")
        return handle

    def apply(self, context: int, name: str | None) -> None:
        """What the next passes of a context are computed with; None: the model alone."""
        handles = [] if name is None else [self._handles[name]]
        pointers = (ctypes.c_void_p * len(handles))(*handles)
        scales = (ctypes.c_float * len(handles))(*[1.0] * len(handles))
        if self._llama.llama_set_adapters_lora(context, pointers, len(handles), scales) != 0:
            raise RuntimeError(f"the adapter {name!r} could not be applied")

    def close(self) -> None:
        for handle in self._handles.values():
            self._llama.llama_adapter_lora_free(handle)
        self._handles = {}
