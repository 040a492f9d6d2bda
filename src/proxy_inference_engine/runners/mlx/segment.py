"""The KV of a run of tokens, on the device and outside any slot."""

import mlx.core as mx


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
