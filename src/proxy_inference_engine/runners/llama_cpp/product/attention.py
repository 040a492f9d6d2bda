"""Flash attention of a few heads as a graph of ggml's: to try ours beside it, and to measure both."""

import ctypes
from ctypes import POINTER, c_float, c_int, c_int64, c_void_p
from typing import Any, NamedTuple, Self

import numpy as np

from proxy_inference_engine.runners.llama_cpp.binding import Binding
from proxy_inference_engine.runners.llama_cpp.product.multiplication import ROOM_BYTES, Graph, declared, new_context
from proxy_inference_engine.runners.llama_cpp.quantisation import Floats

_F32, _F16 = 0, 1


class AttentionShape(NamedTuple):
    """The last tokens of each stream's keys ask; so many heads share `num_kv_heads` heads of keys and values."""

    num_tokens: int
    num_keys: int
    num_heads: int = 6
    num_kv_heads: int = 2
    width: int = 64
    num_streams: int = 1


class AttentionGraph:
    """Random numbers of a shape. Each token sees what comes before it, and nothing of the last `num_unused` keys."""

    def __init__(self, binding: Binding, shape: AttentionShape, seed: int = 0, num_unused: int = 0) -> None:
        self._binding, self._shape = binding, shape
        width, tokens, keys, streams = shape.width, shape.num_tokens, shape.num_keys, shape.num_streams
        generator = np.random.default_rng(seed)
        queries = generator.standard_normal((streams, shape.num_heads, tokens, width), np.float32) * 2
        sides = generator.standard_normal((2, streams, shape.num_kv_heads, keys, width), np.float32).astype(np.float16)
        self._arrays = arrays = [queries, *sides, _mask(shape, num_unused)]
        num_bytes = ROOM_BYTES + sum(array.nbytes for array in arrays) + queries.nbytes
        self._context = new_context(binding, num_bytes)
        self._data = declared(binding, "ggml_get_data", c_void_p, c_void_p)
        tensors = [self._tensor(array) for array in arrays]
        attend = declared(binding, "ggml_flash_attn_ext", c_void_p, *[c_void_p] * 5, *[c_float] * 3)
        self._result = attend(self._context, *tensors, width**-0.5, 0.0, 0.0)
        self._graph = Graph(binding, self._context, self._result)

    def _tensor(self, array: Any) -> Any:
        new_tensor = declared(self._binding, "ggml_new_tensor_4d", c_void_p, c_void_p, c_int, *[c_int64] * 4)
        tensor = new_tensor(self._context, _F32 if array.dtype == np.float32 else _F16, *reversed(array.shape))
        ctypes.memmove(self._data(tensor), np.ascontiguousarray(array).ctypes.data, array.nbytes)
        return tensor

    def compute(self, threads: int = 1) -> Floats:
        """(streams, tokens, heads, width): a copy."""
        self.run(threads)
        shape = self._shape
        found = shape.num_streams, shape.num_tokens, shape.num_heads, shape.width
        return np.array(np.ctypeslib.as_array(ctypes.cast(self._data(self._result), POINTER(c_float)), found))

    def expected(self) -> Floats:
        """What the graph has to compute, by attention's formula in float64: for tests."""
        queries, keys, values, mask = (array.astype(np.float64) for array in self._arrays)
        group = self._shape.num_heads // self._shape.num_kv_heads
        keys, values = (np.repeat(side, group, axis=1) for side in (keys, values))
        scores = queries @ keys.swapaxes(-1, -2) * self._shape.width**-0.5 + mask
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        found = (weights / weights.sum(-1, keepdims=True)) @ values
        return np.asarray(found.swapaxes(1, 2), np.float32)

    def run(self, threads: int) -> None:
        self._graph.run(threads)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        declared(self._binding, "ggml_free", None, c_void_p)(self._context)


def _mask(shape: AttentionShape, num_unused: int) -> Any:
    mask = np.full((shape.num_streams, 1, shape.num_tokens, shape.num_keys), -np.inf, np.float16)
    for token in range(shape.num_tokens):
        mask[..., token, : shape.num_keys - num_unused - shape.num_tokens + token + 1] = 0
    return mask
