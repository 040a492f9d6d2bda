"""One llama_context: a lane of slots, each a stream of its own, computed together in one call."""

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from proxy_inference_engine.runners.base import Lane, Logits, Row, Vectors
from proxy_inference_engine.runners.llama_cpp.arena import Bytes
from proxy_inference_engine.runners.llama_cpp.model import Model

MAX_BATCH = 512
_FLASH_OFF, _FLASH_ON = 0, 1


@dataclass(frozen=True, slots=True)
class LaneSettings:
    threads: int
    is_exact: bool  # K cache Q8_0 and flash attention: rows come out bit-equal in every batch
    has_flash: bool
    max_logits: int


@dataclass(frozen=True, slots=True, eq=False)
class Look:
    """Vectors in place of tokens: a batch holds one or the other."""

    vectors: Vectors
    positions: NDArray[np.int32]  # (1 or 4, tokens): axis by axis
    num_logits: int  # wanted for this many of the last
    is_mutual: bool  # each sees those after it too

    def pieces(self, size: int) -> Iterator["Look"]:
        """As many as it takes; those that see each other cannot be divided."""
        num_tokens = len(self.vectors)
        assert num_tokens <= size or not self.is_mutual, "more vectors than a batch holds"
        for start in range(0, num_tokens, size):
            end = min(start + size, num_tokens)
            num_logits = max(0, min(end - start, self.num_logits - (num_tokens - end)))
            yield Look(self.vectors[start:end], self.positions[:, start:end], num_logits, self.is_mutual)


class LaneContext:
    """Fills batches through numpy views and reads logits in place."""

    def __init__(self, model: Model, lane: Lane, settings: LaneSettings) -> None:
        self.lane = lane
        self._num_tokens = int(llama_cpp.llama_vocab_n_tokens(model.vocab))
        self._model = model  # the context refers to it
        self._context = llama_cpp.llama_init_from_model(model.handle, _params(lane, settings))
        if not self._context:
            raise MemoryError(f"llama.cpp could not make a context of {lane.num_slots} × {lane.slot_tokens} tokens")
        self._memory = llama_cpp.llama_get_memory(self._context)
        self._batch = Batch(MAX_BATCH + lane.num_slots)
        self._known_logits: Logits = np.empty((0, self._num_tokens), np.float32)  # a view, costly to make
        self._logits_address = 0

    def decode(self, rows: Sequence[Row], first_slot: int) -> list[Logits]:
        """Compute the rows, whose slots start at `first_slot` in this lane; `start` is a position."""
        num_logits = self._batch.fill(rows, first_slot)
        status = llama_cpp.llama_decode(self._context, self._batch.struct)
        if status != 0:
            raise RuntimeError(f"llama_decode returned {status}")
        if num_logits == 0:
            return [np.empty((0, self._num_tokens), np.float32) for _ in rows]
        logits = self._logits(num_logits)
        end, of_rows = 0, []
        for row in rows:
            end += row.num_logits
            of_rows.append(logits[end - row.num_logits : end])
        return of_rows

    def _logits(self, num_rows: int) -> Logits:
        """Those of the last pass, in place; the library moves them when it needs more room."""
        pointer = llama_cpp.llama_get_logits(self._context)
        address = ctypes.addressof(pointer.contents)
        if address != self._logits_address or num_rows > len(self._known_logits):
            self._logits_address = address
            self._known_logits = np.ctypeslib.as_array(pointer, shape=(num_rows, self._num_tokens))
        return self._known_logits[:num_rows]

    def look(self, index: int, look: Look) -> Logits:
        """Compute the vectors of an image in a slot, by themselves. The logits are the caller's."""
        llama_cpp.llama_set_causal_attn(self._context, not look.is_mutual)
        try:
            logits = [self._look(index, piece) for piece in look.pieces(MAX_BATCH)]
        finally:
            llama_cpp.llama_set_causal_attn(self._context, True)
        return np.concatenate(logits)

    def _look(self, index: int, look: Look) -> Logits:
        batch = VectorBatch(index, look)
        status = llama_cpp.llama_decode(self._context, batch.struct)
        if status != 0:
            raise RuntimeError(f"llama_decode of an image returned {status}")
        if look.num_logits == 0:
            return np.empty((0, self._num_tokens), np.float32)
        pointer = llama_cpp.llama_get_logits(self._context)
        return np.ctypeslib.as_array(pointer, shape=(look.num_logits, self._num_tokens)).copy()

    def truncate(self, index: int, position: int) -> bool:
        """Forget all from a position on. False where the model's memory cannot forget a part."""
        return bool(llama_cpp.llama_memory_seq_rm(self._memory, index, position, -1))

    def clear(self, index: int) -> None:
        llama_cpp.llama_memory_seq_rm(self._memory, index, -1, -1)

    def state_bytes(self, index: int) -> int:
        return int(llama_cpp.llama_state_seq_get_size(self._context, index))

    def read_state(self, index: int, into: Bytes) -> None:
        written = llama_cpp.llama_state_seq_get_data(self._context, _pointer(into), len(into), index)
        if written != len(into):
            raise RuntimeError(f"exported {written} bytes of KV instead of {len(into)}")

    def write_state(self, index: int, data: Bytes) -> None:
        read = llama_cpp.llama_state_seq_set_data(self._context, _pointer(data), len(data), index)
        if read != len(data):
            raise RuntimeError(f"imported {read} bytes of KV instead of {len(data)}")

    def close(self) -> None:
        if self._context:
            llama_cpp.llama_free(self._context)
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
        self.struct = llama_cpp.llama_batch()
        self.struct.token = _as(self._ids, llama_cpp.llama_token)
        self.struct.pos = _as(self._positions, llama_cpp.llama_pos)
        self.struct.n_seq_id = _as(self._num_slots, ctypes.c_int32)
        self.struct.seq_id = _as(self._slot_pointers, ctypes.POINTER(llama_cpp.llama_seq_id))
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

    def __init__(self, index: int, look: Look) -> None:
        num_tokens = len(look.vectors)
        self._vectors = np.ascontiguousarray(look.vectors, np.float32)
        self._positions = np.ascontiguousarray(look.positions, np.int32)
        self._slot = np.array([index], np.int32)
        self._slot_pointers = np.full(num_tokens, self._slot.ctypes.data, np.uintp)
        self._num_slots = np.ones(num_tokens, np.int32)
        self._has_logits = np.zeros(num_tokens, np.int8)
        self._has_logits[num_tokens - look.num_logits :] = 1
        self.struct = llama_cpp.llama_batch()
        self.struct.n_tokens = num_tokens
        self.struct.embd = _as(self._vectors, ctypes.c_float)
        self.struct.pos = _as(self._positions, llama_cpp.llama_pos)
        self.struct.n_seq_id = _as(self._num_slots, ctypes.c_int32)
        self.struct.seq_id = _as(self._slot_pointers, ctypes.POINTER(llama_cpp.llama_seq_id))
        self.struct.logits = _as(self._has_logits, ctypes.c_int8)


def _params(lane: Lane, settings: LaneSettings) -> llama_cpp.llama_context_params:
    params: llama_cpp.llama_context_params = llama_cpp.llama_context_default_params()
    params.n_ctx = lane.num_slots * lane.slot_tokens
    params.n_seq_max = lane.num_slots
    params.kv_unified = False
    params.n_batch = MAX_BATCH + lane.num_slots
    params.n_ubatch = MAX_BATCH
    params.n_outputs_max = settings.max_logits
    params.n_threads = params.n_threads_batch = settings.threads
    params.flash_attn_type = _FLASH_ON if settings.has_flash or settings.is_exact else _FLASH_OFF
    params.type_k = llama_cpp.GGML_TYPE_Q8_0 if settings.is_exact else llama_cpp.GGML_TYPE_F16
    params.type_v = llama_cpp.GGML_TYPE_F16
    params.no_perf = True
    return params


def _pointer(data: Bytes) -> Any:
    return _as(data, ctypes.c_uint8)


def _as(array: NDArray[Any], kind: Any) -> Any:
    return ctypes.cast(array.ctypes.data, ctypes.POINTER(kind))
