"""KV outside the library: planes of a run of tokens, or a whole opaque blob where the layout is not known."""

from proxy_inference_engine.runners.base import Segment
from proxy_inference_engine.runners.llama_cpp.arena import Arena, Bytes
from proxy_inference_engine.runners.llama_cpp.blob import KvLayout


class KvSegment:
    """The planes of `num_tokens`, one after another, in the arena."""

    __slots__ = ("_arena", "_layout", "data", "num_tokens", "ticket")

    def __init__(self, arena: Arena, layout: KvLayout, num_tokens: int) -> None:
        self._arena = arena
        self._layout = layout
        self.num_tokens = num_tokens
        self.ticket, self.data = arena.allocate(num_tokens * layout.token_bytes)

    @property
    def num_bytes(self) -> int:
        return self.num_tokens * self._layout.token_bytes

    @property
    def planes(self) -> list[Bytes]:
        return self._layout.plane_views(self.data, self.num_tokens)

    def split(self, at: int) -> tuple["KvSegment", "KvSegment"]:
        assert 0 < at < self.num_tokens
        head = KvSegment(self._arena, self._layout, at)
        tail = KvSegment(self._arena, self._layout, self.num_tokens - at)
        for whole, first, second in zip(self.planes, head.planes, tail.planes, strict=True):
            first[:] = whole[:, :at]
            second[:] = whole[:, at:]
        self.free()
        return head, tail

    def free(self) -> None:
        self._arena.free(self.ticket, self.num_bytes)
        self.ticket = None


class BlobSegment:
    """A whole sequence as the library wrote it; can't be divided."""

    __slots__ = ("_arena", "data", "num_tokens", "ticket")

    def __init__(self, arena: Arena, num_tokens: int, num_bytes: int) -> None:
        self._arena = arena
        self.num_tokens = num_tokens
        self.ticket, self.data = arena.allocate(num_bytes)

    @property
    def num_bytes(self) -> int:
        return len(self.data)

    def split(self, at: int) -> tuple["BlobSegment", "BlobSegment"]:
        raise AssertionError(f"a snapshot can't be divided at {at}")

    def free(self) -> None:
        self._arena.free(self.ticket, self.num_bytes)
        self.ticket = None


class SegmentPacker:
    """Segments are bytes already. Implements `base.Packer`; without a layout, for whole blobs."""

    def __init__(self, arena: Arena, layout: KvLayout | None) -> None:
        self._arena = arena
        self._layout = layout
        self._packed: dict[int, int | None] = {}  # id of the bytes → the arena's ticket
        self.layout = "whole" if layout is None else repr(layout)

    def pack(self, segment: Segment) -> Bytes:
        """The segment's own bytes, not a copy: the arena keeps them until `release`."""
        assert isinstance(segment, KvSegment | BlobSegment)
        self._arena.share(segment.ticket)
        data = segment.data[:]  # another object for each call
        self._packed[id(data)] = segment.ticket
        return data

    def release(self, data: Bytes) -> None:
        self._arena.free(self._packed.pop(id(data)), data.nbytes)

    def unpack(self, num_tokens: int, data: Bytes) -> KvSegment | BlobSegment:
        if self._layout is not None and data.nbytes != num_tokens * self._layout.token_bytes:
            raise ValueError(f"{data.nbytes} bytes of KV for {num_tokens} tokens")
        segment = (
            BlobSegment(self._arena, num_tokens, data.nbytes)
            if self._layout is None
            else KvSegment(self._arena, self._layout, num_tokens)
        )
        segment.data[:] = data
        return segment
