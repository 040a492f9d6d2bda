"""The weights of a Llama from a GGUF file to a safetensors file as mlx-lm reads it. Reads tensor by tensor."""

import json
import math
import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from proxy_inference_engine.runners.gguf.blocks import BITS, GROUP, plain, quantised, to_bf16
from proxy_inference_engine.runners.gguf.file import GgufFile, Tensor

Numbers = Literal["kept", "bf16", "f32"]  # kept: quantised weights stay so
_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_BLOCK = re.compile(r"blk\.(\d+)\.(.+)")
_BYTES = {"F32": 4, "F16": 2, "BF16": 2, "U32": 4}


class _Entry(NamedTuple):
    """One array of the safetensors file."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def num_bytes(self) -> int:
        return math.prod(self.shape) * _BYTES[self.dtype]


def module_name(tensor: Tensor) -> str | None:
    """What mlx-lm calls the module that a tensor is the weight of; None for one that no Llama has."""
    base, _, part = tensor.name.rpartition(".")
    block = _BLOCK.fullmatch(base)
    inner = _NAMES.get(block[2] if block else base)
    if inner is None or part != "weight":
        return None
    return f"model.layers.{block[1]}.{inner}" if block else inner


def quantization(file: GgufFile) -> dict[str, Any] | None:
    """What config.json says of the quantised modules, each by its name; None where there are none."""
    parts = {
        str(module_name(tensor)): {"group_size": GROUP, "bits": BITS[tensor.kind]}
        for tensor in file.tensors
        if tensor.kind in BITS
    }
    return {"group_size": GROUP, "bits": min(part["bits"] for part in parts.values()), **parts} if parts else None


def plain_dtype(file: GgufFile, numbers: Numbers) -> str:
    """Of what is not quantised: kept numbers are those of the matrices, half precision beside quantised ones."""
    if numbers != "kept":
        return numbers.upper()
    kinds = {tensor.kind for tensor in file.tensors if len(tensor.shape) > 1}
    return kinds.pop() if len(kinds) == 1 and kinds <= _BYTES.keys() else "F16"


def write_weights(
    file: GgufFile, path: Path, numbers: Numbers, on_progress: Callable[[float], None] | None = None
) -> None:
    """One file: a header with every array's place, then their numbers. https://huggingface.co/docs/safetensors"""
    dtype = plain_dtype(file, numbers)
    keeps = numbers == "kept"
    header: dict[str, Any] = {"__metadata__": {"format": "mlx"}}
    end = 0
    for entry in (entry for tensor in file.tensors for entry in _entries(tensor, dtype, keeps)):
        start, end = end, end + entry.num_bytes
        header[entry.name] = {"dtype": entry.dtype, "shape": list(entry.shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for number, tensor in enumerate(file.tensors, start=1):
            for array in _arrays(file, tensor, dtype, keeps):
                out.write(np.ascontiguousarray(array).tobytes())
            if on_progress is not None:
                on_progress(number / len(file.tensors))


def _entries(tensor: Tensor, dtype: str, keeps: bool) -> Iterator[_Entry]:
    name = module_name(tensor)
    if not keeps or tensor.kind not in BITS:
        yield _Entry(f"{name}.weight", dtype, tensor.shape)
        return
    rows, columns = tensor.shape
    yield _Entry(f"{name}.weight", "U32", (rows, columns * BITS[tensor.kind] // 32))
    yield _Entry(f"{name}.scales", "F16", (rows, columns // GROUP))
    yield _Entry(f"{name}.biases", "F16", (rows, columns // GROUP))


def _arrays(file: GgufFile, tensor: Tensor, dtype: str, keeps: bool) -> Iterator[NDArray[Any]]:
    """In the order of `_entries`."""
    num_heads = _num_rotated_heads(file, tensor)
    if keeps and tensor.kind in BITS:
        yield from (_unpermuted(part, num_heads) for part in quantised(file, tensor))
        return
    values = _unpermuted(plain(file, tensor), num_heads)
    yield to_bf16(values) if dtype == "BF16" else values.astype("<f2" if dtype == "F16" else "<f4")


def _num_rotated_heads(file: GgufFile, tensor: Tensor) -> int | None:
    """Of the two matrices whose output is turned by its position."""
    if tensor.name.endswith("attn_q.weight"):
        return int(file.fact("llama.attention.head_count"))
    return int(file.fact("llama.attention.head_count_kv")) if tensor.name.endswith("attn_k.weight") else None


def _unpermuted(values: NDArray[Any], num_heads: int | None) -> NDArray[Any]:
    """llama.cpp keeps the two halves that a rotation turns together side by side; Hugging Face keeps them apart.

    GGUF:          x0 y0 x1 y1 …
    Hugging Face:  x0 x1 … y0 y1 …
    """
    if num_heads is None:
        return values
    rows, columns = values.shape
    pairs = values.reshape(num_heads, rows // num_heads // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)
