"""Memory for exported KV: one mapping, made present before it is needed.

Writing 24 MB (1,000 tokens of a small model) takes 3 ms into warm memory and 20 to 70 into fresh. What does not fit
(fragments, or more than its size) comes from the ordinary heap.
"""

import ctypes
import mmap
import threading
import time
from bisect import bisect_left

import numpy as np
from numpy.typing import NDArray

from proxy_inference_engine.errors import StartupError

Bytes = NDArray[np.uint8]

_ALIGN = 4096
_POPULATE_WRITE = 23  # Linux's MADV_POPULATE_WRITE: fault pages in for writing, content untouched
_PIECE = 16 << 20


class Arena:
    """First fit over a sorted list of free extents, which are joined again when their neighbours come back."""

    def __init__(self, num_bytes: int) -> None:
        self.num_bytes = num_bytes // _ALIGN * _ALIGN
        self._free: list[tuple[int, int]] = [(0, self.num_bytes)] if self.num_bytes else []  # (start, size)
        self._num_shared: dict[int, int] = {}  # start → owners besides the first
        self._memory = np.empty(0, np.uint8)
        self._is_closed = threading.Event()
        if self.num_bytes:
            try:
                self._memory = np.frombuffer(mmap.mmap(-1, self.num_bytes), np.uint8)
            except (OSError, OverflowError):
                raise StartupError("there is not enough memory for the prefix cache: lower --cache-memory") from None

    def warm(self) -> threading.Thread:
        """Fault the pages in from a thread of its own, half of the time asleep. Where the system can't, do nothing."""
        arguments = (self._memory, self._is_closed)
        thread = threading.Thread(target=_populate, args=arguments, name="warm-arena", daemon=True)
        thread.start()
        return thread

    def close(self) -> None:
        """No more pages are faulted in; the memory goes when the last buffer does."""
        self._is_closed.set()

    def allocate(self, num_bytes: int) -> tuple[int | None, Bytes]:
        """A buffer and the ticket to give it back with (None: it is the heap's)."""
        size = -(-num_bytes // _ALIGN) * _ALIGN
        for index, (start, extent) in enumerate(self._free):
            if extent >= size:
                if extent == size:
                    del self._free[index]
                else:
                    self._free[index] = (start + size, extent - size)
                return start, self._memory[start : start + num_bytes]
        return None, np.empty(num_bytes, np.uint8)

    def share(self, start: int | None) -> None:
        """One more `free` has to come before the buffer is given to somebody else."""
        if start is not None:
            self._num_shared[start] = self._num_shared.get(start, 0) + 1

    def free(self, start: int | None, num_bytes: int) -> None:
        if start is None:
            return
        if self._num_shared.get(start):
            self._num_shared[start] -= 1
            return
        self._num_shared.pop(start, None)
        size = -(-num_bytes // _ALIGN) * _ALIGN
        index = bisect_left(self._free, (start, 0))
        if index < len(self._free) and self._free[index][0] == start + size:
            size += self._free.pop(index)[1]
        if index > 0 and sum(self._free[index - 1]) == start:
            index -= 1
            start, before = self._free.pop(index)
            size += before
        self._free.insert(index, (start, size))

    @property
    def num_free_bytes(self) -> int:
        return sum(size for _, size in self._free)


def _populate(memory: Bytes, is_closed: threading.Event) -> None:
    if not hasattr(mmap, "MADV_HUGEPAGE"):  # not Linux
        return
    library = ctypes.CDLL(None)  # a plain call through ctypes lets other threads run meanwhile
    for start in range(0, len(memory), _PIECE):
        began = time.perf_counter()
        size = min(_PIECE, len(memory) - start)
        if library.madvise(ctypes.c_void_p(memory.ctypes.data + start), ctypes.c_size_t(size), _POPULATE_WRITE):
            return
        if is_closed.wait(time.perf_counter() - began):
            return
