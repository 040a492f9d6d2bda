"""Stop strings over a stream of text: hold back what may begin one, cut at the first. Knows nothing of tokens.

The leftmost match wins, as if the whole text were searched at once; of two that start together, the shorter one.
"""

from collections.abc import Sequence
from typing import NamedTuple


class Filtered(NamedTuple):
    """Text that is safe to show, and the stop string that came right after it, if one did."""

    text: str
    stop_str: str | None


class _Match(NamedTuple):
    start: int  # in the held text
    stop: str


class _Matcher:
    """Knuth-Morris-Pratt search for one string. The table of borders grows only as far as the text ever matches."""

    __slots__ = ("_borders", "num_matched", "stop")

    def __init__(self, stop: str) -> None:
        self.stop = stop
        self.num_matched = 0  # the longest end of the text that begins the stop string
        self._borders = [0]  # [i]: the longest proper end of stop[: i + 1] that also begins it

    def step(self, char: str) -> bool:
        """Take one character; True when it completes the string (then the matcher is used up)."""
        stop, num = self.stop, self.num_matched
        while num and stop[num] != char:
            num = self._borders[num - 1]
        if stop[num] == char:
            num += 1
            if num > len(self._borders):
                self._add_border()
        self.num_matched = num
        return num == len(stop)

    def _add_border(self) -> None:
        stop, borders = self.stop, self._borders
        char, num = stop[len(borders)], borders[-1]
        while num and stop[num] != char:
            num = borders[num - 1]
        borders.append(num + 1 if stop[num] == char else 0)


class StopFilter:
    """Work is linear in the text, whatever the strings look like.

        held text:   ......│a b c│d e f│..
                      rival┘     └candidate

    A complete match (the candidate) is final once no rival is left: no unfinished match that starts before it.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        assert all(stops), "an empty stop string would match everywhere"
        self._matchers = [_Matcher(stop) for stop in dict.fromkeys(stops)]
        self._starts = frozenset(stop[0] for stop in stops)
        self._held = ""
        self._candidate: _Match | None = None

    @property
    def candidate(self) -> str | None:
        """The best complete match so far; one that started earlier may still take its place."""
        return None if self._candidate is None else self._candidate.stop

    def feed(self, text: str) -> Filtered:
        """Release what cannot be part of a match. Not to be called again after a stop string was returned."""
        if not self._held and self._starts.isdisjoint(text):
            return Filtered(text, None)
        num_held = len(self._held)
        self._held += text
        for end, char in enumerate(text, start=num_held + 1):
            self._step(char, end)
            if not self._matchers:
                return self.finish()
        return Filtered(self._release(), None)

    def finish(self) -> Filtered:
        """The text is over: everything held is released, up to the match if there is one."""
        held, self._held = self._held, ""
        if self._candidate is None:
            return Filtered(held, None)
        return Filtered(held[: self._candidate.start], self._candidate.stop)

    def _step(self, char: str, end: int) -> None:
        best = self._candidate
        for matcher in self._matchers:
            if (matcher.num_matched or char == matcher.stop[0]) and matcher.step(char):
                start = end - len(matcher.stop)
                if best is None or start < best.start:
                    best = _Match(start, matcher.stop)
        if best is not None:
            self._candidate = best
            self._matchers = [rival for rival in self._matchers if end - rival.num_matched < best.start]

    def _release(self) -> str:
        num_free = len(self._held) - max(matcher.num_matched for matcher in self._matchers)
        text, self._held = self._held[:num_free], self._held[num_free:]
        if self._candidate is not None:
            self._candidate = _Match(self._candidate.start - num_free, self._candidate.stop)
        return text
