"""Rows that hold images: cut into runs of tokens and of vectors, at the positions that the model gives them.

An image is encoded once and kept by its digest. Knows no slots and no contexts.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from proxy_inference_engine.runners.base import Row, TokenIds
from proxy_inference_engine.runners.llama_cpp.eyes import LlamaEyes, make_span
from proxy_inference_engine.runners.llama_cpp.multimodal import Piece, Projector
from proxy_inference_engine.types import Image, ImageSpan

MAX_KEPT_BYTES = 256 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """What one batch can hold of a row: tokens or vectors, never both."""

    ids: TokenIds | None
    vectors: NDArray[np.float32] | None  # (tokens, width)
    positions: NDArray[np.int32]  # (1 or 4, tokens)
    num_logits: int  # wanted for this many of the last

    @property
    def num_tokens(self) -> int:
        return self.positions.shape[1]


class Vision:
    """Everything but `eyes` belongs to the engine thread."""

    def __init__(self, projector: Projector, eyes: LlamaEyes, max_kept_bytes: int = MAX_KEPT_BYTES) -> None:
        self._projector = projector
        self.eyes = eyes
        self._max_kept_bytes = max_kept_bytes
        self._kept: OrderedDict[bytes, tuple[Piece, ...]] = OrderedDict()
        self._kept_bytes = 0
        self.num_encoded = 0

    @property
    def is_causal(self) -> bool:
        return self._projector.is_causal

    @property
    def identity(self) -> tuple[str, int]:
        return self._projector.path.name, self._projector.num_bytes

    def position(self, index: int, images: tuple[ImageSpan, ...]) -> int:
        """Where the model counts the token at `index`, which is not inside an image."""
        if not self._projector.has_axes:
            return index
        return index + sum(self._shift(span) for span in images if span.start + span.num_tokens <= index)

    def parts(self, row: Row) -> list[Part]:
        """In order. A row may begin and end inside an image whose vectors see only those before them."""
        end = row.start + len(row.ids)
        parts = []
        for run in self._runs(row):
            after = end - run.end
            parts.append(Part(run.ids, run.vectors, run.positions, min(max(0, row.num_logits - after), run.num_tokens)))
        return parts

    def close(self) -> None:
        self._kept.clear()
        self._projector.close()

    def _runs(self, row: Row) -> Iterator["_Run"]:
        start, end = row.start, row.start + len(row.ids)
        for span in row.images:
            if span.start + span.num_tokens <= start or span.start >= end:
                continue
            if start < span.start:
                yield self._text(row, start, span.start)
            place, position = span.start, self.position(span.start, row.images)
            for piece in self._look(span):
                first, last = max(start, place), min(end, place + piece.num_tokens)
                if first < last:
                    yield self._run(piece, first - place, last - place, position).at(last)
                place += piece.num_tokens
                position += piece.num_positions
            start = min(end, place)
        if start < end:
            yield self._text(row, start, end)

    def _text(self, row: Row, start: int, end: int) -> "_Run":
        position = self.position(start, row.images)
        ramp = np.arange(position, position + end - start, dtype=np.int32)[None]
        return _Run(row.ids[start - row.start : end - row.start], None, ramp, end)

    def _run(self, piece: Piece, first: int, last: int, position: int) -> "_Run":
        positions = piece.places[:, first:last] + np.int32(position)
        if piece.vectors is None:
            return _Run(np.array(piece.ids[first:last], np.int32), None, positions, 0)
        if not self.is_causal and last - first < piece.num_tokens:
            raise RuntimeError("an image that must be seen as a whole was divided")
        if len(positions) > 1:
            positions[-1] = piece.places[-1, first:last]  # the axis that is not used stays where it is
        return _Run(None, piece.vectors[first:last], positions, 0)

    def _shift(self, span: ImageSpan) -> int:
        height, width, _ = span.image.pixels.shape
        return self.eyes.span(width, height).num_positions - span.num_tokens

    def _look(self, span: ImageSpan) -> tuple[Piece, ...]:
        pieces = self._kept.get(span.image.digest)
        if pieces is None:
            self.num_encoded += 1
            pieces = make_span(self._projector.encode(span.image)).pieces
            self._keep(span.image, pieces)
        else:
            self._kept.move_to_end(span.image.digest)
        if sum(piece.num_tokens for piece in pieces) != span.num_tokens:
            raise RuntimeError("an image has another number of tokens than was counted")
        return pieces

    def _keep(self, image: Image, pieces: tuple[Piece, ...]) -> None:
        size = _num_bytes(pieces)
        if size > self._max_kept_bytes:
            return
        while self._kept_bytes + size > self._max_kept_bytes:
            self._kept_bytes -= _num_bytes(self._kept.popitem(last=False)[1])
        self._kept[image.digest] = pieces
        self._kept_bytes += size


@dataclass(frozen=True, slots=True, eq=False)
class _Run:
    ids: TokenIds | None
    vectors: NDArray[np.float32] | None
    positions: NDArray[np.int32]
    end: int  # in the sequence

    @property
    def num_tokens(self) -> int:
        return self.positions.shape[1]

    def at(self, end: int) -> "_Run":
        return _Run(self.ids, self.vectors, self.positions, end)


def _num_bytes(pieces: tuple[Piece, ...]) -> int:
    return sum(piece.vectors.nbytes for piece in pieces if piece.vectors is not None)
