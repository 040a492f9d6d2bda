"""The text a parser has yet to read, and the search for markers in it. Knows nothing of what a marker means.

A reader is a generator that yields when it needs more text; so it reads the same however the text was cut.
"""

import re
from collections.abc import Generator
from typing import NamedTuple, TypeVar

Result = TypeVar("Result")
Steps = Generator[None, None, Result]

SPACE = " \t\r\n"
_SPACES = re.compile(f"[{SPACE}]*")
_LETTERS = re.compile("[A-Za-z]*")


class Passage(NamedTuple):
    """Text without a marker, and the marker that came right after it, if one did."""

    text: str
    marker: str | None


class Finder:
    """Looks for the first of some texts. Work is linear: the pattern is a choice of literals."""

    __slots__ = ("_firsts", "_num_tail", "_pattern", "_texts")

    def __init__(self, *texts: str) -> None:
        self._texts = tuple(sorted({text for text in texts if text}, key=len, reverse=True))
        self._pattern = re.compile("|".join(map(re.escape, self._texts))) if self._texts else None
        self._firsts = frozenset(text[0] for text in self._texts)
        self._num_tail = max(map(len, self._texts), default=1) - 1

    def search(self, text: str, at: int) -> re.Match[str] | None:
        return None if self._pattern is None else self._pattern.search(text, at)

    def num_pending(self, text: str, at: int) -> int:
        """The length of the longest end of the text that begins one of those looked for."""
        for start in range(max(at, len(text) - self._num_tail), len(text)):
            if text[start] in self._firsts:
                tail = text[start:]
                if any(one.startswith(tail) for one in self._texts):
                    return len(tail)
        return 0


class Source:
    """`is_over`: no more text comes; `is_cut`: because of a limit, not because the model ended."""

    __slots__ = ("_at", "_kept", "_kept_start", "_start", "_text", "is_cut", "is_over")

    def __init__(self) -> None:
        self._text = ""
        self._at = 0
        self._start = 0  # where _text lies in all the text
        self._kept: list[str] | None = None  # all text since `keep`
        self._kept_start = 0
        self.is_over = False
        self.is_cut = False

    @property
    def position(self) -> int:
        return self._start + self._at

    @property
    def is_empty(self) -> bool:
        return self._at == len(self._text)

    @property
    def next_char(self) -> str:
        """The next character, or nothing."""
        return self._text[self._at : self._at + 1]

    def add(self, text: str) -> None:
        self._start += self._at
        self._text = self._text[self._at :] + text
        self._at = 0
        if self._kept is not None:
            self._kept.append(text)

    def keep(self) -> None:
        """Remember this place and what follows, to come back to it."""
        self._kept = [self._text[self._at :]]
        self._kept_start = self.position

    def rewind(self) -> None:
        """Back to the place remembered: nothing behind it has been read."""
        assert self._kept is not None, "no place is remembered"
        self._text = "".join(self._kept)
        self._start = self._kept_start
        self._at = 0
        self._kept = None

    def let_go(self) -> None:
        """Forget the place."""
        self._kept = None

    def take(self, num_chars: int | None = None) -> str:
        """Read so many characters, or all there are."""
        end = len(self._text) if num_chars is None else self._at + num_chars
        text = self._text[self._at : end]
        self._at += len(text)
        return text

    def put_back(self, num_chars: int) -> None:
        """Undo the last read. Only text that came with the current read can be put back."""
        self._at -= num_chars

    def take_until(self, finder: Finder, *, awaits_marker: bool = False) -> Passage:
        """Read what can be no part of a marker; the marker too, if one follows.

        A marker that is not complete at the end was text, unless the answer was cut off where one was sure to come.
        """
        match = finder.search(self._text, self._at)
        if match is not None:
            text = self._text[self._at : match.start()]
            self._at = match.end()
            return Passage(text, match.group())
        is_decided = self.is_over and not (self.is_cut and awaits_marker)
        num_held = 0 if is_decided else finder.num_pending(self._text, self._at)
        return Passage(self.take(len(self._text) - self._at - num_held), None)

    def take_match(self, pattern: re.Pattern[str]) -> str:
        """Read what the pattern matches here, as far as there is text."""
        match = pattern.match(self._text, self._at)
        return self.take(0 if match is None else match.end() - self._at)

    def begins(self, *texts: str) -> bool:
        """Whether all that is unread is a beginning of one of these."""
        num_unread = len(self._text) - self._at
        return any(num_unread < len(text) and self._text.startswith(text[:num_unread], self._at) for text in texts)

    def expect(self, *texts: str) -> Steps[str | None]:
        """Read the first of the texts that comes next and give it; None, and nothing read, if none does."""
        while True:
            for text in texts:
                if self._text.startswith(text, self._at):
                    self._at += len(text)
                    return text
                if not self.is_over and self.begins(text):
                    break
            else:
                return None
            yield

    def skip_space(self) -> Steps[str]:
        """Read white space up to the next character, or to the end."""
        parts = [self.take_match(_SPACES)]
        while self.is_empty and not self.is_over:
            yield
            parts.append(self.take_match(_SPACES))
        return "".join(parts)

    def word(self) -> Steps[str]:
        """Read a run of ASCII letters."""
        parts = [self.take_match(_LETTERS)]
        while self.is_empty and not self.is_over:
            yield
            parts.append(self.take_match(_LETTERS))
        return "".join(parts)

    def through(self, finder: Finder) -> Steps[str | None]:
        """Read up to a marker and over it, and give what came before; None if it never comes."""
        parts = []
        while True:
            text, marker = self.take_until(finder)
            parts.append(text)
            if marker is not None:
                return "".join(parts)
            if self.is_over:
                return None
            yield
