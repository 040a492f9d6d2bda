"""KV of plain attention on CUDA: one block of memory for all layers and slots, written to in place by our kernels."""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import mlx.core as mx
import numpy as np

from proxy_inference_engine.runners.mlx.cuda.decoder import Decoder
from proxy_inference_engine.runners.mlx.cuda.kernels import (
    MAX_PARTS,
    UNIT,
    Kernels,
    Layer,
    PoolPlace,
    PoolShape,
    Where,
    apart,
    on_device,
    up,
    upload,
)
from proxy_inference_engine.runners.mlx.head import OutputHead
from proxy_inference_engine.runners.mlx.memory.segment import KvSegment
from proxy_inference_engine.runners.mlx.memory.slots import compute_row, row_mask
from proxy_inference_engine.runners.mlx.rows import MAX_SHORT, Batch, Numbers, SlotRow

_ATTENTION = "scaled_dot_product_attention"
_FILL_BLOCKS = 264  # blocks that keep a large card busy; with fewer rows keys are divided into parts
_MIN_PART = 64  # keys
_MAX_UPLOADED = 256
_WIDTHS = (32, 64, 128, 256)  # of a head: a warp reads it in pieces of a size that memory has


class _BatchView:
    """What a layer's attention sees as its cache while a batch goes through it."""

    def __init__(self, pool: "KvPool", layer: int, where: Where, turns: mx.array) -> None:
        self._pool, self._layer, self._where = pool, layer, where
        self.offset = turns

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        return keys, values  # the kernel writes them

    def make_mask(self, num_tokens: int, return_array: bool = False, window_size: int | None = None) -> None:
        assert window_size is None, "a window is not plain attention"

    def attend(self, queries: mx.array, keys: mx.array, values: mx.array, scale: float) -> mx.array:
        return self._pool.kernels.attend(apart(queries, keys, values), Layer(self._layer, scale), self._where)


class _RowView:
    """A layer's cache for a row computed alone: MLX's own attention sees what the slot had and what is new."""

    def __init__(self, pool: "KvPool", layer: int, row: SlotRow, place: mx.array, turn: mx.array | int) -> None:
        self._pool, self._layer, self._slot, self._start = pool, layer, row.slot, row.start
        self._place = place
        self.offset = turn

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        new = mx.stack([keys, values], axis=1)  # (1, 2, heads, tokens, width)
        self._pool.order(self._pool.kernels.store(new, self._place))
        if self._start == 0:
            return keys, values
        past = self._pool.kernels.pool[self._layer, :, self._slot : self._slot + 1, :, : self._start]
        return mx.concatenate([past[0], keys], axis=2), mx.concatenate([past[1], values], axis=2)

    def make_mask(
        self, num_tokens: int, return_array: bool = False, window_size: int | None = None
    ) -> mx.array | str | None:
        return row_mask(self._start, num_tokens, return_array=return_array, window_size=window_size)


class _Following(NamedTuple):
    """Where rows go on after a pass."""

    slots: Numbers
    starts: Numbers
    array: mx.array  # the starts, on the device


class KvPool:
    """The KV memory of one lane. Implements `memory.Memory`. All of it is taken when it is made."""

    can_splice = True

    def __init__(self, head: OutputHead, shape: PoolShape, dtype: mx.Dtype) -> None:
        tokens = up(shape.tokens + MAX_SHORT, UNIT)  # rows that are filled up write behind the end
        self._head = head
        self.kernels = Kernels(shape._replace(tokens=tokens), dtype, MAX_SHORT)
        self._orders: list[mx.array] = []
        self._uploaded: dict[bytes, mx.array] = {}
        self._following: _Following | None = None
        _intercept()
        self.use(None)

    def use(self, decoder: Decoder | None) -> None:
        """What computes batches; None: the model's own layers."""
        self._decoder = decoder
        # Tracing once what a batch does saves more than a millisecond of Python in every step.
        self._compiled: Callable[..., tuple[mx.array, mx.array]] = mx.compile(self._compute)

    def forward_batch(self, batch: Batch) -> mx.array:
        slots, counts, starts = self._kept(batch.slots), self._kept(batch.counts), self._starts(batch)
        turns = starts if batch.turns is batch.starts else on_device(mx.array(batch.turns))
        last = self._kept(
            batch.last
        )  # counted here: for such arithmetic MLX would compile a kernel, which takes seconds
        logits, following = self._compiled(batch.ids, slots, starts, turns, counts, last, self._num_parts(batch))
        self._following = _Following(batch.slots, batch.starts + batch.counts, following)
        return logits

    def _kept(self, numbers: Numbers) -> mx.array:
        """An array on the device; what is the same from step to step is uploaded once."""
        key = numbers.tobytes()
        if key not in self._uploaded:
            if len(self._uploaded) >= _MAX_UPLOADED:
                self._uploaded.clear()
            self._uploaded[key] = on_device(mx.array(numbers))
        return self._uploaded[key]

    def _starts(self, batch: Batch) -> mx.array:
        """Where the last pass of the same rows ended, which the device knows, or else uploaded."""
        last = self._following
        if last is not None and np.array_equal(last.slots, batch.slots) and np.array_equal(last.starts, batch.starts):
            return last.array
        return on_device(mx.array(batch.starts))

    def _num_parts(self, batch: Batch) -> int:
        """Into how many parts keys go: a power of two, since a pass is traced anew for each number."""
        blocks, keys = batch.num_rows * self.kernels.shape.heads, int(batch.starts.max())
        useful = max(1, min(MAX_PARTS, _FILL_BLOCKS // blocks, keys // _MIN_PART))
        return 1 << (useful.bit_length() - 1)

    def _compute(
        self,
        ids: mx.array,
        slots: mx.array,
        starts: mx.array,
        turns: mx.array,
        counts: mx.array,
        last: mx.array,
        num_parts: int,
    ) -> tuple[mx.array, mx.array]:
        """Logits, and where the rows start next."""
        num_rows = ids.shape[0]
        where, following = Where(num_rows, slots, starts, counts, num_parts), starts + counts
        if self._decoder is not None:
            return self._decoder.logits(ids, where, turns, last[:num_rows]), following
        of_rows = [_BatchView(self, layer, where, turns[:num_rows]) for layer in range(self.kernels.shape.layers)]
        views: list[Any] = list(of_rows)
        pick = (lambda hidden: hidden) if ids.shape[1] == 1 else partial(_pick, last[:num_rows])
        return self._head.logits(ids, views, pick).reshape(num_rows, -1), following

    def forward(self, rows: Sequence[SlotRow]) -> list[mx.array]:
        return [self._forward(row) for row in rows]

    def _forward(self, row: SlotRow) -> mx.array:
        if self._decoder is not None and row.compute is None and self.kernels.can_look:
            logits, last = self._decoder.prompt(row)
            self.order(last)
            return logits
        layers = range(self.kernels.shape.layers)
        places = upload([PoolPlace(row.slot, row.start, row.num_tokens, layer) for layer in layers])
        turn = row.start if row.turn is None else row.turn
        if row.compute is not None:
            return row.compute([_RowView(self, layer, row, places[layer], turn) for layer in layers])
        ids, turns = on_device(row.ids)[: row.num_tokens], on_device(mx.array([turn]))[:1]
        views = [_RowView(self, layer, row, places[layer], turns) for layer in layers]
        return compute_row(self._head, row._replace(ids=ids), views)

    def order(self, array: mx.array) -> None:
        """Have something computed with the next pass although nothing in that needs it."""
        self._orders.append(array)

    def started(self) -> list[mx.array]:
        orders, self._orders = self._orders, []
        return orders

    def recover(self) -> None:
        """Go on after a failed pass: nothing that is read was replaced, only what lies behind the ends of sequences."""
        self._orders = []
        self._following = None

    def truncate(self, slot: int, num_tokens: int) -> None:
        """Do nothing: what lies behind the end of a sequence is never read."""

    def release(self, slot: int) -> None:
        """Do nothing: what a slot holds is never read before it is written again."""

    def close(self) -> None:
        """Give the memory back now: what is compiled holds on to the pool."""
        self.kernels.pool = mx.zeros((0,))
        mx.clear_cache()

    def export(self, slot: int, start: int, end: int) -> KvSegment:
        copy = self.kernels.load(PoolPlace(slot, start, end - start))
        mx.async_eval(copy)
        return KvSegment([copy], end - start)

    def restore(self, slot: int, segments: Sequence[KvSegment], num_tokens: int) -> None:
        at, places = 0, []
        for segment in segments:
            count = min(segment.num_tokens, num_tokens - at)
            places.append(PoolPlace(slot, at, count))
            at += count
        sources = (segment.arrays[0] for segment in segments)
        mx.async_eval([self.kernels.store(*each) for each in zip(sources, upload(places), strict=True)])


def _pick(last: mx.array, hidden: mx.array) -> mx.array:
    """The hidden states of the last tokens, (rows, 1, width), out of those of all, (rows, tokens, width)."""
    return hidden.reshape(-1, hidden.shape[-1])[last][:, None]


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
