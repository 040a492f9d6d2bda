"""Huge pages under the large blocks of this process's memory: the weights. Knows nothing of what is in them.

A pass reads all weights; in pages of 4 KB a good part of its time goes into finding them (`docs/log.md`).
"""

import ctypes
import time
from collections.abc import Iterator
from pathlib import Path

_PAGE = 2 << 20
_MIN_BLOCK = 64 << 20
_MAX_SECONDS = 1.0  # a machine whose memory is in fragments has to move much of it first
_COLLAPSE = 25  # Linux's MADV_COLLAPSE: copy what is there to a huge page now


def gather(maps: Path = Path("/proc/self/maps")) -> int:
    """Move blocks to huge pages as far as the system can and the time lasts; the bytes that were."""
    deadline = time.monotonic() + _MAX_SECONDS
    library = ctypes.CDLL(None)
    num_bytes = 0
    for start, end in _blocks(maps):
        for page in range(-(-start // _PAGE) * _PAGE, end - _PAGE + 1, _PAGE):
            if time.monotonic() > deadline:
                return num_bytes
            if library.madvise(ctypes.c_void_p(page), ctypes.c_size_t(_PAGE), _COLLAPSE) == 0:
                num_bytes += _PAGE
    return num_bytes


def _blocks(maps: Path) -> Iterator[tuple[int, int]]:
    """Where private memory without a file lies; nothing where the system does not tell."""
    try:
        lines = maps.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        places, access, _, _, inode, *name = line.split()
        start, end = (int(place, 16) for place in places.split("-"))
        if access == "rw-p" and inode == "0" and not name and end - start >= _MIN_BLOCK:
            yield start, end
