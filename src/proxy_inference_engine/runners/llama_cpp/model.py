"""One GGUF model: weights and what the file says about itself."""

import ctypes
import hashlib
from collections.abc import Callable
from pathlib import Path

from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.runners.llama_cpp import huge_pages
from proxy_inference_engine.runners.llama_cpp.binding import LLAMA_LOAD_MODE_NONE, progress_callback
from proxy_inference_engine.runners.llama_cpp.header import read_header
from proxy_inference_engine.runners.llama_cpp.library import Library, start
from proxy_inference_engine.runners.llama_cpp.soundness import check_soundness

_MAX_READ_BYTES = 1 << 30  # read, so that huge pages can be under it; a larger file is mapped and need not fit
_SAMPLE_BYTES, _NUM_SAMPLES = 1 << 16, 16
_SAMPLING = {
    "temperature": "temp",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "repetition_penalty": "penalty_repeat",
}  # our names, and those under `general.sampling` in a file
_ENCODERS = frozenset({"gemma-embedding", "t5encoder"})  # besides those with BERT in their name


class Model:
    """Owns a llama_model. Without a library it is loaded by the one that is the best here."""

    def __init__(
        self,
        path: Path,
        *,
        gpu_layers: int = 0,
        vocab_only: bool = False,
        on_progress: Callable[[float], None] | None = None,
        library: Library | None = None,
        can_map: bool = True,
        is_exact: bool = False,
    ) -> None:
        """`can_map` False: a large file is read too. One that is cut while it is mapped ends the whole process.

        `is_exact`: no layouts of the processor's own, which compute a single token in other steps than several.
        """
        check_soundness(path)
        self.library = library or start()
        self.llama = self.library.binding
        params = self.llama.llama_model_default_params()
        params.n_gpu_layers = gpu_layers
        params.vocab_only = vocab_only
        params.use_extra_bufts = not (is_exact or self._is_for_product(path))
        is_read = not can_map or path.stat().st_size <= _MAX_READ_BYTES
        if is_read:
            params.load_mode = LLAMA_LOAD_MODE_NONE
        self._progress = progress_callback(lambda share, _: _report(on_progress, share))
        params.progress_callback = self._progress
        self.handle = self.llama.llama_model_load_from_file(str(path).encode(), params)
        if not self.handle:
            reason = "not a model it knows, or a damaged file (then download it again)"
            raise StartupError(f"llama.cpp cannot load {path.name!r}: {reason}")
        if is_read and not vocab_only:
            huge_pages.gather()
        self.path = path
        self.vocab = self.llama.llama_model_get_vocab(self.handle)

    def _is_for_product(self, path: Path) -> bool:
        """Whether our product is to find all weights as they are in the file. Experts are multiplied by ggml alone."""
        product = self.library.product
        if product is None:
            return False
        tensors = read_header(path).tensors
        has_experts = any(len(each.shape) > 2 for each in tensors)
        return not has_experts and product.replaces_layouts(each.kind for each in tensors)

    @property
    def architecture(self) -> str:
        return self.metadata("general.architecture") or "unknown"

    @property
    def description(self) -> str:
        buffer = ctypes.create_string_buffer(256)
        self.llama.llama_model_desc(self.handle, buffer, len(buffer))
        return buffer.value.decode(errors="replace")

    @property
    def context_tokens(self) -> int:
        return int(self.llama.llama_model_n_ctx_train(self.handle))

    @property
    def num_parameters(self) -> int:
        return int(self.llama.llama_model_n_params(self.handle))

    @property
    def num_bytes(self) -> int:
        return int(self.llama.llama_model_size(self.handle))

    @property
    def digest(self) -> str:
        return sampled_digest(self.path)

    @property
    def num_layers(self) -> int:
        return int(self.llama.llama_model_n_layer(self.handle))

    @property
    def has_plain_attention(self) -> bool:
        """Whether any prefix of a sequence's KV is the prefix's KV: no sliding window, and no recurrent state."""
        return not (
            self.llama.llama_model_n_swa(self.handle)
            or self.llama.llama_model_is_recurrent(self.handle)
            or self.llama.llama_model_is_hybrid(self.handle)
        )

    @property
    def can_generate(self) -> bool:
        """Whether each token sees only those before it, with a memory of them: all but encoders."""
        name = self.architecture
        is_encoder = "bert" in name or name in _ENCODERS
        return not is_encoder and self.metadata(f"{name}.attention.causal") != "false"

    @property
    def chat_template(self) -> str | None:
        return self._template(None)

    @property
    def tool_template(self) -> str | None:
        """The chat template for conversations with tools, where that is one of its own."""
        return self._template(b"tool_use")

    def _template(self, name: bytes | None) -> str | None:
        text = self.llama.llama_model_chat_template(self.handle, name)
        # For a model without one the library may answer with the name of one of its own.
        return text.decode(errors="replace") if text and b"{" in text else None

    @property
    def generation(self) -> dict[str, str]:
        """How the file wants its tokens sampled, as far as it says so."""
        found = {name: self.metadata(f"general.sampling.{key}") for name, key in _SAMPLING.items()}
        return {name: text for name, text in found.items() if text is not None}

    @property
    def num_kv_values(self) -> int:
        """Numbers one token leaves in the K cache, and as many in the V cache, over all layers (an estimate)."""
        width = int(self.metadata(f"{self.architecture}.attention.key_length") or 0)
        if not width:
            heads = max(1, self.llama.llama_model_n_head(self.handle))
            width = int(self.llama.llama_model_n_embd(self.handle)) // heads
        return self.num_layers * width * int(self.llama.llama_model_n_head_kv(self.handle))

    def metadata(self, key: str) -> str | None:
        buffer = ctypes.create_string_buffer(4096)
        length = self.llama.llama_model_meta_val_str(self.handle, key.encode(), buffer, len(buffer))
        if length >= len(buffer):
            buffer = ctypes.create_string_buffer(length + 1)
            self.llama.llama_model_meta_val_str(self.handle, key.encode(), buffer, len(buffer))
        return buffer.value.decode(errors="replace") if length >= 0 else None

    def close(self) -> None:
        if self.handle:
            self.llama.llama_model_free(self.handle)
            self.handle = None


def _report(on_progress: Callable[[float], None] | None, share: float) -> bool:
    if on_progress is not None:
        on_progress(share)
    return True


def sampled_digest(path: Path) -> str:
    """A digest of pieces from all over a file: other weights of the same name and size differ in them."""
    last = max(0, path.stat().st_size - _SAMPLE_BYTES)
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for number in range(_NUM_SAMPLES):
            file.seek(last * number // (_NUM_SAMPLES - 1))
            digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest()
