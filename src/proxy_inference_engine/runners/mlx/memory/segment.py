"""The KV of a run of tokens, on the device and outside any slot; and how it becomes bytes."""

import json
import struct
from itertools import accumulate
from typing import Any

import mlx.core as mx
import numpy as np

from proxy_inference_engine.runners.base import Packed, Segment

_LENGTH = struct.Struct("<I")
_MAX_FACTS = 1 << 20
# numpy has no bfloat16: it is written as numbers of the same size.
_WRITTEN_AS = {"bfloat16": "uint16", "float16": "float16", "float32": "float32"}


class KvSegment:
    """Implements `base.Segment`. Arrays are (…, tokens, width) and belong to nobody else, so that writing to a slot
    never has to copy what a segment holds."""

    __slots__ = ("arrays", "num_bytes", "num_tokens")

    def __init__(self, arrays: list[mx.array], num_tokens: int) -> None:
        self.arrays = arrays
        self.num_tokens = num_tokens
        self.num_bytes = sum(array.nbytes for array in arrays)

    def split(self, at: int) -> tuple["KvSegment", "KvSegment"]:
        assert 0 < at < self.num_tokens
        first = [mx.contiguous(array[..., :at, :]) for array in self.arrays]
        rest = [mx.contiguous(array[..., at:, :]) for array in self.arrays]
        mx.async_eval(first, rest)
        parts = KvSegment(first, at), KvSegment(rest, self.num_tokens - at)
        self.free()
        return parts

    def free(self) -> None:
        self.arrays = []


class SegmentPacker:
    """Types and shapes of the arrays as JSON, then the arrays. Implements `base.Packer`.

    `layout` names the kind of memory, for each has arrays of its own.
    """

    def __init__(self, layout: str) -> None:
        self.layout = layout

    def pack(self, segment: Segment) -> Packed:
        """A copy of the segment's bytes. Waits until the device has made the segment."""
        assert isinstance(segment, KvSegment)
        names = [str(array.dtype).rpartition(".")[2] for array in segment.arrays]
        facts = [[name, list(array.shape)] for name, array in zip(names, segment.arrays, strict=True)]
        head = json.dumps(facts, separators=(",", ":")).encode()
        parts = [np.frombuffer(_LENGTH.pack(len(head)) + head, np.uint8)]
        for name, array in zip(names, segment.arrays, strict=True):
            plain = array.view(getattr(mx, _WRITTEN_AS[name]))
            parts.append(np.ascontiguousarray(np.array(plain)).reshape(-1).view(np.uint8))
        return np.concatenate(parts)

    def release(self, data: Packed) -> None:
        """Do nothing: what `pack` gave is a copy."""

    def unpack(self, num_tokens: int, data: Packed) -> KvSegment:
        try:
            facts, body = _read_facts(data)
            written = [(np.dtype(_WRITTEN_AS[name]), tuple(map(int, shape))) for name, shape in facts]
            sizes = [dtype.itemsize * int(np.prod(shape)) for dtype, shape in written]
            if sum(sizes) != body.nbytes or any(shape[-2] != num_tokens for _, shape in written):
                raise ValueError("arrays of another size")
        except (KeyError, TypeError, IndexError, struct.error) as error:
            raise ValueError("not the arrays of a segment") from error
        arrays = []
        for start, size, (dtype, shape), (name, _) in zip(
            accumulate(sizes, initial=0), sizes, written, facts, strict=False
        ):
            plain = mx.array(body[start : start + size].view(dtype).reshape(shape))
            arrays.append(plain.view(getattr(mx, name)))
        mx.eval(arrays)
        return KvSegment(arrays, num_tokens)


def _read_facts(data: Packed) -> tuple[list[Any], Packed]:
    (length,) = _LENGTH.unpack(data[: _LENGTH.size].tobytes())
    if length > min(_MAX_FACTS, data.nbytes):
        raise ValueError("a length that cannot be")
    end = _LENGTH.size + length
    # A copy, since an array wants its numbers at an address that is a multiple of their size.
    return json.loads(data[_LENGTH.size : end].tobytes()), data[end:].copy()
