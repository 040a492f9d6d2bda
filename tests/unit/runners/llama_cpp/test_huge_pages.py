"""Huge pages: what is in the memory stays as it is, and only large blocks of plain memory are touched."""

import mmap
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from proxy_inference_engine.runners.llama_cpp import huge_pages

Block = NDArray[np.uint64]

_SIZE = 96 << 20
_PAGE = 2 << 20


@pytest.fixture
def block() -> Block:
    """Private memory without a file, as a library allocates it."""
    if not hasattr(mmap, "MAP_PRIVATE"):
        pytest.skip("only where memory is mapped")
    data = np.frombuffer(mmap.mmap(-1, _SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint64)
    data[:] = np.arange(data.size)
    return data


def test_memory_keeps_its_content(block: Block) -> None:
    assert huge_pages.gather() % _PAGE == 0
    assert np.array_equal(block, np.arange(block.size, dtype=np.uint64))


@pytest.mark.parametrize(
    "line",
    [
        "{start:x}-{short:x} rw-p 00000000 00:00 0",
        "{start:x}-{end:x} r--p 00000000 00:00 0",
        "{start:x}-{end:x} rw-p 00000000 00:00 0 [heap]",
        "{start:x}-{end:x} rw-p 00000000 08:01 1234 /some/file",
        "{start:x}-{end:x} rw-s 00000000 00:01 5 /dev/zero (deleted)",
    ],
)
def test_small_shared_named_and_read_only_memory_is_left_alone(line: str, block: Block, tmp_path: Path) -> None:
    start = block.ctypes.data
    maps = tmp_path / "maps"
    maps.write_text(line.format(start=start, end=start + _SIZE, short=start + (32 << 20)) + "\n")
    assert huge_pages.gather(maps) == 0


def test_a_system_that_tells_nothing_is_left_alone(tmp_path: Path) -> None:
    assert huge_pages.gather(tmp_path / "none") == 0
