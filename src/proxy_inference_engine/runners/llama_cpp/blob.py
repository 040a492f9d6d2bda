"""The layout of llama.cpp's sequence state, so that KV can be cut and joined outside the library.

The format is private to the library's version: `KvLayout.read` refuses anything it does not recognise byte for byte,
and the runner proves at load that a spliced state computes what the original did. Without a layout, whole blobs serve.

    magic, seq_id, n_stream, then per stream: n_cells [n_cells × (pos, 1, seq_id)] v_trans n_layer
    per layer: k_type, k_row_bytes, n_cells × row        per layer: v_type, v_row_bytes, n_cells × row
    (v transposed:  v_type, element_bytes, n_values, n_values × n_cells × element)
"""

from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from proxy_inference_engine.runners.llama_cpp.arena import Bytes

_CELL = np.dtype([("pos", "<i4"), ("num_seq", "<u4"), ("seq", "<i4")])


@dataclass(frozen=True, slots=True)
class Plane:
    """K or V of one layer: (outer, tokens, inner) bytes. Rows by token have outer 1, a transposed V inner 1 element."""

    header: bytes
    outer: int
    inner: int

    @property
    def token_bytes(self) -> int:
        return self.outer * self.inner


@dataclass(frozen=True, slots=True)
class KvLayout:
    magic: int
    is_transposed: int
    planes: tuple[Plane, ...]
    num_k_planes: int

    @property
    def token_bytes(self) -> int:
        return sum(plane.token_bytes for plane in self.planes)

    def blob_bytes(self, num_tokens: int, num_streams: int) -> int:
        headers = sum(len(plane.header) for plane in self.planes)
        return 12 + 4 * num_streams + 8 + headers + num_tokens * (_CELL.itemsize + self.token_bytes)

    def plane_views(self, data: Bytes, num_tokens: int) -> list[Bytes]:
        """Views (outer, tokens, inner) of planes that follow each other without headers."""
        sizes = [plane.token_bytes * num_tokens for plane in self.planes]
        starts = [0, *accumulate(sizes)]
        return [
            data[start : start + size].reshape(plane.outer, num_tokens, plane.inner)
            for plane, start, size in zip(self.planes, starts, sizes, strict=False)
        ]

    def blob_views(self, blob: Bytes, num_tokens: int, num_streams: int, stream: int) -> list[Bytes]:
        """Views (outer, tokens, inner) of the planes inside a whole blob, whose cells are those of `stream`."""
        offset = 12 + 4 * (stream + 1) + num_tokens * _CELL.itemsize + 8
        views = []
        for plane in self.planes:
            offset += len(plane.header)
            size = plane.token_bytes * num_tokens
            views.append(blob[offset : offset + size].reshape(plane.outer, num_tokens, plane.inner))
            offset += size
        assert offset + 4 * (num_streams - stream - 1) == len(blob)
        return views

    def write_headers(self, blob: Bytes, num_tokens: int, num_streams: int) -> None:
        """Everything but the planes; the cells stand in the first stream (the reader puts them where it is told)."""
        blob[:12].view("<u4")[:] = (self.magic, 0, num_streams)
        blob[12:16].view("<u4")[0] = num_tokens
        offset = 16 + num_tokens * _CELL.itemsize
        blob[16:offset] = _cells(num_tokens).view(np.uint8)
        blob[offset : offset + 8].view("<u4")[:] = (self.is_transposed, self.num_k_planes)
        offset += 8
        for plane in self.planes:
            blob[offset : offset + len(plane.header)] = np.frombuffer(plane.header, np.uint8)
            offset += len(plane.header) + plane.token_bytes * num_tokens
        blob[offset:] = 0

    @classmethod
    def read(cls, blob: Bytes, num_tokens: int, num_streams: int) -> "KvLayout | None":
        """The layout of a blob of stream 0 that holds `num_tokens`; None if it is not of the form above."""
        raw = blob.tobytes()
        if len(raw) < 16 + num_tokens * _CELL.itemsize + 8:
            return None
        magic, _, streams, cells = np.frombuffer(raw[:16], "<u4").tolist()
        if streams != num_streams or cells != num_tokens:
            return None
        offset = 16 + num_tokens * _CELL.itemsize
        if raw[16:offset] != _cells(num_tokens).tobytes():
            return None
        is_transposed, num_layers = np.frombuffer(raw[offset : offset + 8], "<u4").tolist()
        if is_transposed > 1 or num_layers > 4096:
            return None
        offset += 8
        planes: list[Plane] = []
        for index in range(2 * num_layers):
            if offset + 12 > len(raw):
                return None
            plane = _read_plane(raw, offset, is_transposed=bool(is_transposed) and index >= num_layers)
            planes.append(plane)
            offset += len(plane.header) + plane.token_bytes * num_tokens
            if offset > len(raw):
                return None
        layout = cls(magic, is_transposed, tuple(planes), num_layers)
        return layout if offset + 4 * (num_streams - 1) == len(raw) and not any(raw[offset:]) else None


def _cells(num_tokens: int) -> NDArray[np.void]:
    cells = np.zeros(num_tokens, _CELL)
    cells["pos"] = np.arange(num_tokens)
    cells["num_seq"] = 1
    return cells


def _read_plane(raw: bytes, offset: int, *, is_transposed: bool) -> Plane:
    header = raw[offset : offset + 12]
    if is_transposed:
        element, num_values = (int(value) for value in np.frombuffer(header[4:], "<u4"))
        return Plane(header, num_values, element)
    return Plane(header, 1, int(np.frombuffer(header[4:], "<u8")[0]))
