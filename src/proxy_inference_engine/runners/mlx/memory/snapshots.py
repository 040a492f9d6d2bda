"""Slots of models that remember more, or less, than keys and values of every token: windows, recurrent states.

Each slot holds the caches that mlx-lm makes for its model. What they hold can be copied as a whole, not cut or joined.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import mlx.core as mx
from mlx import nn
from mlx_lm.models.cache import make_prompt_cache

from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.runners.mlx.memory.decode_group import DecodeGroup, can_decode_together, worth_grouping
from proxy_inference_engine.runners.mlx.memory.layer_cache import (
    LayerCache,
    alias,
    arrays,
    can_go_back,
    compact_copy,
    num_bytes,
    unknown_class,
)
from proxy_inference_engine.runners.mlx.rows import Batch, SlotRow

_MIN_EARLY = 32  # tokens without logits that are worth a pass of their own


class CannotGoBack(Exception):
    """The tokens to forget have left a trace that cannot be taken away: the slot has to be computed again."""


class SnapshotSegment:
    """Everything that a slot held after its first `num_tokens`."""

    __slots__ = ("caches", "num_bytes", "num_tokens")

    def __init__(self, caches: list[LayerCache], num_tokens: int) -> None:
        self.caches = caches
        self.num_tokens = num_tokens
        self.num_bytes = num_bytes(caches)

    def split(self, at: int) -> tuple["SnapshotSegment", "SnapshotSegment"]:
        raise AssertionError(f"a snapshot can't be divided at {at}")

    def free(self) -> None:
        self.caches = []


@dataclass(slots=True)
class _Slot:
    caches: list[LayerCache] = field(default_factory=list)  # empty while it is in the group
    num_tokens: int = 0
    is_lost: bool = False  # the device failed while it changed


class Snapshots:
    """Implements `memory.Memory`.

    Rows of one token go through the model together where that is sound, all others one after another.
    """

    can_splice = False

    def __init__(self, model: nn.Module, num_slots: int, slot_tokens: int) -> None:
        self._model = model
        self._slot_tokens = slot_tokens
        self._slots = [_Slot() for _ in range(num_slots)]
        self._group: DecodeGroup | None = None
        for cache in make_prompt_cache(model):
            if (name := unknown_class(cache)) is not None:
                raise StartupError(f"models that keep their state in a {name} are not supported")
        self._can_group = num_slots > 1 and can_decode_together(model)

    def forward(self, rows: Sequence[SlotRow]) -> list[mx.array]:
        """Order the computation of the rows; their logits, (num_logits, vocabulary) each.

        When it raises, the slots are as they were; or lost, if the device had begun to change them.
        """
        for row in rows:
            slot = self._slots[row.slot]
            assert row.start == slot.num_tokens and not slot.is_lost
            assert row.start + row.num_tokens <= self._slot_tokens
        grouped = self._regroup(rows)
        alone = [row for row in rows if row.slot not in grouped]
        before = self._remember(alone, grouped)
        try:
            found = self._compute_grouped({row.slot: row for row in rows if row.slot in grouped})
            found |= {row.slot: self._compute(row, self._slots[row.slot].caches) for row in alone}
        except BaseException:
            self._put_back(before)
            raise
        del before  # a buffer that somebody else holds would be copied instead of written to
        logits = [found[row.slot] for row in rows]
        self._start(rows, logits, bool(grouped))
        return logits

    def forward_batch(self, batch: Batch) -> mx.array:
        rows = [
            SlotRow(int(slot), int(start), batch.ids[index, : int(count)], 1)
            for index, (slot, start, count) in enumerate(zip(batch.slots, batch.starts, batch.counts, strict=True))
        ]
        return mx.concatenate(self.forward(rows))

    def started(self) -> list[mx.array]:
        """Nothing: a pass orders all that it needs itself, since only so it knows whether the device took it."""
        return []

    def recover(self) -> None:
        """Do nothing: a failed pass has put back what it changed, or marked it lost."""

    def truncate(self, slot: int, num_tokens: int) -> None:
        """Forget the last tokens. Raises CannotGoBack where that is impossible, and leaves the slot as it is."""
        held = self._slots[slot]
        assert num_tokens <= held.num_tokens
        num_forgotten = held.num_tokens - num_tokens
        if num_tokens == 0:
            self.release(slot)
        elif num_forgotten or held.is_lost:
            caches = self._cut(slot, num_forgotten)
            self.release(slot)
            self._slots[slot] = _Slot(caches, num_tokens)

    def release(self, slot: int) -> None:
        if self._is_grouped(slot) and self._group is not None:
            self._group.forget(slot)
            self._group = None if self._group.is_empty else self._group
        self._slots[slot] = _Slot()

    def export(self, slot: int, start: int, end: int) -> SnapshotSegment:
        """Raises CannotGoBack where `end` is not all that the slot holds and the rest can't be taken away."""
        held = self._slots[slot]
        assert start == 0 < end <= held.num_tokens
        copies = [compact_copy(cache) for cache in self._cut(slot, held.num_tokens - end)]
        mx.async_eval(arrays(copies))
        return SnapshotSegment(copies, end)

    def restore(self, slot: int, segments: Sequence[SnapshotSegment], num_tokens: int) -> None:
        [segment] = segments
        assert num_tokens == segment.num_tokens <= self._slot_tokens
        self.release(slot)
        self._slots[slot] = _Slot([alias(cache) for cache in segment.caches], num_tokens)

    def _cut(self, slot: int, num_forgotten: int) -> list[LayerCache]:
        """What the slot held before its last tokens; it stays as it is."""
        held = self._slots[slot]
        if held.is_lost:
            raise CannotGoBack(f"slot {slot} was lost when the device failed")
        if self._is_grouped(slot) and self._group is not None:
            caches = self._group.extract(slot)
        else:
            caches = [alias(cache) for cache in held.caches]
        if num_forgotten and not all(map(can_go_back, caches)):
            raise CannotGoBack(f"slot {slot} can't forget the last {num_forgotten} of {held.num_tokens} tokens")
        for cache in caches if num_forgotten else ():
            cache.trim(num_forgotten)
        return caches

    # The group

    def _is_grouped(self, slot: int) -> bool:
        return self._group is not None and slot in self._group.slots

    def _regroup(self, rows: Sequence[SlotRow]) -> list[int]:
        """Put the rows of one token into the group, and all others out of it; the slots it has then, if any."""
        lengths = {
            row.slot: row.start
            for row in rows
            if row.num_tokens == row.num_logits == 1 and row.start and not row.compute
        }
        wanted = worth_grouping(lengths) if self._can_group else []
        is_changed = self._group is not None and self._group.slots != wanted
        if is_changed and (wanted or any(self._is_grouped(row.slot) for row in rows)):
            self._disband()
        if wanted and self._group is None:
            self._group = DecodeGroup(wanted, [self._slots[slot].caches for slot in wanted])
            for slot in wanted:
                self._slots[slot].caches = []
        for row in rows:
            if not self._is_grouped(row.slot) and not self._slots[row.slot].caches:
                self._slots[row.slot].caches = make_prompt_cache(self._model)
        return wanted

    def _disband(self) -> None:
        assert self._group is not None
        members = [slot for slot in self._group.slots if slot is not None]
        taken = {slot: self._group.extract(slot) for slot in members}
        mx.async_eval([arrays(caches) for caches in taken.values()])
        for slot, caches in taken.items():
            self._slots[slot].caches = caches
        self._group = None

    # One pass

    def _remember(self, alone: list[SlotRow], grouped: list[int]) -> "_Before":
        """What a pass is going to change, to put back if it fails."""
        caches = {row.slot: [alias(cache) for cache in self._slots[row.slot].caches] for row in alone}
        return _Before(caches, [alias(cache) for cache in self._group.caches] if grouped and self._group else [])

    def _put_back(self, before: "_Before") -> None:
        for slot, caches in before.alone.items():
            self._slots[slot].caches = caches
        if before.grouped and self._group is not None:
            self._group.caches = before.grouped

    def _compute_grouped(self, rows: dict[int, SlotRow]) -> dict[int, mx.array]:
        if not rows or self._group is None:
            return {}
        ids = mx.concatenate([rows[slot].ids for slot in self._group.slots if slot is not None])
        logits = self._group.compute(self._model, ids)
        return {slot: logits[i : i + 1] for i, slot in enumerate(self._group.slots) if slot is not None}

    def _compute(self, row: SlotRow, caches: list[LayerCache]) -> mx.array:
        if row.compute is not None:
            return row.compute(caches)
        ids = row.ids[None]
        num_early = row.num_tokens - row.num_logits
        if row.num_logits and num_early >= _MIN_EARLY:
            self._model(ids[:, :num_early], cache=caches)  # its logits are not asked for, so nobody computes them
            ids = ids[:, num_early:]
        logits: mx.array = self._model(ids, cache=caches)
        if row.num_logits == 0:
            return mx.zeros((0, logits.shape[-1]), dtype=logits.dtype)
        return logits[0, -row.num_logits :]

    def _start(self, rows: Sequence[SlotRow], logits: list[mx.array], has_group: bool) -> None:
        """Order a whole pass, also what no logits need: a state left for later would keep all that it is made of."""
        slots = [self._slots[row.slot] for row in rows]
        group = self._group.caches if has_group and self._group is not None else []
        try:
            mx.async_eval(logits, [arrays(slot.caches) for slot in slots], arrays(group))
        except BaseException:
            for slot in slots:
                slot.is_lost = True
            self._group = None if has_group else self._group
            raise
        for row, slot in zip(rows, slots, strict=True):
            slot.num_tokens += row.num_tokens


class _Before(NamedTuple):
    alone: dict[int, list[LayerCache]]  # by slot
    grouped: list[LayerCache]
