"""Memory for exported KV: one mapping in huge pages, so that writing to it costs no page faults to speak of.

What does not fit (fragments, or more than its size) comes from the ordinary heap.
"""

import mmap
from bisect import bisect_left

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]

_ALIGN = 4096


class Arena:
    """First fit over a sorted list of free extents, which are joined again when their neighbours come back."""

    def __init__(self, num_bytes: int) -> None:
        self.num_bytes = num_bytes // _ALIGN * _ALIGN
        self._free: list[tuple[int, int]] = [(0, self.num_bytes)] if self.num_bytes else []  # (start, size)
        self._memory = np.empty(0, np.uint8)
        if self.num_bytes:
            mapping = mmap.mmap(-1, self.num_bytes)
            if hasattr(mmap, "MADV_HUGEPAGE"):
                mapping.madvise(mmap.MADV_HUGEPAGE)
            self._memory = np.frombuffer(mapping, np.uint8)

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

    def free(self, start: int | None, num_bytes: int) -> None:
        if start is None:
            return
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
