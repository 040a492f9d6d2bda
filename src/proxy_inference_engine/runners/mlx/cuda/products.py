"""Matrix products of few rows with what comes before and after them, as CUDA kernels of ours.

A step of one row costs what reading its weights costs, and every launch of a kernel. So norms, additions and gates are
done by the kernel that reads the weights. Of more rows the products are MLX's, and only what is between them is ours.
"""

from collections.abc import Iterable
from typing import NamedTuple

import mlx.core as mx

from proxy_inference_engine.runners.mlx.cuda.kernels import kernel, on_device, up
from proxy_inference_engine.runners.mlx.cuda.product_sources import ADD_NORM, GATE, PRODUCT

_PIECE = 16  # bytes that a thread reads at once
_MAX_SHARED = 64 << 10  # bytes
_UNROLLED = 2
_PRODUCT_THREADS, _GATE_THREADS, _MAX_NORM_THREADS = 256, 128, 512


class Norm(NamedTuple):
    weights: mx.array
    eps: float
    eps_array: mx.array  # the same, where kernels find it


def takes(dtype: mx.Dtype, widths: Iterable[int]) -> bool:
    """Whether products of these widths can be computed here."""
    return dtype.size == 2 and all(width * dtype.size <= _MAX_SHARED and width % 8 == 0 for width in widths)


def make_norm(weights: mx.array, eps: float) -> Norm:
    eps_array = on_device(mx.array([eps], mx.float32))
    mx.eval(eps_array)
    return Norm(weights, eps, eps_array)


class Products:
    """Compiled by MLX at their first use, for each type and kind. Rows are (rows, width)."""

    def __init__(self, dtype: mx.Dtype, max_width: int) -> None:
        self._dtype = dtype
        self._each = _PIECE // dtype.size
        inputs = ["inputs", "weights", "norm", "eps", "added"]
        shared_bytes = up(max_width, 32 * self._each * _UNROLLED) * dtype.size
        self._product = kernel("pie_product", inputs, ["out"], PRODUCT, shared_bytes)
        self._add_norm = kernel("pie_add_norm", ["hidden", "added", "norm", "eps"], ["sum", "normed"], ADD_NORM)
        self._gate = kernel("pie_gate", ["both"], ["out"], GATE)
        self._nothing, self._no_eps = mx.zeros((1, 1), dtype), mx.zeros((1,), mx.float32)
        mx.eval(self._nothing, self._no_eps)

    def product(
        self,
        inputs: mx.array,
        weights: mx.array,
        *,
        norm: Norm | None = None,
        added: mx.array | None = None,
        is_gated: bool = False,
    ) -> mx.array:
        """One row, normed, times `weights` (outputs, width); then `added` is added, or one half gates the other."""
        outputs = weights.shape[0] // 2 if is_gated else weights.shape[0]
        num_warps = outputs if is_gated else (outputs + 1) // 2
        factors, eps = (self._nothing, self._no_eps) if norm is None else (norm.weights, norm.eps_array)
        out: mx.array
        (out,) = self._product(
            inputs=[inputs, weights, factors, eps, self._nothing if added is None else added],
            template=[
                *(("T", self._dtype), ("EACH", self._each), ("UNROLLED", _UNROLLED)),
                *(("NORMED", norm is not None), ("ADDED", added is not None), ("GATED", is_gated)),
            ],
            grid=(up(num_warps * 32, _PRODUCT_THREADS), 1, 1),
            threadgroup=(_PRODUCT_THREADS, 1, 1),
            output_shapes=[(1, outputs)],
            output_dtypes=[self._dtype],
        )
        return out

    def add_norm(self, hidden: mx.array, added: mx.array, norm: Norm) -> tuple[mx.array, mx.array]:
        """The sum of two arrays of rows, and the sum normed."""
        rows, width = hidden.shape
        threads = min(_MAX_NORM_THREADS, up(width // self._each, 32))
        pieces = -(-width // (self._each * threads))
        total, normed = self._add_norm(
            inputs=[hidden, added, norm.weights, norm.eps_array],
            template=[("T", self._dtype), ("EACH", self._each), ("PIECES", pieces)],
            grid=(rows * threads, 1, 1),
            threadgroup=(threads, 1, 1),
            output_shapes=[hidden.shape, hidden.shape],
            output_dtypes=[self._dtype, self._dtype],
        )
        return total, normed

    def gate(self, both: mx.array) -> mx.array:
        """Rows of gates and of what they let pass → half as wide."""
        rows, width = both.shape[0], both.shape[1] // 2
        out: mx.array
        (out,) = self._gate(
            inputs=[both],
            template=[("T", self._dtype), ("EACH", self._each)],
            grid=(up(width // self._each, _GATE_THREADS), rows, 1),
            threadgroup=(_GATE_THREADS, 1, 1),
            output_shapes=[(rows, width)],
            output_dtypes=[self._dtype],
        )
        return out
