"""Stands beside a grammar and remembers what no grammar can: the keys of objects, and the items of arrays.

A watch reads an answer's bytes, and knows which tokens would write a key once more, end an object without a key that it
needs, or make two items equal that must differ. Values begin after texts that the grammar itself writes: their leads.
That items differ and keys do not run out is kept ahead of time: no token is let through after which only what is there
already could come. So there is always another way.
"""

import re
from collections.abc import Iterator, Mapping
from enum import Enum, auto
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from proxy_inference_engine.formats.syntax import WORD
from proxy_inference_engine.state_machine.keys import KeySpelling, KeyTokens, Leads
from proxy_inference_engine.state_machine.shapes import DifferentItems, DifferentObjects, ObjectShape, Shape, plain_key

_START = b"\xff"  # in no text
_WORD = rb"[A-Za-z0-9_.:-]{1,%d}"
_MAX_WORD = 64
_SPACE = b" \t\n\r"
_BESIDE_VALUES = _SPACE + b":"
_OUTSIDE = frozenset(_SPACE + b"{}[],:+-.0123456789eE" + b"truefalsenull")


class _Place(Enum):
    """Where a watch stands."""

    OUTSIDE = auto()  # of every value: it looks for a lead
    BEGIN = auto()  # right after a lead
    BETWEEN = auto()  # keys, strings and brackets
    BEFORE_KEY = auto()
    KEY = auto()
    STRING = auto()


_IN_KEYS = frozenset({_Place.BEFORE_KEY, _Place.KEY})


class _Frame(NamedTuple):
    """One object or array that is open."""

    keys: frozenset[bytes] | None  # None: an array
    object: ObjectShape | None = None
    child: Shape | None = None  # of the value that comes next
    items: DifferentItems | None = None  # of an array; or the part of an object that is being written
    objects: DifferentObjects | None = None  # of an array; or an object that is one of them


class ValueGuard:
    """What has to be watched of one grammar's values, by their leads. Shared by all answers of a request."""

    def __init__(self, leads: Leads, tokens: Mapping[KeySpelling, KeyTokens]) -> None:
        groups: dict[tuple[KeySpelling, Shape | None], list[str]] = {}
        for spelling, texts in leads.items():
            for lead, shape in texts.items():
                # White space before a value is skipped anyway.
                groups.setdefault((spelling, shape), []).append(lead.rstrip())
        self.values = list(groups)
        self.tokens = tokens
        for spelling in {spelling for spelling, shape in groups if shape is not None}:
            tokens[spelling].sort()
        every = [text for group in groups.values() for text in group]
        self.max_lead = max(len(_bytes(text)) + _MAX_WORD * text.count(WORD) for text in every)
        # Few bytes can end a lead: most tokens are not searched.
        self.last_bytes = frozenset(_bytes(text)[-1] for text in every)
        patterns = (b"|".join(map(_lead_pattern, dict.fromkeys(group))) for group in groups.values())
        self.pattern = re.compile(b"|".join(b"(" + pattern + b")" for pattern in patterns))

    def start(self) -> "ValueWatch":
        return ValueWatch(self)


def _lead_pattern(lead: str) -> bytes:
    return (_WORD % _MAX_WORD).join(re.escape(_bytes(part)) for part in lead.split(WORD))


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


class ValueWatch:
    """One answer's walk. Whatever is no object as the grammar writes it ends the value, and it looks for the next."""

    __slots__ = (
        "_after_end",
        "_frames",
        "_guard",
        "_is_escaped",
        "_key",
        "_place",
        "_recent",
        "_shape",
        "_spelling",
        "_tail",
        "is_repeated",
        "is_wrong",
    )

    def __init__(self, guard: ValueGuard) -> None:
        self._guard = guard
        self._spelling, self._shape = guard.values[0]
        self._place = _Place.OUTSIDE
        self._tail = _START
        self._frames: list[_Frame] = []
        self._key = b""
        self._recent = b""  # may be the beginning of a mark
        self._is_escaped = False
        self.is_repeated = False  # a key was written once more
        self.is_wrong = False  # items are equal that must differ, a key is missing, or nothing else is left
        self._after_end: NDArray[np.bool_] | None = None  # of the string it stands in; None: not worked out yet
        self._look(b"")

    def feed(self, token_id: int) -> None:
        self._read(self._guard.tokens[self._spelling].token_bytes(token_id))

    def held_ids(self, allowed: NDArray[np.bool_]) -> list[int]:
        """The tokens, of those allowed, that would write a key once more."""
        if self._place is _Place.OUTSIDE or not any(frame.keys for frame in self._frames):
            return []
        tokens = self._guard.tokens[self._spelling]
        repeating = (one for one, fork in self._tried(tokens.whole_ids, allowed) if fork.is_repeated)
        return [*repeating, *self._ending_ids(tokens)]

    def wrong_ids(self, allowed: NDArray[np.bool_]) -> list[int]:
        """The tokens, of those allowed, after which a value is wrong, or nothing else is left to come."""
        if self._shape is None or self._place is _Place.OUTSIDE:
            return []
        tokens = self._guard.tokens[self._spelling]
        items = self._frames[-1].items if self._frames else None
        if self._place is _Place.STRING and not self._is_escaped and (items is None or not items.near):
            return self._wrong_after(tokens, items, allowed)
        wrong = self._wrong_ending(tokens, allowed) if self._shape.keeps_keys else []
        if items is None:
            ids = tokens.ids_in_key if self._place in (_Place.STRING, _Place.KEY) else tokens.ids_elsewhere
            return wrong + [one for one, fork in self._tried(ids, allowed) if fork.is_wrong]
        ids = tokens.ids_in_string if self._place is _Place.STRING else tokens.ids_in_array
        wrong += [one for one, fork in self._tried(ids, allowed) if fork.is_wrong]
        others = {*_repeating_ids(items, tokens), *_sticking_ids(items, tokens)}.difference(wrong)
        return wrong + [one for one in others if allowed[one] and self._after(tokens.token_bytes(one)).is_wrong]

    def _wrong_after(self, tokens: KeyTokens, items: DifferentItems | None, allowed: NDArray[np.bool_]) -> list[int]:
        """Tokens that end a string that is like no other. What they do is worked out once, as long as it goes on."""
        ids = tokens.ids_after_string if items is None else tokens.ids_plainly_after
        if self._after_end is None:
            self._after_end = np.zeros((2, len(ids)), np.bool_)  # which are worked out, and which are wrong
        known, wrong = self._after_end
        may = allowed[ids]
        for at in np.flatnonzero(may & ~known).tolist():
            known[at], wrong[at] = True, self._after(tokens.token_bytes(ids[at])).is_wrong
        found: list[int] = ids[may & wrong].tolist()
        if items is not None:
            found += [one for one, fork in self._tried(tokens.ids_oddly_after, allowed) if fork.is_wrong]
        return found

    def _wrong_ending(self, tokens: KeyTokens, allowed: NDArray[np.bool_]) -> list[int]:
        """Tokens that end an object too early, or go on where no key is left, or to a key that is there."""
        is_inside = self._place in (_Place.STRING, _Place.KEY)
        tried = self._tried(tokens.ids_ending_string if is_inside else tokens.ids_ending, allowed)
        wrong_ids = [one for one, fork in tried if fork.is_wrong]
        top = self._frames[-1] if self._frames else None
        if top is None or top.object is None or top.object.only is None or self._place not in _IN_KEYS:
            return wrong_ids
        begun = self._spelling.opening + self._key if self._place is _Place.KEY else b""
        used = [self._spelling.opening + key + self._spelling.closing for key in top.keys or ()]
        return wrong_ids + self._wrong_along(
            [key[len(begun) :] for key in used if key.startswith(begun)], tokens, allowed
        )

    def _wrong_along(self, left: list[bytes], tokens: KeyTokens, allowed: NDArray[np.bool_]) -> list[int]:
        """Tokens on the way to texts that are there already, after which there is no other way."""
        if self._place is not _Place.KEY:
            left = left + [b" " + text for text in left]
        along = {each for text in left for each in tokens.along(text) if allowed[each]}
        return [one for one in along if self._after(tokens.token_bytes(one)).is_wrong]

    def _ending_ids(self, tokens: KeyTokens) -> Iterator[int]:
        """Tokens that would end the key that is being written as one that is there already."""
        is_bare_start = self._place is _Place.BEFORE_KEY and not self._spelling.opening
        if self._place is _Place.KEY or is_bare_start:
            keys = self._frames[-1].keys or frozenset()
            if len(keys) < len(tokens.endings):
                for key in keys:
                    if key.startswith(self._key):
                        yield from tokens.endings.get(key[len(self._key) :], ())
            else:
                for rest, token_ids in tokens.endings.items():
                    yield from token_ids if self._key + rest in keys else ()

    def _tried(self, token_ids: NDArray[np.intp], allowed: NDArray[np.bool_]) -> Iterator[tuple[int, "ValueWatch"]]:
        """The tokens, of those given, that are allowed, and the walk after each."""
        text = self._guard.tokens[self._spelling].token_bytes
        return ((one, self._after(text(one))) for one in token_ids[allowed[token_ids]].tolist())

    def _after(self, text: bytes) -> "ValueWatch":
        """The walk after a token's text."""
        fork = ValueWatch.__new__(ValueWatch)  # copy.copy would take ten times as long
        fork._guard, fork._spelling, fork._shape, fork._place = self._guard, self._spelling, self._shape, self._place
        fork._frames, fork._key, fork._tail = self._frames.copy(), self._key, self._tail
        fork._recent, fork._is_escaped = self._recent, self._is_escaped
        fork.is_repeated = fork.is_wrong = False
        fork._after_end = None
        fork._read(text)
        return fork

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
        self._spelling, self._shape = self._guard.values[found.lastindex - 1]
        self._tail = self._recent = self._key = b""
        self._is_escaped = False
        into = self._spelling.leads_into_object
        self._frames = [_Frame(frozenset())] if into else []
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
            self._place, self._recent, self._after_end = _Place.STRING, b"", None
            self._add(byte)
        elif byte in b"{[":
            self._open(byte)
        elif byte in b"}]":
            self._close()
        elif byte == 0x2C:
            self._next()
        elif byte not in _OUTSIDE and byte not in mark:
            self._place = _Place.OUTSIDE
        elif byte not in _BESIDE_VALUES:
            self._add(byte)

    def _open(self, byte: int) -> None:
        shape = self._frames[-1].child if self._frames else self._shape
        if byte == 0x7B:
            objects = self._frames[-1].objects if self._frames and self._frames[-1].keys is None else None
            self.is_wrong = self.is_wrong or (objects is not None and objects.is_full)
            self._frames.append(_Frame(frozenset(), None if shape is None else shape.object, objects=objects))
            self._place = _Place.BEFORE_KEY
            return
        array = None if shape is None else shape.array
        if array is None:
            self._frames.append(_Frame(None))
        else:
            items = None if array.texts is None else DifferentItems(array.texts)
            objects = None if array.parts is None else DifferentObjects(array.parts)
            self._frames.append(_Frame(None, None, array.item, items, objects))

    def _next(self) -> None:
        """A comma: there is another item, or another key."""
        top = self._frames[-1]
        if top.keys is not None:
            self._end_part()
            self._place = _Place.BEFORE_KEY
            self.is_wrong = self.is_wrong or (top.object is not None and not top.object.may_go_on(top.keys))
        elif top.items is not None:
            items = top.items.with_next() if top.items.item else top.items
            is_full = items.is_full and (top.objects is None or top.objects.is_full)
            self.is_wrong = self.is_wrong or top.items.is_repeated or is_full
            self._frames[-1] = top._replace(items=items)

    def _end_part(self) -> None:
        """A value of an object is whole, which may be a part that tells it from others."""
        top = self._frames[-1]
        if top.keys is not None and top.items is not None and top.objects is not None:
            self.is_wrong = self.is_wrong or top.items.is_repeated
            self._frames[-1] = top._replace(items=None, objects=top.objects.with_part(top.items.item))

    def _close(self) -> None:
        self._end_part()
        top = self._frames.pop()
        if top.keys is not None and top.objects is not None:
            self._frames[-1] = self._frames[-1]._replace(objects=top.objects.with_next())
        is_early = top.object is not None and top.keys is not None and not top.object.may_end(top.keys)
        self.is_wrong = self.is_wrong or is_early or (top.items is not None and top.items.is_repeated)
        self._place = _Place.BETWEEN if self._frames else _Place.OUTSIDE

    def _add(self, byte: int, *, is_end: bool = False) -> None:
        """Another byte of a scalar, which may be an item of those that differ."""
        top = self._frames[-1]
        if top.items is not None:
            items = top.items.with_byte(byte)
            self.is_wrong = self.is_wrong or (items.is_repeated if is_end else items.is_stuck)
            self._frames[-1] = top._replace(items=items)

    def _before_key(self, byte: int) -> None:
        if byte == 0x7D:
            self._close()
        elif byte not in _SPACE:
            is_key = not self._spelling.opening or byte == self._spelling.opening[0]
            self._place = _Place.KEY if is_key else _Place.OUTSIDE
            self._key = b"" if self._spelling.opening else bytes([byte])

    def _in_key(self, byte: int) -> None:
        if self._ends(byte) and byte == self._spelling.closing[0]:
            top = self._frames[-1]
            keys = top.keys or frozenset()
            self.is_repeated = self.is_repeated or self._key in keys
            if top.object is not None and top.object.only is not None:
                self.is_wrong = self.is_wrong or self._key in keys
            child = None if top.object is None else top.object.at(self._key)
            objects = None if top.objects is None else top.objects.at(plain_key(self._key))
            items = None if objects is None else objects.items
            self._frames[-1] = _Frame(keys | {self._key}, top.object, child, items, objects)
            self._key, self._place, self._recent = b"", _Place.BETWEEN, b""
        elif not self._spelling.opening and byte in b"{}[],\n":
            self._place = _Place.OUTSIDE
        else:
            self._key += bytes([byte])
            top = self._frames[-1]
            if top.object is not None and not top.object.may_go_on(top.keys or frozenset(), self._key):
                self.is_wrong = True

    def _in_string(self, byte: int) -> None:
        is_end = False
        if self._ends(byte):
            mark = self._spelling.mark
            self._recent = (self._recent + bytes([byte]))[-len(mark) :]
            if self._recent == mark:
                self._place, self._recent, is_end = _Place.BETWEEN, b"", True
        self._add(byte, is_end=is_end)

    def _ends(self, byte: int) -> bool:
        """Whether a byte can end what it stands in: no backslash, and nothing after one."""
        if not self._spelling.has_escapes:
            return True
        is_plain = not self._is_escaped and byte != 0x5C
        self._is_escaped = not self._is_escaped and byte == 0x5C
        return is_plain


def _repeating_ids(items: DifferentItems, tokens: KeyTokens) -> Iterator[int]:
    """Tokens that may end a string as one that is there already; no more are looked at than the vocabulary has."""
    before = (b"",) if items.item else (b"", b" ")
    if items.last - items.first < len(tokens.endings):
        for text in items.near:
            for space in before:
                yield from tokens.endings.get(space + text[len(items.item) : -1], ())
    else:
        for rest, token_ids in tokens.endings.items():
            text = items.item + rest if items.item else rest.lstrip(_SPACE)
            yield from token_ids if items.has(text + b'"') else ()


def _sticking_ids(items: DifferentItems, tokens: KeyTokens) -> Iterator[int]:
    """Tokens on the way to an item that is there already, where another way may have an end."""
    for text in items.narrow_near:
        if text != items.item:  # a number that may go on: what ends it is tried anyway
            rest = text[len(items.item) :]
            yield from tokens.along(rest)
            yield from tokens.along(b" " + rest) if not items.item else ()
