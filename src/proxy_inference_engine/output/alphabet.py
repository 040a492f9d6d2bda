"""Markers that are tokens, as single characters no text can hold. Knows nothing of what the markers mean.

A parser then reads one text in which a marker and its spelling differ: the marker is a lone surrogate, which decoded
UTF-8 never contains.
"""

import re
from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any, TypeVar

from proxy_inference_engine.formats.syntax import CallSyntax, Channels, Parameter, Thinking

_FIRST = 0xD800
_MARKERS = re.compile("([\ud800-\udfff])")

Syntax = TypeVar("Syntax", CallSyntax, Channels, Parameter, Thinking)


class Alphabet:
    def __init__(self, markers: Iterable[str]) -> None:
        # Longest first, so that no marker is taken for a part of another.
        ordered = sorted(set(markers), key=lambda marker: (-len(marker), marker))
        self._chars = {marker: chr(_FIRST + index) for index, marker in enumerate(ordered)}
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

    def translate(self, syntax: Syntax) -> Syntax:
        """The same syntax over these characters."""
        changes: dict[str, Any] = {
            field.name: self.write(value)
            for field in fields(syntax)
            if type(value := getattr(syntax, field.name)) is str
        }
        if isinstance(syntax, CallSyntax) and syntax.parameter is not None:
            changes["parameter"] = self.translate(syntax.parameter)
        return replace(syntax, **changes)
