"""Which bytes of a file have come: runs of them, joined where they touch. Knows no disk and no network."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple


class Span(NamedTuple):
    """Bytes from `start` up to, without, `end`."""

    start: int
    end: int


class Spans:
    def __init__(self, spans: Iterable[Span] = ()) -> None:
        self._spans: list[Span] = []
        for span in spans:
            self.add(span)

    def __iter__(self) -> Iterator[Span]:
        return iter(self._spans)

    @property
    def num_bytes(self) -> int:
        return sum(end - start for start, end in self._spans)

    @property
    def prefix(self) -> int:
        """How many bytes there are without a gap, from the beginning on."""
        return self._spans[0].end if self._spans and self._spans[0].start == 0 else 0

    def add(self, new: Span) -> None:
        """Take a span in, overlaps or not."""
        start, end = new
        apart = []
        for span in self._spans:
            if span.end < start or end < span.start:
                apart.append(span)
            else:
                start, end = min(start, span.start), max(end, span.end)
        self._spans = sorted([*apart, Span(start, end)])

    def gaps(self, size: int, longest: int) -> list[Span]:
        """What is missing of a file of this size, in its order, in pieces no longer than that."""
        ends = [0, *(span.end for span in self._spans)]
        starts = [*(span.start for span in self._spans), size]
        return [
            Span(first, min(first + longest, start))
            for end, start in zip(ends, starts, strict=True)
            for first in range(end, start, longest)
        ]
