"""One llama_context: a lane of slots, each a stream of its own, computed together in one call."""

import ctypes
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxy_inference_engine.runners.base import Lane, Logits, Row, Vectors
from proxy_inference_engine.runners.llama_cpp.adapters import Adapters
from proxy_inference_engine.runners.llama_cpp.arena import Bytes
from proxy_inference_engine.runners.llama_cpp.binding import (
    GGML_TYPE_F16,
    GGML_TYPE_Q8_0,
    Binding,
    floats,
    llama_batch,
    llama_context_params,
    llama_pos,
    llama_seq_id,
    llama_token,
)
from proxy_inference_engine.runners.llama_cpp.crew import Crew
from proxy_inference_engine.runners.llama_cpp.model import Model

MAX_BATCH = 512
_FLASH_OFF, _FLASH_ON = 0, 1


@dataclass(frozen=True, slots=True)
class LaneSettings:
    crew: Crew
    is_exact: bool  # K cache Q8_0 and flash attention: rows come out bit-equal in every batch
    has_flash: bool
    max_logits: int


@dataclass(frozen=True, slots=True, eq=False)
class ImageRow:
    """Vectors of an image in place of tokens: a batch holds one or the other."""

    vectors: Vectors
    positions: NDArray[np.int32]  # (1 or 4, tokens): axis by axis
    num_logits: int  # wanted for this many of the last
    is_mutual: bool  # each sees those after it too

    def pieces(self, size: int) -> Iterator["ImageRow"]:
        """Parts of at most `size` vectors. Vectors that see each other have to fit into one."""
        num_tokens = len(self.vectors)
        assert num_tokens <= size or not self.is_mutual, "more vectors than a batch holds"
        for start in range(0, num_tokens, size):
            end = min(start + size, num_tokens)
            num_logits = max(0, min(end - start, self.num_logits - (num_tokens - end)))
            yield ImageRow(self.vectors[start:end], self.positions[:, start:end], num_logits, self.is_mutual)


class LaneContext:
    """Fills batches through numpy views and reads logits in place."""

    def __init__(self, model: Model, lane: Lane, settings: LaneSettings) -> None:
        self.lane = lane
        self._llama = model.llama
        self._num_tokens = int(self._llama.llama_vocab_n_tokens(model.vocab))
        self._model = model  # the context refers to it
        self._context = self._llama.llama_init_from_model(model.handle, _params(self._llama, lane, settings))
        if not self._context:
            raise MemoryError(f"llama.cpp could not make a context of {lane.num_slots} × {lane.slot_tokens} tokens")
        self._memory = self._llama.llama_get_memory(self._context)
        self._batch = Batch(MAX_BATCH + lane.num_slots)
        self._known_logits: Logits = np.empty((0, self._num_tokens), np.float32)  # a view, costly to make
        self._logits_address = 0
        self._product, self._is_exact = model.library.product, settings.is_exact
        self._crew = settings.crew
        self._num_threads = settings.crew.num_threads
        self._adapter: str | None = None  # that its passes are computed with

    def use(self, adapter: str | None, adapters: Adapters) -> None:
        if adapter != self._adapter:
            adapters.apply(self._context, adapter)
            self._adapter = adapter

    def decode(self, rows: Sequence[Row], first_slot: int) -> list[Logits]:
        """Compute the rows, whose slots start at `first_slot` in this lane; `start` is a position."""
        num_logits = self._batch.fill(rows, first_slot)
        self._compute(self._batch.struct)
        if num_logits == 0:
            return [np.empty((0, self._num_tokens), np.float32) for _ in rows]
        logits = self._logits(num_logits)
        end, of_rows = 0, []
        for row in rows:
            end += row.num_logits
            of_rows.append(logits[end - row.num_logits : end])
        return of_rows

    def _compute(self, batch: llama_batch) -> None:
        crew = self._crew
        if crew.num_threads != self._num_threads:
            self._num_threads = crew.num_threads
            self._llama.llama_set_n_threads(self._context, self._num_threads, self._num_threads)
        if self._product is not None:  # of all models in this process
            self._product.use(not self._is_exact)
        began, began_cpu = time.perf_counter(), time.process_time()
        status = self._llama.llama_decode(self._context, batch)
        if status != 0:
            raise RuntimeError(f"llama_decode returned {status}")
        if not crew.is_fixed:
            crew.observe(time.perf_counter() - began, time.process_time() - began_cpu)

    def _logits(self, num_rows: int) -> Logits:
        """The logits of the last pass, where the library keeps them; it moves them when it needs more room."""
        address = self._llama.llama_get_logits(self._context)
        if address != self._logits_address or num_rows > len(self._known_logits):
            self._logits_address = address
            self._known_logits = floats(address, num_rows, self._num_tokens)
        return self._known_logits[:num_rows]

    def decode_image(self, index: int, row: ImageRow) -> Logits:
        """Compute the vectors of an image in a slot, by themselves. The logits are the caller's."""
        self._llama.llama_set_causal_attn(self._context, not row.is_mutual)
        try:
            logits = [self._decode_vectors(index, piece) for piece in row.pieces(MAX_BATCH)]
        finally:
            self._llama.llama_set_causal_attn(self._context, True)
        return np.concatenate(logits)

    def _decode_vectors(self, index: int, row: ImageRow) -> Logits:
        batch = VectorBatch(index, row)
        self._compute(batch.struct)
        if row.num_logits == 0:
            return np.empty((0, self._num_tokens), np.float32)
        return floats(self._llama.llama_get_logits(self._context), row.num_logits, self._num_tokens).copy()

    def truncate(self, index: int, position: int) -> bool:
        """Forget all from a position on. False where the model's memory cannot forget a part."""
        return bool(self._llama.llama_memory_seq_rm(self._memory, index, position, -1))

    def clear(self, index: int) -> None:
        self._llama.llama_memory_seq_rm(self._memory, index, -1, -1)

    def state_bytes(self, index: int) -> int:
        return int(self._llama.llama_state_seq_get_size(self._context, index))

    def read_state(self, index: int, into: Bytes) -> None:
        written = self._llama.llama_state_seq_get_data(self._context, into.ctypes.data, len(into), index)
        if written != len(into):
            raise RuntimeError(f"exported {written} bytes of KV instead of {len(into)}")

    def write_state(self, index: int, data: Bytes) -> None:
        read = self._llama.llama_state_seq_set_data(self._context, data.ctypes.data, len(data), index)
        if read != len(data):
            raise RuntimeError(f"imported {read} bytes of KV instead of {len(data)}")

    def close(self) -> None:
        if self._context:
            self._llama.llama_free(self._context)
            self._context = None


class Batch:
    """A llama_batch over numpy arrays: filled by slices, not token by token."""

    def __init__(self, capacity: int) -> None:
        self._ids = np.zeros(capacity, np.int32)
        self._positions = np.zeros(capacity, np.int32)
        self._slots = np.zeros(capacity, np.int32)
        self._num_slots = np.ones(capacity, np.int32)
        self._has_logits = np.zeros(capacity, np.int8)
        base = self._slots.ctypes.data
        self._slot_pointers = (base + 4 * np.arange(capacity)).astype(np.uintp)
        self._ramp = np.arange(capacity, dtype=np.int32)
        self.struct = llama_batch()
        self.struct.token = _as(self._ids, llama_token)
        self.struct.pos = _as(self._positions, llama_pos)
        self.struct.n_seq_id = _as(self._num_slots, ctypes.c_int32)
        self.struct.seq_id = _as(self._slot_pointers, ctypes.POINTER(llama_seq_id))
        self.struct.logits = _as(self._has_logits, ctypes.c_int8)

    def fill(self, rows: Sequence[Row], first_slot: int) -> int:
        """Lay the rows out one after another; the number of logit rows they want."""
        end = 0
        for row in rows:
            start, end = end, end + len(row.ids)
            assert end <= len(self._ids), "more tokens than the batch holds"
            if end == start + 1:  # most rows; single numbers are several times faster than slices
                self._ids[start] = row.ids[0]
                self._positions[start] = row.start
                self._slots[start] = row.slot - first_slot
                self._has_logits[start] = row.num_logits
                continue
            self._ids[start:end] = row.ids
            self._positions[start:end] = self._ramp[: end - start]
            self._positions[start:end] += row.start
            self._slots[start:end] = row.slot - first_slot
            self._has_logits[start:end] = 0
            self._has_logits[end - row.num_logits : end] = 1
        self.struct.n_tokens = end
        return sum(row.num_logits for row in rows)


class VectorBatch:
    """A llama_batch of one slot's vectors, over the arrays that hold them."""

    def __init__(self, index: int, row: ImageRow) -> None:
        num_tokens = len(row.vectors)
        self._vectors = np.ascontiguousarray(row.vectors, np.float32)
        self._positions = np.ascontiguousarray(row.positions, np.int32)
        self._slot = np.array([index], np.int32)
        self._slot_pointers = np.full(num_tokens, self._slot.ctypes.data, np.uintp)
        self._num_slots = np.ones(num_tokens, np.int32)
        self._has_logits = np.zeros(num_tokens, np.int8)
        self._has_logits[num_tokens - row.num_logits :] = 1
        self.struct = llama_batch()
        self.struct.n_tokens = num_tokens
        self.struct.embd = _as(self._vectors, ctypes.c_float)
        self.struct.pos = _as(self._positions, llama_pos)
        self.struct.n_seq_id = _as(self._num_slots, ctypes.c_int32)
        self.struct.seq_id = _as(self._slot_pointers, ctypes.POINTER(llama_seq_id))
        self.struct.logits = _as(self._has_logits, ctypes.c_int8)


def _params(llama: Binding, lane: Lane, settings: LaneSettings) -> llama_context_params:
    params: llama_context_params = llama.llama_context_default_params()
    params.n_ctx = lane.num_slots * lane.slot_tokens
    params.n_seq_max = lane.num_slots
    params.kv_unified = False
    params.n_batch = MAX_BATCH + lane.num_slots
    params.n_ubatch = MAX_BATCH
    params.n_outputs_max = settings.max_logits
    params.n_threads = params.n_threads_batch = settings.crew.num_threads
    params.flash_attn_type = _FLASH_ON if settings.has_flash or settings.is_exact else _FLASH_OFF
    params.type_k = GGML_TYPE_Q8_0 if settings.is_exact else GGML_TYPE_F16
    params.type_v = GGML_TYPE_F16
    params.no_perf = True
    return params


def _as(array: NDArray[Any], kind: Any) -> Any:
    return ctypes.cast(array.ctypes.data, ctypes.POINTER(kind))
