"""The part of llama.cpp's C interface that the runner uses: structs, constants and functions, by their own names.

The layouts are those of llama.h and mtmd.h as xllamacpp 2026.9.11063 and llama-cpp-python 0.3.36 were built with;
`defaults.py` compares them with a library's own before anything else is asked of it. Knows nothing of where a library
lies.

ctypes: cffi without a compiler would save less than a microsecond of a step's calls (`docs/log.md`).
"""

import ctypes
import math
from ctypes import (
    POINTER,
    c_bool,
    c_char_p,
    c_float,
    c_int,
    c_int8,
    c_int32,
    c_size_t,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
)
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

GGML_TYPE_F16 = 1
GGML_TYPE_Q8_0 = 8
LLAMA_LOAD_MODE_NONE = 0
MTMD_INPUT_CHUNK_TYPE_TEXT = 0

llama_token = llama_pos = llama_seq_id = c_int32
handle = c_void_p  # of a model, a context, a device: what only the library looks into
log_callback = ctypes.CFUNCTYPE(None, c_int, c_char_p, c_void_p)
progress_callback = ctypes.CFUNCTYPE(c_bool, c_float, c_void_p)

# A library with more fields at the end of a struct fills and reads them here, beyond what is known of it.
_ROOM = ("room", c_uint64 * 16)


class llama_batch(ctypes.Structure):
    _fields_ = (
        ("n_tokens", c_int32),
        ("token", POINTER(llama_token)),
        ("embd", POINTER(c_float)),
        ("pos", POINTER(llama_pos)),
        ("n_seq_id", POINTER(c_int32)),
        ("seq_id", POINTER(POINTER(llama_seq_id))),
        ("logits", POINTER(c_int8)),
    )


class llama_model_params(ctypes.Structure):
    _fields_ = (
        ("devices", c_void_p),
        ("tensor_buft_overrides", c_void_p),
        ("n_gpu_layers", c_int32),
        ("split_mode", c_int),
        ("load_mode", c_int),
        ("lazy_mode", c_int),
        ("main_gpu", c_int32),
        ("tensor_split", c_void_p),
        ("progress_callback", progress_callback),
        ("progress_callback_user_data", c_void_p),
        ("kv_overrides", c_void_p),
        ("vocab_only", c_bool),
        ("check_tensors", c_bool),
        ("use_extra_bufts", c_bool),
        ("no_host", c_bool),
        ("no_alloc", c_bool),
        ("load_mtp", c_bool),
        _ROOM,
    )


class llama_context_params(ctypes.Structure):
    _fields_ = (
        ("n_ctx", c_uint32),
        ("n_batch", c_uint32),
        ("n_ubatch", c_uint32),
        ("n_seq_max", c_uint32),
        ("n_rs_seq", c_uint32),
        ("n_outputs_max", c_uint32),
        ("n_outputs_max_per_seq", c_uint32),
        ("n_threads", c_int32),
        ("n_threads_batch", c_int32),
        ("ctx_type", c_int),
        ("rope_scaling_type", c_int),
        ("pooling_type", c_int),
        ("attention_type", c_int),
        ("flash_attn_type", c_int),
        ("rope_freq_base", c_float),
        ("rope_freq_scale", c_float),
        ("yarn_ext_factor", c_float),
        ("yarn_attn_factor", c_float),
        ("yarn_beta_fast", c_float),
        ("yarn_beta_slow", c_float),
        ("yarn_orig_ctx", c_uint32),
        ("defrag_thold", c_float),
        ("cb_eval", c_void_p),
        ("cb_eval_user_data", c_void_p),
        ("type_k", c_int),
        ("type_v", c_int),
        ("abort_callback", c_void_p),
        ("abort_callback_data", c_void_p),
        ("embeddings", c_bool),
        ("offload_kqv", c_bool),
        ("no_perf", c_bool),
        ("op_offload", c_bool),
        ("swa_full", c_bool),
        ("kv_unified", c_bool),
        ("samplers", c_void_p),
        ("n_samplers", c_size_t),
        ("ctx_other", c_void_p),
        _ROOM,
    )


class mtmd_context_params(ctypes.Structure):
    _fields_ = (
        ("use_gpu", c_bool),
        ("device", c_void_p),
        ("print_timings", c_bool),
        ("n_threads", c_int),
        ("image_marker", c_char_p),
        ("media_marker", c_char_p),
        ("flash_attn_type", c_int),
        ("warmup", c_bool),
        ("image_min_tokens", c_int),
        ("image_max_tokens", c_int),
        ("cb_eval", c_void_p),
        ("cb_eval_user_data", c_void_p),
        ("batch_max_tokens", c_int),
        ("progress_callback", c_void_p),
        ("progress_callback_user_data", c_void_p),
        _ROOM,
    )


class mtmd_input_text(ctypes.Structure):
    _fields_ = (("text", c_char_p), ("text_len", c_size_t), ("add_special", c_bool), ("parse_special", c_bool))


class mtmd_decoder_pos(ctypes.Structure):
    _fields_ = (("t", c_uint32), ("x", c_uint32), ("y", c_uint32), ("z", c_uint32))


# Name: the result, then the arguments. Addresses of numbers are results as plain integers: `floats` makes arrays.
FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "ggml_backend_dev_count": (c_size_t,),
    "ggml_backend_dev_get": (handle, c_size_t),
    "ggml_backend_dev_memory": (None, handle, POINTER(c_size_t), POINTER(c_size_t)),
    "ggml_backend_dev_type": (c_int, handle),
    "ggml_version": (c_char_p,),
    "llama_adapter_lora_free": (None, handle),
    "llama_adapter_lora_init": (handle, handle, c_char_p),
    "llama_backend_init": (None,),
    "llama_context_default_params": (llama_context_params,),
    "llama_decode": (c_int32, handle, llama_batch),
    "llama_free": (None, handle),
    "llama_get_embeddings": (c_void_p, handle),
    "llama_get_embeddings_seq": (c_void_p, handle, llama_seq_id),
    "llama_get_logits": (c_void_p, handle),
    "llama_get_memory": (handle, handle),
    "llama_init_from_model": (handle, handle, llama_context_params),
    "llama_log_set": (None, log_callback, c_void_p),
    "llama_memory_clear": (None, handle, c_bool),
    "llama_memory_seq_rm": (c_bool, handle, llama_seq_id, llama_pos, llama_pos),
    "llama_model_chat_template": (c_char_p, handle, c_char_p),
    "llama_model_default_params": (llama_model_params,),
    "llama_model_desc": (c_int32, handle, c_char_p, c_size_t),
    "llama_model_free": (None, handle),
    "llama_model_get_vocab": (handle, handle),
    "llama_model_is_hybrid": (c_bool, handle),
    "llama_model_is_recurrent": (c_bool, handle),
    "llama_model_load_from_file": (handle, c_char_p, llama_model_params),
    "llama_model_meta_val_str": (c_int32, handle, c_char_p, c_char_p, c_size_t),
    "llama_model_n_ctx_train": (c_int32, handle),
    "llama_model_n_embd": (c_int32, handle),
    "llama_model_n_embd_inp": (c_int32, handle),
    "llama_model_n_embd_out": (c_int32, handle),
    "llama_model_n_head": (c_int32, handle),
    "llama_model_n_head_kv": (c_int32, handle),
    "llama_model_n_layer": (c_int32, handle),
    "llama_model_n_params": (c_uint64, handle),
    "llama_model_n_swa": (c_int32, handle),
    "llama_model_size": (c_uint64, handle),
    "llama_print_system_info": (c_char_p,),
    "llama_set_adapters_lora": (c_int32, handle, c_void_p, c_size_t, c_void_p),
    "llama_set_n_threads": (None, handle, c_int32, c_int32),
    "llama_set_causal_attn": (None, handle, c_bool),
    "llama_state_seq_get_data": (c_size_t, handle, c_void_p, c_size_t, llama_seq_id),
    "llama_state_seq_get_size": (c_size_t, handle, llama_seq_id),
    "llama_state_seq_set_data": (c_size_t, handle, c_void_p, c_size_t, llama_seq_id),
    "llama_token_to_piece": (c_int32, handle, llama_token, c_char_p, c_int32, c_int32, c_bool),
    "llama_tokenize": (c_int32, handle, c_char_p, c_int32, POINTER(llama_token), c_int32, c_bool, c_bool),
    "llama_vocab_bos": (llama_token, handle),
    "llama_vocab_get_add_bos": (c_bool, handle),
    "llama_vocab_get_add_eos": (c_bool, handle),
    "llama_vocab_get_add_sep": (c_bool, handle),
    "llama_vocab_get_attr": (c_int, handle, llama_token),
    "llama_vocab_is_eog": (c_bool, handle, llama_token),
    "llama_vocab_n_tokens": (c_int32, handle),
    "llama_vocab_sep": (llama_token, handle),
}
# Of the multimodal library: a build of llama.cpp may be without it, and then takes no images.
IMAGE_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "mtmd_bitmap_free": (None, handle),
    "mtmd_bitmap_init": (handle, c_uint32, c_uint32, POINTER(c_uint8)),
    "mtmd_context_params_default": (mtmd_context_params,),
    "mtmd_decode_use_mrope": (c_bool, handle),
    "mtmd_decode_use_non_causal": (c_bool, handle, handle),
    "mtmd_default_marker": (c_char_p,),
    "mtmd_encode_chunk": (c_int, handle, handle),
    "mtmd_free": (None, handle),
    "mtmd_get_output_embd": (c_void_p, handle),
    "mtmd_helper_image_get_decoder_pos": (None, handle, llama_pos, POINTER(mtmd_decoder_pos)),
    "mtmd_init_from_file": (handle, c_char_p, handle, mtmd_context_params),
    "mtmd_input_chunk_get_n_pos": (llama_pos, handle),
    "mtmd_input_chunk_get_n_tokens": (c_size_t, handle),
    "mtmd_input_chunk_get_tokens_image": (handle, handle),
    "mtmd_input_chunk_get_tokens_text": (POINTER(llama_token), handle, POINTER(c_size_t)),
    "mtmd_input_chunk_get_type": (c_int, handle),
    "mtmd_input_chunks_free": (None, handle),
    "mtmd_input_chunks_get": (handle, handle, c_size_t),
    "mtmd_input_chunks_init": (handle,),
    "mtmd_input_chunks_size": (c_size_t, handle),
    "mtmd_log_set": (None, log_callback, c_void_p),
    "mtmd_support_vision": (c_bool, handle),
    "mtmd_tokenize": (c_int, handle, handle, POINTER(mtmd_input_text), POINTER(handle), c_size_t),
}


class Binding:
    """The functions of one library as attributes. Raises OSError where it cannot be loaded or lacks one of them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # Its names stay its own: two libraries of one process must not find each other's functions.
        self._parts = [ctypes.CDLL(str(path), mode=ctypes.RTLD_LOCAL)]
        self._bind(FUNCTIONS)
        beside = path.with_name(path.name.replace("llama", "mtmd"))
        if not hasattr(self._parts[0], "mtmd_free") and beside != path and beside.exists():
            self._parts.append(ctypes.CDLL(str(beside), mode=ctypes.RTLD_LOCAL))
        self.takes_images = self.find("mtmd_free") is not None
        if self.takes_images:
            self._bind(IMAGE_FUNCTIONS)

    def find(self, name: str) -> Any:
        """A function without a declaration, or None."""
        return next((part[name] for part in self._parts if hasattr(part, name)), None)

    def _bind(self, functions: dict[str, tuple[Any, ...]]) -> None:
        for name, (result, *arguments) in functions.items():
            function = self.find(name)
            if function is None:
                raise OSError(f"it has no function {name}")
            function.restype = result
            function.argtypes = arguments
            setattr(self, name, function)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


def floats(address: int, *shape: int) -> NDArray[np.float32]:
    """A view of numbers that the library keeps at this address."""
    numbers: NDArray[np.float32] = np.ctypeslib.as_array((c_float * math.prod(shape)).from_address(address))
    return numbers.reshape(shape)
