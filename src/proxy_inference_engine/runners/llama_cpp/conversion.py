"""Writes a GGUF file anew with the tensors of some formats as Q8_0, piece by piece: memory stays small.

All else is copied as it is: names, shapes, words, tensors of other formats.
"""

import mmap
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from proxy_inference_engine.runners.llama_cpp.header import (
    Entry,
    GgufHeader,
    Tensor,
    aligned,
    read_header,
    write_header,
)
from proxy_inference_engine.runners.llama_cpp.quantisation import (
    BLOCK,
    FORMATS,
    Q8_0,
    Q8_0_BYTES,
    BlockFormat,
    dequantise,
    quantise,
)

_FILE_TYPE = "general.file_type"
_MOSTLY_Q8_0 = 7
_PIECE_BLOCKS = 4096  # their weights, half a megabyte, stay in a core's cache from step to step
_COPIED_BYTES = 1 << 20


class _Piece(NamedTuple):
    """A run of bytes in the given file, and where it goes in the other."""

    source: int
    num_bytes: int
    target: int
    format: BlockFormat | None  # None: copied


def convert(path: Path, target: Path, *, threads: int, on_progress: Callable[[float], None] | None = None) -> None:
    """Raises OSError, and ValueError for what is no GGUF file or breaks off."""
    header = read_header(path)
    sizes = _sizes(header, path.stat().st_size)
    tensors = _placed(header, sizes)
    entries = [Entry.of(_FILE_TYPE, _MOSTLY_Q8_0) if entry.key == _FILE_TYPE else entry for entry in header.entries]
    head = write_header(entries, tensors, header.alignment)
    pieces = [
        piece
        for old, new, num_bytes in zip(header.tensors, tensors, sizes, strict=True)
        for piece in _pieces(old, header.data_start + old.offset, num_bytes, len(head) + new.offset)
    ]
    with path.open("rb") as source, target.open("wb") as sink:
        sink.write(head)
        with mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ) as data:
            _run(_Mover(data, sink), pieces, threads, on_progress)


def _sizes(header: GgufHeader, file_bytes: int) -> list[int]:
    """Bytes of each tensor, with the padding after it where it is copied."""
    ends = sorted({tensor.offset for tensor in header.tensors} | {file_bytes - header.data_start})
    following = dict(pairwise(ends))
    sizes = []
    for tensor in header.tensors:
        available = following.get(tensor.offset, 0) - tensor.offset
        format = FORMATS.get(tensor.kind)
        needed = available if format is None else _num_blocks(tensor) * format.num_bytes
        if not 0 < needed <= available:
            raise ValueError(f"the tensor {tensor.name!r} breaks off")
        sizes.append(needed)
    return sizes


def _placed(header: GgufHeader, sizes: list[int]) -> list[Tensor]:
    """The tensors as they will be, one after another."""
    tensors, offset = [], 0
    for tensor, num_bytes in zip(header.tensors, sizes, strict=True):
        is_converted = tensor.kind in FORMATS
        tensors.append(tensor._replace(kind=Q8_0 if is_converted else tensor.kind, offset=offset))
        size = _num_blocks(tensor) * Q8_0_BYTES if is_converted else num_bytes
        offset = aligned(offset + size, header.alignment)
    return tensors


def _num_blocks(tensor: Tensor) -> int:
    return prod(tensor.shape) // BLOCK


def _pieces(tensor: Tensor, source: int, num_bytes: int, target: int) -> Iterator[_Piece]:
    format = FORMATS.get(tensor.kind)
    step = _COPIED_BYTES if format is None else _PIECE_BLOCKS * format.num_bytes
    for start in range(0, num_bytes, step):
        place = start if format is None else start // format.num_bytes * Q8_0_BYTES
        yield _Piece(source + start, min(step, num_bytes - start), target + place, format)


class _Mover:
    """Several threads convert, one at a time writes: a disk that is full is an error there, not a crash."""

    def __init__(self, data: mmap.mmap, sink: BinaryIO) -> None:
        self._data = data
        self._sink = sink
        self._lock = threading.Lock()

    def move(self, piece: _Piece) -> int:
        data = self._data[piece.source : piece.source + piece.num_bytes]
        if piece.format is not None:
            blocks = np.frombuffer(data, np.uint8).reshape(-1, piece.format.num_bytes)
            data = quantise(dequantise(piece.format, blocks)).tobytes()
        with self._lock:
            self._sink.seek(piece.target)
            self._sink.write(data)
        return piece.num_bytes


def _run(mover: _Mover, pieces: list[_Piece], threads: int, on_progress: Callable[[float], None] | None) -> None:
    total, done = sum(piece.num_bytes for piece in pieces), 0
    with ThreadPoolExecutor(threads) as pool:
        for num_bytes in pool.map(mover.move, pieces):
            done += num_bytes
            if on_progress is not None:
                on_progress(done / total)
