"""What the structs of `binding.py` hold by default, compared with what a library says: the proof that layouts fit.

A field that was added or moved shifts all after it, and nearly every one has a default that its neighbours don't.
"""

import ctypes
import platform
from typing import Any

from proxy_inference_engine.runners.llama_cpp.binding import (
    Binding,
    llama_context_params,
    llama_model_params,
    mtmd_context_params,
)

_ROOM = "room"  # what a struct has at its end for fields that are not known
_BUFFER_BYTES = 1024  # more than any of the structs has
# A result of such size is written to where the first argument points; other processors have a register for that.
_RESULT_IS_ARGUMENT = platform.machine().lower() in ("x86_64", "amd64")

# What is not named is zero, false or null.
_MODEL = {"n_gpu_layers": -1, "split_mode": 1, "load_mode": -1, "lazy_mode": 1, "use_extra_bufts": True}
_CONTEXT = {
    "n_ctx": 512,
    "n_batch": 2048,
    "n_ubatch": 512,
    "n_seq_max": 1,
    "n_outputs_max_per_seq": 1,
    "n_threads": 4,
    "n_threads_batch": 4,
    "rope_scaling_type": -1,
    "pooling_type": -1,
    "attention_type": -1,
    "flash_attn_type": -1,
    "yarn_ext_factor": -1.0,
    "yarn_attn_factor": -1.0,
    "yarn_beta_fast": -1.0,
    "yarn_beta_slow": -1.0,
    "defrag_thold": -1.0,
    "type_k": 1,
    "type_v": 1,
    "offload_kqv": True,
    "no_perf": True,
    "op_offload": True,
    "swa_full": True,
}
_IMAGES = {
    "use_gpu": True,
    "print_timings": True,
    "n_threads": 4,
    "media_marker": b"<__media__>",
    "flash_attn_type": -1,
    "warmup": True,
    "image_min_tokens": -1,
    "image_max_tokens": -1,
    "batch_max_tokens": 1024,
}


def difference(binding: Binding) -> str | None:
    """The first default, or size, that is not what the binding expects; None where all are."""
    structs: list[tuple[str, type[ctypes.Structure], dict[str, Any]]] = [
        ("llama_model_default_params", llama_model_params, _MODEL),
        ("llama_context_default_params", llama_context_params, _CONTEXT),
    ]
    if binding.takes_images:
        structs.append(("mtmd_context_params_default", mtmd_context_params, _IMAGES))
    for function, struct, expected in structs:
        found = _size_difference(binding, function, struct) or _field_difference(getattr(binding, function)(), expected)
        if found is not None:
            return f"{struct.__name__} {found}"
    return None


def _size_difference(binding: Binding, function: str, struct: type[ctypes.Structure]) -> str | None:
    """Let the library write into a buffer of which it is known what it held before."""
    if not _RESULT_IS_ARGUMENT:
        return None
    write = binding.find(function)
    write.argtypes, write.restype = [ctypes.c_void_p], None
    buffers = [(ctypes.c_uint8 * _BUFFER_BYTES)(*[filling] * _BUFFER_BYTES) for filling in (0x5A, 0xA5)]
    for buffer in buffers:
        write(ctypes.addressof(buffer))
    written = {at for at, (one, other) in enumerate(zip(*buffers, strict=True)) if one == other}
    known = set(range(getattr(struct, _ROOM).offset))
    fields = [getattr(struct, name) for name, *_ in struct._fields_ if name != _ROOM]
    needed = {at for field in fields for at in range(field.offset, field.offset + field.size)}
    if written - known:
        return f"has more than {len(known)} bytes: {max(written) + 1}"
    return f"has fewer than {len(known)} bytes" if needed - written else None


def _field_difference(params: ctypes.Structure, expected: dict[str, Any]) -> str | None:
    for name, *_ in params._fields_:
        found = getattr(params, name)
        if name != _ROOM and (found or None) != (expected.get(name) or None):
            return f"has {name} {found!r}, not {expected.get(name, 0)!r}"
    return None
