"""How many texts there are that begin in one way: of a few values, of strings, of numbers.

A watch that keeps items apart asks before each step: where no text would be left but those that are there already, it
does not go.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from proxy_inference_engine.state_machine.json_schema.budget import Spend
from proxy_inference_engine.state_machine.json_schema.languages import RegularLanguage
from proxy_inference_engine.state_machine.json_schema.plain import UNWRITABLE
from proxy_inference_engine.state_machine.shapes import MANY, ItemTexts

# What a backslash stands for with the character after it.
_ESCAPES = {"n": 10, "r": 13, "b": 8, "t": 9, "f": 12, "\\": 92, '"': 34}
_HALVES = (0xD800, 0xDFFF)
Codes = Sequence[tuple[int, int]]


class FewTexts:
    """Counts among texts that are listed."""

    def __init__(self, texts: Sequence[bytes]) -> None:
        self.texts = sorted(set(texts))

    def num_from(self, begun: bytes) -> int:
        first = bisect_left(self.texts, begun)
        return bisect_left(self.texts, begun + b"\xff", first) - first

    def is_narrow(self, _text: bytes) -> bool:
        return True


class SeveralTexts:
    """Counts among the texts of some or of others, which may have some in common: no fewer than those of each."""

    def __init__(self, texts: Sequence[ItemTexts]) -> None:
        self._texts = texts

    def num_from(self, begun: bytes) -> int:
        return max(one.num_from(begun) for one in self._texts)

    def is_narrow(self, text: bytes) -> bool:
        return any(one.is_narrow(text) for one in self._texts)


@dataclass(frozen=True, slots=True)
class WholeNumbers:
    """Counts among all whole numbers between bounds. Zero has no sign."""

    least: int | None = None
    most: int | None = None

    def num_from(self, begun: bytes) -> int:
        is_negative = begun.startswith(b"-")
        digits = begun.removeprefix(b"-")
        if digits and not digits.isdigit():
            return 0
        if is_negative:
            low, high = self._negated(self.most), self._negated(self.least)
        else:
            low, high = self.least, self.most
        if is_negative and (not digits or digits == b"0"):
            return 0 if digits else _between(1, low, high)
        if not digits:
            return _between(0, low, high) + self.num_from(b"-")
        if digits == b"0":
            return _between(0, low, 0 if high is None else min(0, high))
        if high is None:
            return MANY
        first, width, total = int(digits), 1, 0
        while first <= high:
            total += _between(first, low, min(high, first + width - 1))
            first, width = first * 10, width * 10
        return min(MANY, total)

    def is_narrow(self, text: bytes) -> bool:
        return text == b"0" or (self.least if text.startswith(b"-") else self.most) is not None

    @staticmethod
    def _negated(bound: int | None) -> int | None:
        return None if bound is None else -bound


def _between(first: int, low: int | None, high: int | None) -> int:
    if high is None:
        return MANY
    return max(0, high - max(first, first if low is None else low) + 1)


@dataclass(frozen=True, slots=True)
class AnyStrings:
    """Counts among all strings up to a length."""

    max_length: int | None = None

    def num_from(self, begun: bytes) -> int:
        if self.max_length is None or (self.max_length and not begun):
            return MANY
        chars, pending = _read(begun)
        left = self.max_length - len(chars) - bool(pending)
        return MANY if left > 0 else sum(high - low + 1 for low, high in pending) or 1

    def is_narrow(self, text: bytes) -> bool:
        return self.max_length is not None and len(text) - len('""') >= self.max_length


class PatternStrings:
    """Counts among the strings of a language, as its automaton has them; none that begin with more than `longest`."""

    def __init__(self, language: RegularLanguage, spend: Spend, longest: int | None = None) -> None:
        self._longest = longest
        accepting, edges = language.automaton(spend)
        self._edges: list[list[tuple[int, int, int]]] = [[] for _ in accepting]
        for (source, target), ranges in edges.items():
            self._edges[source] += [(low, high, target) for each in ranges for low, high in _writable(*each)]
        self._counts = _counts(accepting, self._edges)

    def num_from(self, begun: bytes) -> int:
        chars, pending = _read(begun)
        state = self._state(chars)
        if state is None or (self._longest is not None and len(chars) > self._longest):
            return 0
        if not pending:
            return self._counts[state]
        return min(MANY, sum(self._num_over(state, low, high) for low, high in pending))

    def is_narrow(self, _text: bytes) -> bool:
        return True

    def _state(self, chars: list[int]) -> int | None:
        state: int | None = 0
        for code in chars:
            assert state is not None
            state = next((target for low, high, target in self._edges[state] if low <= code <= high), None)
            if state is None:
                break
        return state

    def _num_over(self, state: int, first: int, last: int) -> int:
        total = 0
        for low, high, target in self._edges[state]:
            total += max(0, min(last, high) - max(first, low) + 1) * self._counts[target]
        return min(MANY, total)


def _counts(accepting: list[bool], edges: list[list[tuple[int, int, int]]]) -> list[int]:
    """The words from every state; MANY from where a way leads in a circle and out again."""
    counts = [int(is_last) for is_last in accepting]
    # A word longer than there are states goes in a circle, and then there are words without end.
    for length in range(2 * len(accepting) + 1):
        changed = False
        for state, ways in enumerate(edges):
            total = int(accepting[state]) + sum((high - low + 1) * counts[target] for low, high, target in ways)
            total = min(MANY, total)
            if total != counts[state] and length > len(accepting):
                total = MANY
            changed = changed or total != counts[state]
            counts[state] = total
        if not changed:
            break
    return counts


def _writable(low: int, high: int) -> list[tuple[int, int]]:
    """A range of characters without those that nobody can write."""
    found: list[tuple[int, int]] = []
    for gap_low, gap_high in (*((code, code) for code in sorted(map(ord, UNWRITABLE))), _HALVES):
        if low < gap_low:
            found.append((low, min(high, gap_low - 1)))
        low = max(low, gap_high + 1)
    return [*((a, b) for a, b in found if a <= b), *([(low, high)] if low <= high else [])]


def _read(begun: bytes) -> tuple[list[int], Codes]:
    """The characters of a string that has begun, and what the one may be that has begun too."""
    body = begun[1:]
    whole = body.decode(errors="ignore") if not _num_pending(body) else body[: -_num_pending(body)].decode()
    chars: list[int] = []
    at = 0
    while at < len(whole):
        if whole[at] != "\\":
            chars.append(ord(whole[at]))
            at += 1
        elif at + 1 < len(whole):
            chars.append(_ESCAPES.get(whole[at + 1], 0))
            at += 2
        else:
            return chars, [(code, code) for code in sorted(_ESCAPES.values())]
    return chars, _pending_codes(body[len(body) - _num_pending(body) :])


def _num_pending(body: bytes) -> int:
    """How many bytes at the end are the beginning of a character."""
    for back in range(1, min(3, len(body)) + 1):
        byte = body[-back]
        if byte >= 0xC0:
            return back if back < (2 if byte < 0xE0 else 3 if byte < 0xF0 else 4) else 0
        if byte < 0x80:
            return 0
    return 0


def _pending_codes(pending: bytes) -> Codes:
    if not pending:
        return ()
    length = 2 if pending[0] < 0xE0 else 3 if pending[0] < 0xF0 else 4
    code = pending[0] & (0x7F >> length)
    for byte in pending[1:]:
        code = code << 6 | byte & 0x3F
    missing = 6 * (length - len(pending))
    least = {2: 0x80, 3: 0x800, 4: 0x10000}[length]
    return _writable(max(least, code << missing), min(0x10FFFF, ((code + 1) << missing) - 1))
