"""KV of plain attention on CUDA: one block of memory for all layers and slots, written to in place by our kernels."""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx
import numpy as np

from proxy_inference_engine.runners.mlx.head import Head
from proxy_inference_engine.runners.mlx.kernels import Kernels, Shape, Where
from proxy_inference_engine.runners.mlx.rows import MAX_SHORT, Batch, Numbers, SlotRow
from proxy_inference_engine.runners.mlx.segment import KvSegment
from proxy_inference_engine.runners.mlx.slots import compute_row, row_mask

_ATTENTION = "scaled_dot_product_attention"
_FILL_BLOCKS = 264  # blocks that keep a large card busy; with fewer rows keys are divided into parts
_MIN_PART = 256  # keys
_MAX_UPLOADED = 256
_WIDTHS = (32, 64, 128, 256)  # of a head: a warp reads it in pieces of a size that memory has


class _BatchView:
    """What a layer's attention sees as its cache while a batch goes through it."""

    def __init__(self, pool: "Pool", layer: int, where: Where, turns: mx.array) -> None:
        self._pool, self._layer, self._where = pool, layer, where
        self.offset = turns

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        return keys, values  # the kernel writes them

    def make_mask(self, num_tokens: int, return_array: bool = False, window_size: int | None = None) -> None:
        assert window_size is None, "a window is not plain attention"

    def attend(self, queries: mx.array, keys: mx.array, values: mx.array, scale: float) -> mx.array:
        return self._pool.attend(queries, (keys, values), self._layer, self._where, scale)


class _RowView:
    """The same for one row alone, whose attention is MLX's own: over what the slot had and what is new."""

    def __init__(self, pool: "Pool", layer: int, row: SlotRow, orders: list[mx.array]) -> None:
        self._pool, self._layer, self._slot, self._start = pool, layer, row.slot, row.start
        self._orders = orders
        self.offset = row.start if row.turn is None else row.turn

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        new = mx.stack([keys, values], axis=1)  # (1, 2, heads, tokens, width)
        self._orders.append(self._pool.write(new, self._slot, self._start, self._layer))
        if self._start == 0:
            return keys, values
        past = self._pool.array[self._layer, :, self._slot : self._slot + 1, :, : self._start]
        return mx.concatenate([past[0], keys], axis=2), mx.concatenate([past[1], values], axis=2)

    def make_mask(
        self, num_tokens: int, return_array: bool = False, window_size: int | None = None
    ) -> mx.array | str | None:
        return row_mask(self._start, num_tokens, return_array=return_array, window_size=window_size)


class Pool:
    """The KV memory of one lane. Implements `memory.Memory`. All of it is taken when it is made."""

    can_splice = True

    def __init__(self, head: Head, shape: Shape, dtype: mx.Dtype) -> None:
        tokens = shape.tokens + MAX_SHORT  # a row that is filled up may write behind its end
        self._shape = shape._replace(tokens=tokens)
        self._head = head
        self._kernels = Kernels(self._shape)
        self.array = mx.zeros((shape.layers, 2, shape.slots, shape.heads, tokens, shape.width), dtype)
        mx.eval(self.array)
        self._orders: list[mx.array] = []
        self._uploaded: dict[bytes, mx.array] = {}
        # Tracing once what a batch does saves more than a millisecond of Python in every step.
        self._compiled: Callable[..., mx.array] = mx.compile(self._compute)
        _intercept()

    def attend(
        self, queries: mx.array, new: tuple[mx.array, mx.array], layer: int, where: Where, scale: float
    ) -> mx.array:
        return self._kernels.attend(queries, new, self.array, layer, where, scale)

    def write(self, source: mx.array, slot: int, start: int, first_layer: int) -> mx.array:
        """Order the writing of (layers, 2, heads, tokens, width)."""
        return self._kernels.store(source, self.array, _place(slot, start, source.shape[3], first_layer))

    def forward_batch(self, batch: Batch) -> mx.array:
        slots, counts, starts = self._kept(batch.slots), self._kept(batch.counts), mx.array(batch.starts)
        turns = starts if batch.turns is batch.starts else mx.array(batch.turns)
        return self._compiled(batch.ids, slots, starts, turns, counts, self._num_parts(batch))

    def _kept(self, numbers: Numbers) -> mx.array:
        """What is the same from step to step is uploaded once."""
        key = numbers.tobytes()
        if key not in self._uploaded:
            if len(self._uploaded) >= _MAX_UPLOADED:
                self._uploaded.clear()
            self._uploaded[key] = mx.array(numbers)
        return self._uploaded[key]

    def _num_parts(self, batch: Batch) -> int:
        """A power of two, since each number of parts is a kernel of its own."""
        useful = min(_FILL_BLOCKS // (batch.num_rows * self._shape.heads), int(batch.starts.max()) // _MIN_PART)
        return 1 << max(0, useful.bit_length() - 1) if useful > 0 else 1

    def _compute(
        self, ids: mx.array, slots: mx.array, starts: mx.array, turns: mx.array, counts: mx.array, num_parts: int
    ) -> mx.array:
        where = Where(slots, starts, counts, num_parts)
        views: list[Any] = [_BatchView(self, layer, where, turns) for layer in range(self._shape.layers)]
        rows = mx.arange(ids.shape[0])
        pick = (lambda hidden: hidden) if ids.shape[1] == 1 else (lambda hidden: hidden[rows, counts - 1][:, None])
        return self._head.logits(ids, views, pick).reshape(ids.shape[0], -1)

    def forward(self, rows: Sequence[SlotRow]) -> list[mx.array]:
        return [self._forward(row) for row in rows]

    def _forward(self, row: SlotRow) -> mx.array:
        views = [_RowView(self, layer, row, self._orders) for layer in range(self._shape.layers)]
        return row.compute(list(views)) if row.compute is not None else compute_row(self._head, row, views)

    def started(self) -> list[mx.array]:
        orders, self._orders = self._orders, []
        return orders

    def recover(self) -> None:
        """Nothing was replaced: what is not behind the ends of sequences is as it was."""
        self._orders = []

    def truncate(self, slot: int, num_tokens: int) -> None:
        """What lies behind the end of a sequence is never read."""

    def release(self, slot: int) -> None:
        """What a slot holds is never read before it is written again."""

    def close(self) -> None:
        """Give the memory back now: what is compiled holds on to the pool."""
        self.array = mx.zeros((0,))
        mx.clear_cache()

    def export(self, slot: int, start: int, end: int) -> KvSegment:
        copy = mx.contiguous(self.array[:, :, slot, :, start:end])
        mx.async_eval(copy)
        return KvSegment([copy], end - start)

    def restore(self, slot: int, segments: Sequence[KvSegment], num_tokens: int) -> None:
        at, orders = 0, []
        for segment in segments:
            count = min(segment.num_tokens, num_tokens - at)
            orders.append(self._kernels.store(segment.arrays[0], self.array, _place(slot, at, count, 0)))
            at += count
        mx.async_eval(orders)


def _place(*numbers: int) -> mx.array:
    return mx.array(np.array(numbers, np.int32))


def _intercept() -> None:
    """Have the attention of mlx-lm's models ask the cache first. Each of them imports the function by its name."""
    for name, module in list(sys.modules.items()):
        attention = getattr(module, _ATTENTION, None) if name.startswith("mlx_lm.models.") else None
        if attention is not None and not hasattr(attention, "is_ours"):
            setattr(module, _ATTENTION, _asking(attention))


def _asking(attention: Callable[..., mx.array]) -> Callable[..., mx.array]:
    def attend(queries: mx.array, keys: mx.array, values: mx.array, cache: object, **rest: Any) -> mx.array:
        if isinstance(cache, _BatchView):
            assert rest.get("sinks") is None, "sinks are not plain attention"
            return cache.attend(queries, keys, values, rest["scale"])
        return attention(queries, keys, values, cache=cache, **rest)

    attend.is_ours = True  # type: ignore[attr-defined]
    return attend


def takes(shapes: Sequence[tuple[int, ...]]) -> bool:
    """Whether K and V of these shapes, (1, heads, tokens, width) of every layer, fit a pool."""
    first = shapes[0]
    is_uniform = all((shape[1], shape[3]) == (first[1], first[3]) for shape in shapes)
    return is_uniform and first[3] in _WIDTHS
