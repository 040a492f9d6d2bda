"""The text a parser has yet to read, and the search for markers in it. Knows nothing of what a marker means.

A reader is a generator that yields when it needs more text; so it reads the same however the text was cut. It reads one
text in which a marker that is a token and its spelling differ: the token is a lone surrogate, which decoded UTF-8 never
contains.
"""

import re
from collections.abc import Generator, Iterable
from dataclasses import fields, replace
from typing import Any, NamedTuple, TypeVar

from proxy_inference_engine.formats.syntax import WORD, CallSyntax, Channels, Parameter, Thinking

_Result = TypeVar("_Result")
_Syntax = TypeVar("_Syntax", CallSyntax, Channels, Parameter, Thinking)

# What a reader is while it runs; at its end it gives a result.
Reading = Generator[None, None, _Result]

SPACE = " \t\r\n"
_SPACES = re.compile(f"[{SPACE}]*")
_LETTERS = re.compile("[A-Za-z]*")
_WORD = re.compile("[A-Za-z0-9_.:-]*")  # what may stand for WORD
_MORE, _OTHER = -1, -2
_FIRST_MARKER = 0xD800
_MARKERS = re.compile("([\ud800-\udfff])")


class Alphabet:
    """A single character, which no text can hold, for each marker that is a token."""

    def __init__(self, markers: Iterable[str]) -> None:
        # Longest first, so that no marker is taken for a part of another.
        ordered = sorted(set(markers), key=lambda marker: (-len(marker), marker))
        self._chars = {marker: chr(_FIRST_MARKER + index) for index, marker in enumerate(ordered)}
        self._spellings = {char: marker for marker, char in self._chars.items()}

    @property
    def chars(self) -> frozenset[str]:
        return frozenset(self._spellings)

    def char(self, marker: str) -> str:
        return self._chars[marker]

    def write(self, text: str) -> str:
        """The text with a character for each marker in it."""
        for marker, char in self._chars.items():
            text = text.replace(marker, char)
        return text

    def spell(self, text: str) -> str:
        """The text with each marker written out."""
        return "".join(self.split(text))

    def split(self, text: str) -> list[str]:
        """Text and spelled-out markers in turn, beginning with (perhaps empty) text."""
        if not self._chars:
            return [text]
        parts = _MARKERS.split(text)
        parts[1::2] = [self._spellings[char] for char in parts[1::2]]
        return parts

    def translate(self, syntax: _Syntax) -> _Syntax:
        """A family's syntax with a character for each marker in it."""
        changes: dict[str, Any] = {
            field.name: self.write(value)
            for field in fields(syntax)
            if type(value := getattr(syntax, field.name)) is str
        }
        if isinstance(syntax, CallSyntax) and syntax.parameter is not None:
            changes["parameter"] = self.translate(syntax.parameter)
        return replace(syntax, **changes)


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

    __slots__ = ("_at", "_kept", "_kept_start", "_start", "_text", "is_cut", "is_over", "taken")

    def __init__(self, begun: str = "") -> None:
        """`begun` came before the text, and is read first; places are told from where the text begins."""
        self.taken = ""  # by the last `expect` that read something
        self._text = begun
        self._at = 0
        self._start = -len(begun)  # where _text lies in all the text
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
        """Forget the place remembered: there is no way back to it."""
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
        return any(self._measure(text) == _MORE for text in texts)

    def expect(self, *texts: str) -> Reading[str | None]:
        """Read the first of the texts that comes next and give it; None, and nothing read, if none does.

        What was read is in `taken`: a text may have a hole for a word.
        """
        while True:
            for text in texts:
                num_chars = self._measure(text)
                if num_chars >= 0:
                    self.taken = self.take(num_chars)
                    return text
                if not self.is_over and num_chars == _MORE:
                    break
            else:
                return None
            yield

    def _measure(self, text: str) -> int:
        """How long a text is that comes next; _MORE if all that is unread begins it, _OTHER if something else comes."""
        if WORD not in text:
            if self._text.startswith(text, self._at):
                return len(text)
            return _MORE if text.startswith(self._text[self._at : self._at + len(text)]) else _OTHER
        at = self._at
        for index, piece in enumerate(text.split(WORD)):
            if index:
                word = _WORD.match(self._text, at)
                assert word is not None
                if word.end() == len(self._text):
                    return _MORE
                if word.end() == at:
                    return _OTHER
                at = word.end()
            if not self._text.startswith(piece, at):
                return _MORE if piece.startswith(self._text[at : at + len(piece)]) else _OTHER
            at += len(piece)
        return at - self._at

    def skip_space(self) -> Reading[str]:
        """Read white space up to the next character, or to the end."""
        parts = [self.take_match(_SPACES)]
        while self.is_empty and not self.is_over:
            yield
            parts.append(self.take_match(_SPACES))
        return "".join(parts)

    def word(self) -> Reading[str]:
        """Read a run of ASCII letters."""
        parts = [self.take_match(_LETTERS)]
        while self.is_empty and not self.is_over:
            yield
            parts.append(self.take_match(_LETTERS))
        return "".join(parts)

    def through(self, finder: Finder) -> Reading[str | None]:
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
