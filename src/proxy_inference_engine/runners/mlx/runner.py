"""The MLX runner: `base.Runner` over lanes of slots. Orders work; on a GPU it does not wait for it.

Rows of a few tokens go through the model together, longer ones and those with images alone.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import mlx.core as mx

from proxy_inference_engine.runners.base import Chooser, ImageEncoder, Lane, Logits, ModelInfo, Packer, Row, Segment
from proxy_inference_engine.runners.mlx.adapter_files import fingerprint_with
from proxy_inference_engine.runners.mlx.adapters import Adapters
from proxy_inference_engine.runners.mlx.chooser import DeviceChooser
from proxy_inference_engine.runners.mlx.cuda.fusion import fuse
from proxy_inference_engine.runners.mlx.embedding import MlxEmbedder
from proxy_inference_engine.runners.mlx.head import OutputHead
from proxy_inference_engine.runners.mlx.logits import LazyLogits
from proxy_inference_engine.runners.mlx.memory.base import Memory, is_gpu
from proxy_inference_engine.runners.mlx.memory.lanes import make_memory
from proxy_inference_engine.runners.mlx.memory.segment import SegmentPacker
from proxy_inference_engine.runners.mlx.model import MlxModel
from proxy_inference_engine.runners.mlx.rows import MAX_SHORT, SlotRow, make_batch, row_ids
from proxy_inference_engine.runners.tokenizer_json import JsonVocabulary

if TYPE_CHECKING:  # needs mlx-vlm, which models of text alone do without
    from proxy_inference_engine.runners.mlx.vision.image_rows import Vision

_GPU_BATCH, _CPU_BATCH = 4096, 512


@dataclass(frozen=True, slots=True)
class Settings:
    lanes: tuple[Lane, ...]
    cache_bytes: int = 0
    defers: bool | None = None  # whether the device chooses tokens; None: on a GPU
    adapters: Mapping[str, Path] = field(default_factory=dict)  # LoRA, by the names that rows use


class MlxRunner:
    """Implements `base.Runner`."""

    def __init__(self, loaded: MlxModel, settings: Settings, vision: "Vision | None" = None) -> None:
        self.info: ModelInfo = loaded.info._replace(
            fingerprint=fingerprint_with(loaded.info.fingerprint, settings.adapters)
        )
        self.tokenizer: JsonVocabulary = loaded.vocabulary
        self.lanes = settings.lanes
        self.cache_bytes = settings.cache_bytes
        self._adapters = Adapters(loaded.model, settings.adapters) if settings.adapters else None
        if (
            mx.cuda.is_available() and self._adapters is None
        ):  # where a product of few rows costs little more than its launch
            fuse(loaded.model)
            mx.clear_cache()
        self._head = OutputHead(loaded.model)
        self._vision = vision
        self._memories: list[Memory] = [
            make_memory(
                loaded.model, self._head, lane.num_slots, lane.slot_tokens, has_adapters=self._adapters is not None
            )
            for lane in self.lanes
        ]
        self._lane_of = [index for index, lane in enumerate(self.lanes) for _ in range(lane.num_slots)]
        self._first = [self._lane_of.index(index) for index in range(len(self.lanes))]
        self.can_splice = all(memory.can_splice for memory in self._memories)
        # Snapshots are objects of mlx-lm's, which have no form on disk.
        kinds = {type(memory).__name__ for memory in self._memories}
        self.packer: Packer | None = SegmentPacker(" ".join(sorted(kinds))) if self.can_splice else None
        self.max_batch_tokens = _GPU_BATCH if is_gpu() else _CPU_BATCH
        self.max_logits = max(256, *(lane.num_slots for lane in self.lanes))
        defers = is_gpu() if settings.defers is None else settings.defers
        self.chooser: Chooser | None = DeviceChooser() if defers else None
        self.embedder = MlxEmbedder(loaded, self._head, max_tokens=max(lane.slot_tokens for lane in self.lanes))
        self._before: list[mx.array] = []  # what the last pass has to compute

    @property
    def image_encoder(self) -> ImageEncoder | None:
        return None if self._vision is None else self._vision.image_encoder

    def forward(self, rows: Sequence[Row]) -> list[Logits]:
        try:
            return self._forward(rows)
        except BaseException:
            self._before = []
            for memory in self._memories:
                memory.recover()
            raise

    def _forward(self, rows: Sequence[Row]) -> list[Logits]:
        logits: list[LazyLogits] = []
        for lane, its_rows in groupby(rows, key=lambda row: self._lane_of[row.slot]):
            logits += self._forward_lane(lane, list(its_rows))
        orders = list({id(each.source): each.source for each in logits}.values())
        orders += [array for memory in self._memories for array in memory.started()]
        mx.async_eval(orders)
        # One pass may wait for the one before: more would only make cancelling slow.
        mx.eval(self._before if self.chooser is not None else orders)
        self._before = orders if self.chooser is not None else []
        return cast(list[Logits], logits)

    def _forward_lane(self, lane: int, rows: list[Row]) -> list[LazyLogits]:
        memory, first = self._memories[lane], self._first[lane]
        short = [row for row in rows if memory.can_splice and self._is_short(row)]
        short_slots = {row.slot for row in short}
        alone = [row for row in rows if row.slot not in short_slots]
        found: dict[int, LazyLogits] = {}
        mixes = self._adapters is None or self._adapters.can_mix
        for together in [short] if mixes and short else self._alike(short):
            turns = None if self._vision is None else [self._turn(row) for row in together]
            with self._adapted(together):
                source = memory.forward_batch(make_batch(together, first, turns))
            found |= {row.slot: LazyLogits(source, i, i + row.num_logits) for i, row in enumerate(together)}
        for alike in self._alike(alone):
            with self._adapted(alike[:1]):  # of all of them
                arrays = memory.forward([self._slot_row(row, first) for row in alike])
            found |= {row.slot: LazyLogits(array) for row, array in zip(alike, arrays, strict=True)}
        return [found[row.slot] for row in rows]

    def _alike(self, rows: list[Row]) -> list[list[Row]]:
        """The rows in groups of one adapter each."""
        if self._adapters is None:
            return [rows] if rows else []
        return [[row for row in rows if row.adapter == each] for each in dict.fromkeys(row.adapter for row in rows)]

    def _adapted(self, rows: list[Row]) -> AbstractContextManager[None]:
        if self._adapters is None:
            return nullcontext()
        return self._adapters.over([row.adapter for row in rows])

    def _is_short(self, row: Row) -> bool:
        return len(row.ids) <= MAX_SHORT and row.num_logits <= 1 and not self._holds_image(row)

    def _holds_image(self, row: Row) -> bool:
        return self._vision is not None and self._vision.holds_image(row.start, len(row.ids), row.images)

    def _turn(self, row: Row) -> int:
        if self._vision is None or not row.images:
            return row.start
        return row.start + self._vision.shift(row.start, row.images)

    def _slot_row(self, row: Row, first: int) -> SlotRow:
        ids = row_ids(row)
        if not self._holds_image(row):
            return SlotRow(row.slot - first, row.start, ids, row.num_logits, turn=self._turn(row))
        return SlotRow(row.slot - first, row.start, ids, row.num_logits, partial(self._compute_image, row, ids))

    def _compute_image(self, row: Row, ids: mx.array, caches: list[Any]) -> mx.array:
        assert self._vision is not None
        hidden = self._vision.call(self._vision.embed(ids, row.start, row.images), caches)
        return self._vision.head(hidden[0, len(row.ids) - row.num_logits :])

    # Slots

    def _place(self, slot: int) -> tuple[Memory, int]:
        lane = self._lane_of[slot]
        return self._memories[lane], slot - self._first[lane]

    def truncate(self, slot: int, num_tokens: int) -> None:
        memory, own = self._place(slot)
        memory.truncate(own, num_tokens)

    def release(self, slot: int) -> None:
        memory, own = self._place(slot)
        memory.release(own)

    def export(self, slot: int, start: int, end: int) -> Segment:
        memory, own = self._place(slot)
        return memory.export(own, start, end)

    def restore(self, slot: int, segments: Sequence[Segment], num_tokens: int) -> None:
        memory, own = self._place(slot)
        memory.restore(own, segments, num_tokens)

    def rest(self) -> None:
        self._before = []
        mx.clear_cache()

    def close(self) -> None:
        self._memories = []
        self._before = []
        mx.clear_cache()
