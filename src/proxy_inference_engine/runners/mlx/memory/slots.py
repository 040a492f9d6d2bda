"""KV of plain attention: for each layer one array of slots, grown as it is needed.

Written without changing any array in place, which every backend of MLX does; `pool.py` does better on CUDA.
"""

import logging
from collections.abc import Sequence
from typing import NamedTuple

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx_lm.models.base import create_causal_mask

from proxy_inference_engine.runners.mlx.head import OutputHead, Pick
from proxy_inference_engine.runners.mlx.memory.base import LostSlot
from proxy_inference_engine.runners.mlx.memory.segment import KvSegment
from proxy_inference_engine.runners.mlx.rows import Batch, SlotRow

_log = logging.getLogger(__name__)

_STEP = 256  # tokens by which arrays grow


class LayerSlots:
    """K and V of one layer: (slots, heads, tokens, width) each."""

    def __init__(self) -> None:
        self.keys: mx.array | None = None
        self.values: mx.array | None = None

    def grow(self, num_slots: int, num_tokens: int, keys: mx.array, values: mx.array) -> None:
        """Make room for more tokens; `keys` and `values` show heads, width and type."""
        self.keys = _grown(self.keys, num_slots, num_tokens, keys)
        self.values = _grown(self.values, num_slots, num_tokens, values)


def _grown(old: mx.array | None, num_slots: int, num_tokens: int, like: mx.array) -> mx.array:
    had_slots, had_tokens = (0, 0) if old is None else (old.shape[0], old.shape[2])
    if old is not None and had_slots >= num_slots and had_tokens >= num_tokens:
        return old
    num_slots = max(num_slots, had_slots)
    num_tokens = max(-(-num_tokens // _STEP) * _STEP, had_tokens)
    grown = mx.zeros((num_slots, like.shape[1], num_tokens, like.shape[3]), like.dtype)
    if old is not None:
        grown[:had_slots, :, :had_tokens] = old
    return grown


class _BatchView:
    """What a layer's attention sees as its cache while a batch goes through it."""

    def __init__(self, layer: LayerSlots, batch: Batch, places: "_Places") -> None:
        self._layer, self._batch, self._places = layer, batch, places
        self.offset = places.turns

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        layer, places = self._layer, self._places
        layer.grow(int(self._batch.slots.max()) + 1, self._batch.end, keys, values)
        assert layer.keys is not None and layer.values is not None
        layer.keys[places.rows, :, places.columns] = keys.transpose(0, 2, 1, 3)
        layer.values[places.rows, :, places.columns] = values.transpose(0, 2, 1, 3)
        return self._read(layer.keys), self._read(layer.values)

    def _read(self, array: mx.array) -> mx.array:
        slots, end = self._batch.slots, self._batch.end
        if np.array_equal(slots, np.arange(len(slots))):
            return array[: len(slots), :, :end]
        return array[self._places.slots, :, :end]

    def make_mask(self, num_tokens: int, return_array: bool = False, window_size: int | None = None) -> mx.array:
        columns, rows = mx.arange(self._batch.end)[None, None], self._places.columns[:, :, None]
        mask = columns <= rows
        if window_size is not None:
            mask = mask & (columns > rows - window_size)
        return mask[:, None]


class _Places(NamedTuple):
    """Where a batch writes, as arrays that all layers share."""

    slots: mx.array  # (rows,)
    turns: mx.array  # (rows,)
    rows: mx.array  # (rows, 1)
    columns: mx.array  # (rows, width)


class RowView:
    """A layer's cache, as attention sees it, while one row goes through the model alone."""

    def __init__(self, layer: LayerSlots, row: SlotRow) -> None:
        self._layer, self._slot, self._start = layer, row.slot, row.start
        self.offset = row.start if row.turn is None else row.turn

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        layer, slot, end = self._layer, self._slot, self._start + keys.shape[2]
        layer.grow(slot + 1, end, keys, values)
        assert layer.keys is not None and layer.values is not None
        layer.keys[slot : slot + 1, :, self._start : end] = keys
        layer.values[slot : slot + 1, :, self._start : end] = values
        return layer.keys[slot : slot + 1, :, :end], layer.values[slot : slot + 1, :, :end]

    def make_mask(
        self, num_tokens: int, return_array: bool = False, window_size: int | None = None
    ) -> mx.array | str | None:
        return row_mask(self._start, num_tokens, return_array=return_array, window_size=window_size)


def row_mask(start: int, num_tokens: int, *, return_array: bool, window_size: int | None) -> mx.array | str | None:
    """The mask of one row as mlx-lm's caches make it: a name where the library knows the mask, an array where not."""
    if window_size is not None or return_array:
        mask: mx.array = create_causal_mask(num_tokens, start, window_size=window_size)
        return mask
    return "causal" if num_tokens > 1 else None


class SlotMemory:
    """The KV memory of one lane. Implements `memory.Memory`."""

    can_splice = True

    def __init__(self, model: nn.Module, head: OutputHead, num_layers: int) -> None:
        self._model = model
        self._head = head
        self._layers = [LayerSlots() for _ in range(num_layers)]
        self._used: set[int] = set()
        self._lost: set[int] = set()  # of those in use: what they held is gone

    def forward_batch(self, batch: Batch) -> mx.array:
        self._use(batch.slots.tolist())
        places = _Places(
            slots=mx.array(batch.slots),
            turns=mx.array(batch.turns),
            rows=mx.array(batch.slots[:, None]),
            columns=mx.array(batch.starts[:, None] + np.arange(batch.width, dtype=np.int32)[None]),
        )
        views = [_BatchView(layer, batch, places) for layer in self._layers]
        logits = self._head.logits(batch.ids, views, pick_last(batch))
        return logits.reshape(batch.num_rows, -1)

    def forward(self, rows: Sequence[SlotRow]) -> list[mx.array]:
        return [self._forward(row) for row in rows]

    def _forward(self, row: SlotRow) -> mx.array:
        self._use([row.slot])
        views = [RowView(layer, row) for layer in self._layers]
        if row.compute is not None:
            return row.compute(views)
        return compute_row(self._head, row, views)

    def _use(self, slots: list[int]) -> None:
        for slot in slots:
            self._check(slot)
        self._used.update(slots)

    def _check(self, slot: int) -> None:
        if slot in self._lost:
            raise LostSlot(f"slot {slot} was lost when the device failed")

    def started(self) -> list[mx.array]:
        """All that has to be computed besides the logits."""
        return [array for layer in self._layers for array in (layer.keys, layer.values) if array is not None]

    def recover(self) -> None:
        """Go on after a failed pass: slots share arrays, so where one cannot be computed, all lose what they hold."""
        try:
            mx.eval(self.started())
        except Exception:
            _log.exception("slots %s are lost", sorted(self._used))
            self._layers = [LayerSlots() for _ in self._layers]
            self._lost |= self._used

    def truncate(self, slot: int, num_tokens: int) -> None:
        """Do nothing: what lies behind a sequence's end is never read. Raises LostSlot where all of it is gone."""
        if num_tokens:
            self._check(slot)
        self._lost.discard(slot)

    def release(self, slot: int) -> None:
        self._used.discard(slot)
        self._lost.discard(slot)
        if not self._used:  # give all of it back
            self._layers = [LayerSlots() for _ in self._layers]

    def export(self, slot: int, start: int, end: int) -> KvSegment:
        self._check(slot)
        arrays = [mx.contiguous(array[slot, :, start:end]) for array in self.started()]
        mx.async_eval(arrays)
        return KvSegment(arrays, end - start)

    def restore(self, slot: int, segments: Sequence[KvSegment], num_tokens: int) -> None:
        self._used.add(slot)
        self._lost.discard(slot)
        try:
            self._join(slot, segments, num_tokens)
            mx.async_eval(self.started())
        except BaseException:
            self.recover()
            raise

    def _join(self, slot: int, segments: Sequence[KvSegment], num_tokens: int) -> None:
        at = 0
        for segment in segments:
            count = min(segment.num_tokens, num_tokens - at)
            for index, layer in enumerate(self._layers):
                keys, values = (array[None, :, :count] for array in segment.arrays[2 * index : 2 * index + 2])
                layer.grow(slot + 1, num_tokens, keys, values)
                assert layer.keys is not None and layer.values is not None
                layer.keys[slot : slot + 1, :, at : at + count] = keys
                layer.values[slot : slot + 1, :, at : at + count] = values
            at += count


def pick_last(batch: Batch) -> Pick:
    """The last token of each row of a batch."""
    if batch.width == 1:
        return lambda hidden: hidden
    rows, lasts = mx.arange(batch.num_rows), mx.array(batch.counts - 1)
    return lambda hidden: hidden[rows, lasts][:, None]


def compute_row(head: OutputHead, row: SlotRow, views: Sequence[object]) -> mx.array:
    """Logits of one row's last positions, (num_logits, vocabulary)."""
    first = row.num_tokens - max(1, row.num_logits)
    logits = head.logits(row.ids[None], list(views), lambda hidden: hidden[:, first:])
    return logits[0, : row.num_logits]
