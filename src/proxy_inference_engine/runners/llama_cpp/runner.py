"""The llama.cpp runner: lanes of contexts over one model, and KV that moves in and out of them as segments."""

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import accumulate, groupby
from pathlib import Path

import numpy as np

from proxy_inference_engine.runners.base import Chooser, ImageEncoder, Lane, Logits, ModelInfo, Packer, Row, Segment
from proxy_inference_engine.runners.llama_cpp.adapters import Adapters
from proxy_inference_engine.runners.llama_cpp.arena import Arena, Bytes
from proxy_inference_engine.runners.llama_cpp.blob import KvLayout
from proxy_inference_engine.runners.llama_cpp.crew import Crew
from proxy_inference_engine.runners.llama_cpp.embedding import LlamaEmbedder
from proxy_inference_engine.runners.llama_cpp.lane import MAX_BATCH, LaneContext, LaneSettings
from proxy_inference_engine.runners.llama_cpp.model import Model, sampled_digest
from proxy_inference_engine.runners.llama_cpp.segment import BlobSegment, KvSegment, SegmentPacker
from proxy_inference_engine.runners.llama_cpp.tokenizer import Vocabulary
from proxy_inference_engine.runners.llama_cpp.vision.runs import Vision
from proxy_inference_engine.types import ImageSpan

_MAX_LOGITS = 128  # rows of logits a step can return, for echoed prompts
_PROBE_TOKENS = 24


@dataclass(frozen=True, slots=True)
class Settings:
    name: str
    lanes: tuple[Lane, ...]
    threads: int
    are_threads_fixed: bool = False  # also when other programs want the cores
    is_exact: bool = False
    has_flash: bool = True
    cache_bytes: int = 0  # memory set aside for exported KV
    adapters: Mapping[str, Path] = field(default_factory=dict)  # LoRA files by name


class LlamaRunner:
    """Implements `Runner`. Lane 0 exists from the start, the others from their first use."""

    chooser: Chooser | None = None

    def __init__(self, model: Model, settings: Settings, vision: Vision | None = None) -> None:
        """The model and what sees images are the runner's from now on, also where it raises."""
        self._model = model
        self._vision = vision
        self.image_encoder: ImageEncoder | None = vision.image_encoder if vision is not None else None
        self._settings = settings
        with ExitStack() as owned:
            owned.callback(model.close)
            self._set_up(model, settings, owned)
            self._owned = owned.pop_all()  # what `close` frees, the last first

    def _set_up(self, model: Model, settings: Settings, owned: ExitStack) -> None:
        self._crew = Crew(settings.threads, is_fixed=settings.are_threads_fixed)
        self._adapters = Adapters(model, settings.adapters)
        owned.callback(self._adapters.close)
        if self._vision is not None:
            owned.callback(self._vision.close)
        self.tokenizer = Vocabulary(model)
        self.lanes = settings.lanes
        self.max_batch_tokens = MAX_BATCH
        self.max_logits = max(_MAX_LOGITS, *(2 * lane.num_slots for lane in settings.lanes))
        self._first = [0, *accumulate(lane.num_slots for lane in self.lanes)]
        self._lane_of = [i for i, lane in enumerate(self.lanes) for _ in range(lane.num_slots)]
        self._contexts: list[LaneContext | None] = [None] * len(self.lanes)
        self.cache_bytes = settings.cache_bytes
        self._arena = Arena(settings.cache_bytes)
        owned.callback(self._close_contexts)
        owned.callback(self._arena.close)
        self._arena.warm()
        self._staging: Bytes = np.empty(0, np.uint8)
        self._held = [0] * len(self._lane_of)  # tokens in each slot
        self._images: list[tuple[ImageSpan, ...]] = [()] * len(self._lane_of)  # where some of them are
        longest = max(lane.slot_tokens for lane in settings.lanes)
        self.embedder = LlamaEmbedder(model, self.tokenizer, threads=settings.threads, max_tokens=longest)
        owned.callback(self.embedder.close)
        self._layout = self._probe() if model.can_generate and model.has_plain_attention else None
        self.can_splice = self._layout is not None
        self.packer: Packer | None = SegmentPacker(self._arena, self._layout)
        self.info = self._describe()

    def forward(self, rows: Sequence[Row]) -> list[Logits]:
        logits: list[Logits] = []
        for lane, group in groupby(rows, key=lambda row: self._lane_of[row.slot]):
            members = list(group)
            for row in members:  # counted first: after a failure `truncate` must know they may be there
                self._held[row.slot] = row.start + len(row.ids)
                self._images[row.slot] = row.images
            logits += self._decode(members, lane)
        return logits

    def truncate(self, slot: int, num_tokens: int) -> None:
        if self._held[slot] <= num_tokens:
            return
        context, index = self._place(slot)
        position = self._vision.position(num_tokens, self._images[slot]) if self._vision else num_tokens
        if not context.truncate(index, position):
            raise RuntimeError("this model's memory can't forget a part of a sequence")
        self._held[slot] = num_tokens

    def release(self, slot: int) -> None:
        if self._held[slot]:
            context, index = self._place(slot)
            context.clear(index)
            self._held[slot] = 0
            self._images[slot] = ()

    def export(self, slot: int, start: int, end: int) -> Segment:
        context, index = self._place(slot)
        num_tokens = self._held[slot]
        if self._layout is None:
            assert start == 0 and end == num_tokens
            snapshot = BlobSegment(self._arena, num_tokens, context.state_bytes(index))
            context.read_state(index, snapshot.data)
            return snapshot
        layout, num_streams = self._layout, context.lane.num_slots
        blob = self._stage(layout.blob_bytes(num_tokens, num_streams))
        context.read_state(index, blob)
        segment = KvSegment(self._arena, layout, end - start)
        views = layout.blob_views(blob, num_tokens, num_streams, index)
        for target, source in zip(segment.planes, views, strict=True):
            target[:] = source[:, start:end]
        return segment

    def restore(self, slot: int, segments: Sequence[Segment], num_tokens: int) -> None:
        context, index = self._place(slot)
        self._held[slot] = num_tokens
        if self._layout is None:
            (snapshot,) = segments
            assert isinstance(snapshot, BlobSegment) and snapshot.num_tokens == num_tokens
            context.write_state(index, snapshot.data)
            return
        layout, num_streams = self._layout, context.lane.num_slots
        blob = self._stage(layout.blob_bytes(num_tokens, num_streams))
        layout.write_headers(blob, num_tokens, num_streams)
        targets = layout.blob_views(blob, num_tokens, num_streams, 0)
        start = 0
        for segment in segments:
            assert isinstance(segment, KvSegment)
            length = min(segment.num_tokens, num_tokens - start)
            for target, source in zip(targets, segment.planes, strict=True):
                target[:, start : start + length] = source[:, :length]
            start += length
        context.write_state(index, blob)

    def rest(self) -> None:
        """Give nothing back: a context keeps what its passes need for as long as it lives."""

    def close(self) -> None:
        self._owned.close()

    def _close_contexts(self) -> None:
        for context in self._contexts:
            if context is not None:
                context.close()
        self._contexts = [None] * len(self.lanes)

    def _decode(self, rows: list[Row], lane: int) -> list[Logits]:
        context, first_slot = self._context(lane), self._first[lane]
        if self._settings.adapters:
            return self._decode_adapted(rows, context, first_slot)
        return self._decode_alike(rows, context, first_slot)

    def _decode_adapted(self, rows: list[Row], context: LaneContext, first_slot: int) -> list[Logits]:
        """A pass for each adapter: llama.cpp computes all rows of one with the same. In the order of the rows."""
        logits: dict[int, Logits] = {}
        for adapter in dict.fromkeys(row.adapter for row in rows):
            alike = [row for row in rows if row.adapter == adapter]
            context.use(adapter, self._adapters)
            # A copy: the next pass writes where these are.
            computed = self._decode_alike(alike, context, first_slot)
            logits |= {row.slot: part.copy() for row, part in zip(alike, computed, strict=True)}
        return [logits[row.slot] for row in rows]

    def _decode_alike(self, rows: list[Row], context: LaneContext, first_slot: int) -> list[Logits]:
        if self._vision is None or not any(row.images for row in rows):
            return context.decode(rows, first_slot)
        return self._vision.decode(context, rows, first_slot)

    def _context(self, lane: int) -> LaneContext:
        context = self._contexts[lane]
        if context is None:
            settings = LaneSettings(
                crew=self._crew,
                is_exact=self._settings.is_exact,
                has_flash=self._settings.has_flash,
                max_logits=self.max_logits,
            )
            context = self._contexts[lane] = LaneContext(self._model, self.lanes[lane], settings)
        return context

    def _place(self, slot: int) -> tuple[LaneContext, int]:
        lane = self._lane_of[slot]
        return self._context(lane), slot - self._first[lane]

    def _stage(self, num_bytes: int) -> Bytes:
        """A buffer that stays warm between calls; the library writes and reads whole blobs only."""
        if len(self._staging) < num_bytes:
            self._staging = np.empty(num_bytes + num_bytes // 2, np.uint8)
        return self._staging[:num_bytes]

    def _probe(self) -> KvLayout | None:
        """Read the state's layout off a real one, then prove that a divided and joined state computes the same."""
        ids = np.arange(1, _PROBE_TOKENS + 1, dtype=np.int32) % self.tokenizer.num_tokens
        context = self._context(0)
        self.forward([Row(0, 0, ids, 1)])
        blob = np.empty(context.state_bytes(0), np.uint8)
        context.read_state(0, blob)
        layout = KvLayout.read(blob, _PROBE_TOKENS, context.lane.num_slots)
        if layout is not None:
            expected = self.forward([Row(0, _PROBE_TOKENS, ids[:1], 1)])[0].copy()
            self.truncate(0, _PROBE_TOKENS)
            self._layout = layout
            segment = self.export(0, 0, _PROBE_TOKENS)
            halves = segment.split(_PROBE_TOKENS // 2 - 1)
            self.restore(0, halves, _PROBE_TOKENS)
            got = self.forward([Row(0, _PROBE_TOKENS, ids[:1], 1)])[0]
            for half in halves:
                half.free()
            if not np.array_equal(got, expected):
                layout = None
        self.release(0)
        return layout

    def _describe(self) -> ModelInfo:
        model, settings = self._model, self._settings
        facts = (
            model.path.name,
            model.num_bytes,
            model.digest,
            model.description,
            model.library.version,
            settings.is_exact,
            settings.has_flash,
            self._vision.identity if self._vision else None,
            # A prefix on disk is an adapter's by its name alone.
            *((name, sampled_digest(path)) for name, path in settings.adapters.items()),
        )
        token_bytes = self._layout.token_bytes if self._layout else 4 * model.num_kv_values
        return ModelInfo(
            name=settings.name,
            architecture=model.architecture,
            description=model.description,
            context_tokens=model.context_tokens,
            chat_template=model.chat_template,
            fingerprint="fp_" + hashlib.sha256(repr(facts).encode()).hexdigest()[:12],
            num_parameters=model.num_parameters,
            weight_bytes=model.num_bytes,
            kv_bytes_per_token=token_bytes,
            can_generate=model.can_generate,
            generation=model.generation,
            tool_template=model.tool_template,
        )
