"""Logits that a device may still be computing. Knows neither rows nor what is done with them."""

import mlx.core as mx
import numpy as np
from numpy.typing import DTypeLike, NDArray


class LazyLogits:
    """Rows start..stop of `source` (any number, vocabulary); `np.asarray` waits for them.

    The logits of one pass share a source, so that the last ones of many sequences are taken from it at once.
    """

    __slots__ = ("source", "start", "stop")

    def __init__(self, source: mx.array, start: int = 0, stop: int | None = None) -> None:
        self.source = source
        self.start = start
        self.stop = source.shape[0] if stop is None else stop
        assert 0 <= start <= self.stop <= source.shape[0]

    @property
    def array(self) -> mx.array:
        """These logits alone, (num_logits, vocabulary)."""
        return self.source[self.start : self.stop]

    def __len__(self) -> int:
        return self.stop - self.start

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[np.float32]:
        found = np.array(self.array.astype(mx.float32))
        return found if dtype is None else found.astype(dtype, copy=False)


def last_positions(all_logits: list[LazyLogits]) -> mx.array:
    """The last row of each, (len(all_logits), vocabulary) in float32."""
    source = all_logits[0].source
    lasts = [logits.stop - 1 for logits in all_logits]
    if any(logits.source is not source for logits in all_logits):
        taken = mx.concatenate([logits.source[last : last + 1] for logits, last in zip(all_logits, lasts, strict=True)])
    elif lasts == list(range(source.shape[0])):
        taken = source
    else:
        taken = source[mx.array(lasts)]
    return taken.astype(mx.float32)
