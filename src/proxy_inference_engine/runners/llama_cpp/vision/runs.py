"""Rows that hold images: cut into runs of tokens and of vectors, at the positions that the model gives them.

A batch of llama.cpp holds tokens or vectors, so such a row takes several. An image is encoded once and kept by its
digest.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from proxy_inference_engine.runners.base import Logits, Row
from proxy_inference_engine.runners.llama_cpp.lane import MAX_BATCH, ImageRow, LaneContext
from proxy_inference_engine.runners.llama_cpp.model import Model, sampled_digest
from proxy_inference_engine.runners.llama_cpp.vision.image_tokens import LlamaImageEncoder, make_span
from proxy_inference_engine.runners.llama_cpp.vision.mtmd import ImagePiece, Projector
from proxy_inference_engine.types import Image, ImageSpan

MAX_KEPT_BYTES = 256 << 20

_Part = Row | ImageRow  # what one batch can hold of a row; the start of a `Row` is a position


class Vision:
    """Computes rows with images. Everything but `image_encoder` belongs to the engine thread."""

    def __init__(
        self, projector: Projector, image_encoder: LlamaImageEncoder, max_kept_bytes: int = MAX_KEPT_BYTES
    ) -> None:
        self._projector = projector
        self.image_encoder = image_encoder
        self._max_kept_bytes = max_kept_bytes
        self._kept: OrderedDict[bytes, tuple[ImagePiece, ...]] = OrderedDict()
        self._kept_bytes = 0
        self.num_encoded = 0

    @property
    def identity(self) -> tuple[str, int, str]:
        path = self._projector.path
        return path.name, self._projector.num_bytes, sampled_digest(path)

    def position(self, index: int, images: tuple[ImageSpan, ...]) -> int:
        """Where the model counts the token at `index`, which is not inside an image."""
        if not self._projector.has_axes:
            return index
        return index + sum(self._shift(span) for span in images if span.start + span.num_tokens <= index)

    def decode(self, context: LaneContext, rows: Sequence[Row], first_slot: int) -> list[Logits]:
        """Compute rows of a lane. The texts at their ends, all of most rows, go in one batch; what is before alone."""
        found: list[list[Logits]] = []
        ends: list[Row] = []
        for row in rows:
            parts = self.parts(row)
            end = parts.pop() if isinstance(parts[-1], Row) else None
            found.append([_decode_alone(context, row.slot - first_slot, part) for part in parts])
            if isinstance(end, Row):
                ends.append(end)
        if ends:
            places = {row.slot: index for index, row in enumerate(rows)}
            for end, logits in zip(ends, context.decode(ends, first_slot), strict=True):
                found[places[end.slot]].append(logits)
        return [logits[0] if len(logits) == 1 else np.concatenate(logits) for logits in found]

    def parts(self, row: Row) -> list[_Part]:
        """What a row is cut into. It may begin and end inside an image whose vectors see only those before them."""
        parts: list[_Part] = []
        num_left = row.num_logits
        for part in reversed(list(self._runs(row))):
            num_logits = min(num_left, len(part.ids if isinstance(part, Row) else part.vectors))
            num_left -= num_logits
            parts.insert(0, replace(part, num_logits=num_logits))
        return parts

    def close(self) -> None:
        self._kept.clear()
        self._projector.close()

    def _runs(self, row: Row) -> Iterator[_Part]:
        start, end = row.start, row.start + len(row.ids)
        for span in row.images:
            if span.start + span.num_tokens <= start or span.start >= end:
                continue
            if start < span.start:
                yield self._text(row, start, span.start)
            place, position = span.start, self.position(span.start, row.images)
            for piece in self._encoded(span):
                first, last = max(start, place), min(end, place + piece.num_tokens)
                if first < last:
                    is_whole = last - first == piece.num_tokens
                    if piece.vectors is not None and not is_whole and not self._projector.is_causal:
                        raise RuntimeError("an image that has to be computed as a whole was divided")
                    yield self._run(row.slot, piece.cut(first - place, last - place), position)
                place += piece.num_tokens
                position += piece.num_positions
            start = min(end, place)
        if start < end:
            yield self._text(row, start, end)

    def _text(self, row: Row, start: int, end: int) -> Row:
        ids = row.ids[start - row.start : end - row.start]
        return Row(row.slot, self.position(start, row.images), ids, 0)

    def _run(self, slot: int, piece: ImagePiece, position: int) -> _Part:
        if piece.vectors is None:
            return Row(slot, position + int(piece.places[0, 0]), np.array(piece.ids, np.int32), 0)
        return ImageRow(piece.vectors, piece.placed(position), 0, is_mutual=not self._projector.is_causal)

    def _shift(self, span: ImageSpan) -> int:
        height, width, _ = span.image.pixels.shape
        return self.image_encoder.span(width, height).num_positions - span.num_tokens

    def _encoded(self, span: ImageSpan) -> tuple[ImagePiece, ...]:
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

    def _keep(self, image: Image, pieces: tuple[ImagePiece, ...]) -> None:
        size = _num_bytes(pieces)
        if size > self._max_kept_bytes:
            return
        while self._kept_bytes + size > self._max_kept_bytes:
            self._kept_bytes -= _num_bytes(self._kept.popitem(last=False)[1])
        self._kept[image.digest] = pieces
        self._kept_bytes += size


def _decode_alone(context: LaneContext, index: int, part: _Part) -> Logits:
    """Logits that stay: the next batch overwrites the library's own."""
    if isinstance(part, ImageRow):
        return context.decode_image(index, part)
    (logits,) = context.decode([Row(index, part.start, part.ids, part.num_logits)], 0)
    return logits.copy()


def _num_bytes(pieces: tuple[ImagePiece, ...]) -> int:
    return sum(piece.vectors.nbytes for piece in pieces if piece.vectors is not None)


def load_vision(path: Path, model: Model, *, threads: int, has_gpu: bool) -> Vision:
    """What an mmproj file adds to a model. Raises StartupError."""
    projector = Projector(path, model, threads=threads, has_gpu=has_gpu)
    try:
        return Vision(projector, LlamaImageEncoder(projector, MAX_BATCH))
    except BaseException:
        projector.close()
        raise
