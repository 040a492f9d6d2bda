"""The GPUs that llama.cpp was built for: what is free on them, and what of a model goes there."""

import ctypes

from proxy_inference_engine.runners.llama_cpp.binding import Binding

ALL_LAYERS = 999  # more than any model has; the output layer counts as one, too
_GPU_KINDS = (1, 2)  # ggml's numbers for a card of its own, and for one that shares the host's memory
_WEIGHTS_SHARE = 0.8  # of what is free; the rest is for KV and for what a pass needs


def free_gpu_bytes(llama: Binding) -> int:
    """Memory that is free on all GPUs together; 0 without one."""
    free, total, num_bytes = ctypes.c_size_t(), ctypes.c_size_t(), 0
    for index in range(llama.ggml_backend_dev_count()):
        device = llama.ggml_backend_dev_get(index)
        if llama.ggml_backend_dev_type(device) in _GPU_KINDS:
            llama.ggml_backend_dev_memory(device, ctypes.byref(free), ctypes.byref(total))
            num_bytes += free.value
    return num_bytes


def fitting_layers(num_layers: int, weight_bytes: int, gpu_bytes: int) -> int:
    """How many of a model's layers go to GPUs with so much free."""
    room = gpu_bytes * _WEIGHTS_SHARE
    return ALL_LAYERS if weight_bytes <= room else int(num_layers * room / weight_bytes)


def free_for_kv(host_bytes: int, gpu_bytes: int, gpu_share: float) -> int:
    """KV lies where its layer does: with this share of the layers on GPUs, how much of it fits."""
    rooms = ((host_bytes, 1 - gpu_share), (gpu_bytes, gpu_share))
    return int(min(num_bytes / share for num_bytes, share in rooms if share > 0))
