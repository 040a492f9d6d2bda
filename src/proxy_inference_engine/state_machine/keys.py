"""Keeps the keys of an object apart. A grammar has those that it names once each; any other it lets come again.

A watch reads an answer's bytes, and knows which keys the object has that it stands in and which tokens would end one of
them once more. Values begin after texts that the grammar itself writes: their leads.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto

import numpy as np
from numpy.typing import NDArray

from proxy_inference_engine.formats.syntax import WORD
from proxy_inference_engine.runners.base import Tokenizer

START = "\udcff"  # stands in a lead for the beginning of an answer
_START = b"\xff"  # in no text
_WORD = rb"[A-Za-z0-9_.:-]{1,%d}"
_MAX_WORD = 64
_SPACE = b" \t\n\r"
_OUTSIDE = frozenset(_SPACE + b"{}[],:+-.0123456789eE" + b"truefalsenull")


@dataclass(frozen=True, slots=True)
class KeySpelling:
    """How objects are written: opening KEY closing, and strings between marks."""

    opening: bytes
    closing: bytes
    mark: bytes
    has_escapes: bool
    leads_into_object: bool  # a value's lead has opened it


JSON_KEYS = KeySpelling(b'"', b'"', b'"', has_escapes=True, leads_into_object=False)


def marked_keys(mark: str) -> KeySpelling:
    """Bare keys, and strings between marks."""
    return KeySpelling(b"", b":", mark.encode(), has_escapes=False, leads_into_object=True)


# What stands before values with keys that no schema names: texts in their order, no text twice.
Leads = dict[KeySpelling, dict[str, None]]


class KeyTokens:
    """The tokens of a vocabulary that can end a key."""

    def __init__(self, tokenizer: Tokenizer, spelling: KeySpelling) -> None:
        self.token_bytes = tokenizer.token_bytes
        pieces = ((tokenizer.token_bytes(token_id), token_id) for token_id in range(tokenizer.num_tokens))
        ending = sorted((piece, token_id) for piece, token_id in pieces if spelling.closing in piece)
        self._texts = [piece for piece, _ in ending]
        self._ids = [token_id for _, token_id in ending]
        inside = rb"(?:[^\"\\]|\\.)*" if spelling.has_escapes else rb"[^:]+"
        whole = re.compile(rb"(?:^|[{,])[ \t\n\r]*" + spelling.opening + inside + spelling.closing, re.DOTALL)
        # Tokens with a key's beginning and its end, of which there are few.
        self.whole = {token_id: piece for piece, token_id in ending if whole.search(piece)}
        self.whole_ids = np.array(list(self.whole), np.intp)

    def beginning_with(self, text: bytes) -> list[int]:
        """Tokens that begin with a text whose last byte ends a key."""
        after = text[:-1] + bytes([text[-1] + 1])
        return self._ids[bisect_left(self._texts, text) : bisect_left(self._texts, after)]


class _Place(Enum):
    """Where a watch stands."""

    OUTSIDE = auto()  # of every value: it looks for a lead
    BEGIN = auto()  # right after a lead
    BETWEEN = auto()  # keys, strings and brackets
    BEFORE_KEY = auto()
    KEY = auto()
    STRING = auto()


class KeyGuard:
    """The leads of one grammar's values, by the spelling of their objects. Shared by all answers of a request."""

    def __init__(self, leads: Leads, tokens: Mapping[KeySpelling, KeyTokens]) -> None:
        self.spellings = list(leads)
        self.tokens = tokens
        # White space before a value is skipped anyway. Few bytes can end what is left: most tokens are not searched.
        texts = {spelling: list(dict.fromkeys(lead.rstrip() for lead in leads[spelling])) for spelling in leads}
        every = [text for group in texts.values() for text in group]
        self.max_lead = max(len(_bytes(text)) + _MAX_WORD * text.count(WORD) for text in every)
        self.last_bytes = frozenset(_bytes(text)[-1] for text in every)
        groups = (b"|".join(map(_lead_pattern, group)) for group in texts.values())
        self.pattern = re.compile(b"|".join(b"(" + group + b")" for group in groups))

    def start(self) -> "KeyWatch":
        return KeyWatch(self)


def _lead_pattern(lead: str) -> bytes:
    return (_WORD % _MAX_WORD).join(re.escape(_bytes(part)) for part in lead.split(WORD))


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


class KeyWatch:
    """One answer's walk. Whatever is no object as the grammar writes it ends the value, and it looks for the next."""

    __slots__ = ("_guard", "_is_escaped", "_is_repeated", "_key", "_objects", "_place", "_recent", "_spelling", "_tail")

    def __init__(self, guard: KeyGuard) -> None:
        self._guard = guard
        self._spelling = guard.spellings[0]
        self._place = _Place.OUTSIDE
        self._tail = _START
        self._objects: list[frozenset[bytes] | None] = []  # the keys of each that is open; None: an array
        self._key = b""
        self._recent = b""  # may be the beginning of a mark
        self._is_escaped = self._is_repeated = False
        self._look(b"")

    def feed(self, token_id: int) -> None:
        self._read(self._guard.tokens[self._spelling].token_bytes(token_id))

    def held_ids(self, allowed: NDArray[np.bool_] | None) -> list[int]:
        """Of the tokens that are allowed, those that would write a key once more."""
        if self._place is _Place.OUTSIDE or not any(self._objects):
            return []
        tokens = self._guard.tokens[self._spelling]
        whole_ids = tokens.whole_ids if allowed is None else tokens.whole_ids[allowed[tokens.whole_ids]]
        held = [token_id for token_id in whole_ids.tolist() if self._would_repeat(tokens.whole[token_id])]
        return [*held, *self._ending_ids(tokens)]

    def _ending_ids(self, tokens: KeyTokens) -> Iterator[int]:
        """Tokens that would end the key that is being written as one that is there already."""
        is_bare_start = self._place is _Place.BEFORE_KEY and not self._spelling.opening
        if self._place is _Place.KEY or is_bare_start:
            for key in self._objects[-1] or ():
                if key.startswith(self._key):
                    yield from tokens.beginning_with(key[len(self._key) :] + self._spelling.closing)

    def _would_repeat(self, piece: bytes) -> bool:
        fork = KeyWatch.__new__(KeyWatch)  # copy.copy would take ten times as long
        fork._guard, fork._spelling, fork._place = self._guard, self._spelling, self._place
        fork._objects, fork._key, fork._tail = self._objects.copy(), self._key, self._tail
        fork._recent, fork._is_escaped, fork._is_repeated = self._recent, self._is_escaped, False
        fork._read(piece)
        return fork._is_repeated

    def _read(self, data: bytes) -> None:
        for at, byte in enumerate(data):
            if self._place is _Place.OUTSIDE:
                self._look(data[at:])
                return
            self._step(byte)

    def _look(self, data: bytes) -> None:
        """Look for a lead, and read on after it."""
        text = self._tail + data
        may_end = not self._guard.last_bytes.isdisjoint(text[-len(data) - 1 :])
        found = self._guard.pattern.search(text) if may_end else None
        if found is None:
            self._tail = text[-self._guard.max_lead :]
            return
        assert found.lastindex is not None
        self._spelling = self._guard.spellings[found.lastindex - 1]
        self._tail = self._recent = self._key = b""
        self._is_escaped = False
        into = self._spelling.leads_into_object
        self._objects = [frozenset()] if into else []
        self._place = _Place.BEFORE_KEY if into else _Place.BEGIN
        self._read(text[found.end() :])

    def _step(self, byte: int) -> None:
        match self._place:
            case _Place.BEGIN:
                if byte in b"{[":
                    self._between(byte)
                elif byte not in _SPACE:
                    self._place = _Place.OUTSIDE
            case _Place.BETWEEN:
                self._between(byte)
            case _Place.BEFORE_KEY:
                self._before_key(byte)
            case _Place.KEY:
                self._in_key(byte)
            case _Place.STRING:
                self._in_string(byte)

    def _between(self, byte: int) -> None:
        mark = self._spelling.mark
        self._recent = (self._recent + bytes([byte]))[-len(mark) :]
        self._place = _Place.BETWEEN
        if self._recent == mark:
            self._place, self._recent = _Place.STRING, b""
        elif byte == 0x7B:
            self._objects.append(frozenset())
            self._place = _Place.BEFORE_KEY
        elif byte == 0x5B:
            self._objects.append(None)
        elif byte in b"}]":
            self._close()
        elif byte == 0x2C and self._objects[-1] is not None:
            self._place = _Place.BEFORE_KEY
        elif byte not in _OUTSIDE and byte not in mark:
            self._place = _Place.OUTSIDE

    def _close(self) -> None:
        self._objects.pop()
        self._place = _Place.BETWEEN if self._objects else _Place.OUTSIDE

    def _before_key(self, byte: int) -> None:
        if byte == 0x7D:
            self._close()
        elif byte not in _SPACE:
            is_key = not self._spelling.opening or byte == self._spelling.opening[0]
            self._place = _Place.KEY if is_key else _Place.OUTSIDE
            self._key = b"" if self._spelling.opening else bytes([byte])

    def _in_key(self, byte: int) -> None:
        if self._ends(byte) and byte == self._spelling.closing[0]:
            keys = self._objects[-1] or frozenset()
            self._is_repeated = self._is_repeated or self._key in keys
            self._objects[-1] = keys | {self._key}
            self._key, self._place, self._recent = b"", _Place.BETWEEN, b""
        elif not self._spelling.opening and byte in b"{}[],\n":
            self._place = _Place.OUTSIDE
        else:
            self._key += bytes([byte])

    def _in_string(self, byte: int) -> None:
        if not self._ends(byte):
            return
        mark = self._spelling.mark
        self._recent = (self._recent + bytes([byte]))[-len(mark) :]
        if self._recent == mark:
            self._place, self._recent = _Place.BETWEEN, b""

    def _ends(self, byte: int) -> bool:
        """Whether a byte can end what it stands in: no backslash, and nothing after one."""
        if not self._spelling.has_escapes:
            return True
        is_plain = not self._is_escaped and byte != 0x5C
        self._is_escaped = not self._is_escaped and byte == 0x5C
        return is_plain
