"""Stands beside a grammar and remembers what no grammar can: the keys of open objects, and the items of arrays.

A watch reads an answer's bytes, and knows which tokens would write a key once more, end an object that lacks one, or
make two items equal that must differ. Values begin after texts that the grammar itself writes: their leads.
"""

import json
import re
from collections.abc import Iterator, Mapping
from enum import Enum, auto
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from proxy_inference_engine.formats.syntax import WORD
from proxy_inference_engine.state_machine.keys import SOME_DIGITS, SOME_TEXT, KeySpelling, KeyTokens, Leads
from proxy_inference_engine.state_machine.shapes import ArrayShape, Items, ObjectShape, Shape, value_of, written_key

_START = b"\xff"  # in no text
_WORD = rb"[A-Za-z0-9_.:-]{1,%d}"
_MAX_WORD = 64
_SPACE = b" \t\n\r"
_OUTSIDE = frozenset(_SPACE + b"{}[],:+-.0123456789eE" + b"truefalsenull" + bytes([SOME_DIGITS]))
_OWN = frozenset(_SPACE + b",]")
_MAX_FORKS = 256


class _Place(Enum):
    """Where a watch stands."""

    OUTSIDE = auto()  # of every value: it looks for a lead
    BEGIN = auto()  # right after a lead
    BETWEEN = auto()  # keys, strings and brackets
    BEFORE_KEY = auto()
    KEY = auto()
    STRING = auto()


class _Frame(NamedTuple):
    """One object or array that is open."""

    keys: frozenset[bytes] | None  # None: an array
    object: ObjectShape | None = None
    array: ArrayShape | None = None
    child: Shape | None = None  # of the value that comes next
    key: bytes = b""  # the last one
    index: int = 0
    # Of an array whose items differ:
    item: bytes = b""  # as far as it is written
    texts: tuple[bytes, ...] = ()  # of those before
    values: frozenset[Any] = frozenset()
    near: tuple[bytes, ...] = ()  # texts that begin as the item does

    @property
    def items(self) -> Items | None:
        return None if self.array is None else self.array.items


class Guard:
    """What has to be watched of one grammar's values, by their leads. Shared by all answers of a request."""

    def __init__(self, leads: Leads, tokens: Mapping[KeySpelling, KeyTokens]) -> None:
        groups: dict[tuple[KeySpelling, Shape | None], list[str]] = {}
        for spelling, texts in leads.items():
            for lead, shape in texts.items():
                # White space before a value is skipped anyway.
                groups.setdefault((spelling, shape), []).append(lead.rstrip())
        self.values = list(groups)
        self.tokens = tokens
        every = [text for group in groups.values() for text in group]
        self.max_lead = max(len(_bytes(text)) + _MAX_WORD * text.count(WORD) for text in every)
        # Few bytes can end a lead: most tokens are not searched.
        self.last_bytes = frozenset(_bytes(text)[-1] for text in every)
        patterns = (b"|".join(map(_lead_pattern, dict.fromkeys(group))) for group in groups.values())
        self.pattern = re.compile(b"|".join(b"(" + pattern + b")" for pattern in patterns))

    def start(self) -> "Watch":
        return Watch(self)


def _lead_pattern(lead: str) -> bytes:
    return (_WORD % _MAX_WORD).join(re.escape(_bytes(part)) for part in lead.split(WORD))


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


class Watch:
    """One answer's walk. Whatever is no object as the grammar writes it ends the value, and it looks for the next."""

    __slots__ = (
        "_frames",
        "_guard",
        "_held",
        "_is_escaped",
        "_key",
        "_num_differing",
        "_place",
        "_recent",
        "_shape",
        "_spelling",
        "_tail",
        "is_broken",
        "is_doubtful",
    )

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._spelling, self._shape = guard.values[0]
        self._place = _Place.OUTSIDE
        self._tail = _START
        self._frames: list[_Frame] = []
        self._num_differing = 0  # open arrays whose items differ
        self._key = b""
        self._recent = b""  # may be the beginning of a mark
        self._is_escaped = False
        self.is_broken = False  # something was written that had to be held back
        self.is_doubtful = False  # or it could not be told, as not all is known of what was written
        self._held: list[int] | None = None  # what is held back as long as a string goes on
        self._look(b"")

    def feed(self, token_id: int) -> None:
        self._read(self._guard.tokens[self._spelling].token_bytes(token_id))

    # Which tokens are held back

    def held_ids(self, allowed: NDArray[np.bool_]) -> list[int]:
        """Of the tokens that are allowed, those that would make the value wrong."""
        if not self._is_concerned:
            return self._repeating(allowed) if any(frame.keys for frame in self._frames) else []
        if self._place is not _Place.STRING or self._is_escaped or self._num_differing:
            return self._breaking(allowed)
        if self._held is None:
            # It has to hold, too, for tokens that are allowed only later in the string.
            self._held = self._breaking(np.ones_like(allowed))
        return self._held

    @property
    def _is_concerned(self) -> bool:
        """Whether there is something to see to but that no key is repeated, here or in what may begin here."""
        if self._place is _Place.BEGIN:
            return self._shape is not None
        return self._place is not _Place.OUTSIDE and any(
            frame.object is not None or frame.array is not None for frame in self._frames
        )

    def _repeating(self, allowed: NDArray[np.bool_]) -> list[int]:
        if self._place is _Place.OUTSIDE:
            return []
        tokens = self._guard.tokens[self._spelling]
        return [*self._broken_by(tokens.whole_ids, allowed), *self._ending_ids(tokens)]

    def _breaking(self, allowed: NDArray[np.bool_]) -> list[int]:
        tokens = self._guard.tokens[self._spelling]
        if self._is_bound_to_few or np.count_nonzero(allowed) <= _MAX_FORKS:
            return list(self._broken_by(np.flatnonzero(allowed), np.ones_like(allowed)))
        ending = tokens.ending_ids
        known = self._known()
        if self._is_escaped or known is None:
            return list(self._broken_by(ending, allowed))
        forms = tokens.in_string if self._place in (_Place.STRING, _Place.KEY) else tokens.outside
        held = [*self._repeating(allowed), *self._broken_by(forms.special_ids, allowed)]
        for form, ids in forms.allowed(allowed):
            fork = self._fork(form)
            if fork.is_broken:
                held += ids.tolist()
            elif fork.is_doubtful:
                held += self._broken_by(ids, allowed)
        along = {token_id for text in known for token_id in tokens.along(text)}
        return [*held, *self._broken_by(np.array(list(along), np.intp), allowed)]

    @property
    def _is_bound_to_few(self) -> bool:
        """Whether what comes next is a name of a schema, or a number: no form tells one from another."""
        if not self._frames:
            return False
        top = self._frames[-1]
        if self._place in (_Place.BEFORE_KEY, _Place.KEY):
            return top.object is not None and top.object.is_free and top.object.other_keys is None
        return self._place is _Place.BETWEEN and top.items is not None and "number" in top.items.texts

    def _known(self) -> list[bytes] | None:
        """Texts that must not come next, or only in part; None where it cannot be told which they are."""
        if not self._num_differing:
            return []
        top = self._frames[-1]
        if top.items is not None:
            return [text[len(top.item) :] for text in top.near]
        above = self._frames[-2] if len(self._frames) > 1 else top
        if self._place is not _Place.STRING or above.items is None or above.items.key != top.key:
            return []
        try:
            begun = dict(value_of(above.item + b'"}')[1])
        except (TypeError, ValueError):
            return None
        name = next(reversed(json.loads(above.item + b'"}')))
        text = begun.pop(name)
        rest = frozenset(begun.items())
        ends = (dict(one[1])[name] for one in above.values if one[0] == "object" and rest <= one[1])
        return [written_key(end[len(text) :]) + b'"' for end in ends if end.startswith(text)]

    def _ending_ids(self, tokens: KeyTokens) -> Iterator[int]:
        """Tokens that would end the key that is being written as one that is there already."""
        is_bare_start = self._place is _Place.BEFORE_KEY and not self._spelling.opening
        if self._place is _Place.KEY or is_bare_start:
            for key in self._frames[-1].keys or ():
                if key.startswith(self._key):
                    yield from tokens.beginning_with(key[len(self._key) :] + self._spelling.closing)

    def _broken_by(self, token_ids: NDArray[np.intp], allowed: NDArray[np.bool_]) -> Iterator[int]:
        """Of some tokens those that are allowed and would make the value wrong."""
        token_bytes = self._guard.tokens[self._spelling].token_bytes
        chosen = token_ids[allowed[token_ids]].tolist()
        return (token_id for token_id in chosen if self._fork(token_bytes(token_id)).is_broken)

    def _fork(self, piece: bytes) -> "Watch":
        fork = Watch.__new__(Watch)  # copy.copy would take ten times as long
        fork._guard, fork._spelling, fork._shape, fork._place = self._guard, self._spelling, self._shape, self._place
        fork._frames, fork._key, fork._tail = self._frames.copy(), self._key, self._tail
        fork._recent, fork._is_escaped, fork.is_broken = self._recent, self._is_escaped, False
        fork._num_differing, fork._held, fork.is_doubtful = self._num_differing, None, False
        fork._read(piece)
        return fork

    # Reading

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
        self._is_escaped, self._num_differing, self._held = False, 0, None
        into = self._spelling.leads_into_object
        self._frames = [_Frame(frozenset())] if into else []
        self._place = _Place.BEFORE_KEY if into else _Place.BEGIN
        self._read(text[found.end() :])

    def _step(self, byte: int) -> None:
        if self._num_differing:
            self._note(byte)
        if self._place is _Place.STRING:
            self._in_string(byte)
            return
        self._held = None
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

    def _between(self, byte: int) -> None:
        mark = self._spelling.mark
        self._recent = (self._recent + bytes([byte]))[-len(mark) :]
        self._place = _Place.BETWEEN
        if self._recent == mark:
            self._place, self._recent = _Place.STRING, b""
        elif byte == 0x7B:
            self._open(is_array=False)
            self._place = _Place.BEFORE_KEY
        elif byte == 0x5B:
            self._open(is_array=True)
        elif byte in b"}]":
            self._close()
        elif byte == 0x2C:
            self._next()
        elif byte not in _OUTSIDE and byte not in mark:
            self._place = _Place.OUTSIDE
        elif self._frames and self._frames[-1].item:
            self._check_begun()

    def _open(self, is_array: bool) -> None:
        shape = self._frames[-1].child if self._frames else self._shape
        if not is_array:
            self._frames.append(_Frame(frozenset(), None if shape is None else shape.object))
            return
        array = None if shape is None else shape.array
        self._frames.append(_Frame(None, array=array, child=None if array is None else array.at(0)))
        self._num_differing += array is not None and array.items is not None

    def _next(self) -> None:
        """A comma: there is another item, or another key."""
        top = self._frames[-1]
        if top.keys is not None:
            if top.object is not None and top.object.is_free:
                self.is_broken = self.is_broken or not top.object.has_more(b"", top.keys)
            self._place = _Place.BEFORE_KEY
            return
        if top.array is None:
            return
        index = top.index + 1
        self._frames[-1] = top = top._replace(index=index, child=top.array.at(index))
        if top.items is not None:
            self._take_item(top)
            self.is_broken = self.is_broken or not top.items.has_another(index)

    def _take_item(self, frame: _Frame) -> None:
        """The item of an array whose items differ is whole."""
        value = self._check_value(frame)
        texts = (*frame.texts, frame.item)
        self._frames[-1] = frame._replace(item=b"", texts=texts, values=frame.values | {value}, near=texts)

    def _close(self) -> None:
        top = self._frames[-1]
        if top.object is not None and top.object.is_free:
            self.is_broken = self.is_broken or not top.object.required <= (top.keys or frozenset())
        if top.items is not None:
            self._num_differing -= 1
            if top.item:
                self._check_value(top)
        self._frames.pop()
        self._place = _Place.BETWEEN if self._frames else _Place.OUTSIDE
        if self._frames and self._frames[-1].items is not None:
            self._check_value(self._frames[-1])

    def _before_key(self, byte: int) -> None:
        if byte == 0x7D:
            self._close()
        elif byte not in _SPACE:
            is_key = not self._spelling.opening or byte == self._spelling.opening[0]
            self._place = _Place.KEY if is_key else _Place.OUTSIDE
            self._key = b"" if self._spelling.opening else bytes([byte])

    def _in_key(self, byte: int) -> None:
        top = self._frames[-1]
        if self._ends(byte) and byte == self._spelling.closing[0]:
            keys = top.keys or frozenset()
            self.is_broken = self.is_broken or self._key in keys
            child = None if top.object is None else top.object.at(self._key)
            self._frames[-1] = top._replace(keys=keys | {self._key}, key=self._key, child=child)
            self._key, self._place, self._recent = b"", _Place.BETWEEN, b""
            return
        if not self._spelling.opening and byte in b"{}[],\n":
            self._place = _Place.OUTSIDE
            return
        self._key += bytes([byte])
        if top.object is not None and top.object.is_free and self._key[-1] != SOME_TEXT:
            self.is_broken = self.is_broken or not top.object.has_more(self._key, top.keys or frozenset())

    def _in_string(self, byte: int) -> None:
        if not self._ends(byte):
            if self._num_differing:
                self._check_begun()
            return
        mark = self._spelling.mark
        self._recent = (self._recent + bytes([byte]))[-len(mark) :]
        if self._recent == mark:
            self._place, self._recent, self._held = _Place.BETWEEN, b"", None
            if self._num_differing:
                self._check_string()
        elif self._num_differing:
            self._check_begun()

    def _ends(self, byte: int) -> bool:
        """Whether a byte can end what it stands in: no backslash, and nothing after one."""
        if not self._spelling.has_escapes:
            return True
        is_plain = not self._is_escaped and byte != 0x5C
        self._is_escaped = not self._is_escaped and byte == 0x5C
        return is_plain

    # Items that differ

    def _note(self, byte: int) -> None:
        """Add a byte to the items that it belongs to."""
        last = len(self._frames) - 1
        for index, frame in enumerate(self._frames):
            if frame.items is None:
                continue
            if index == last and self._place is _Place.BETWEEN and (byte in _OWN or byte == SOME_DIGITS):
                continue
            item = frame.item + bytes([byte])
            near = tuple(text for text in frame.near if text.startswith(item))
            self._frames[index] = frame._replace(item=item, near=near)

    def _check_value(self, frame: _Frame) -> Any:
        """The value of an item that is whole, which must be a new one."""
        try:
            value = value_of(frame.item)
        except ValueError:  # only a part of a form is known
            self.is_doubtful = self.is_doubtful or bool(frame.values)
            return frame.item
        self.is_broken = self.is_broken or value in frame.values
        return value

    def _check_begun(self) -> None:
        """Whether what is written of a string or a number can still become an item that is not there."""
        top = self._frames[-1]
        if top.items is not None and not top.items.has_more(top.item, top.near, top.values):
            self.is_broken = True

    def _check_string(self) -> None:
        """A string is whole: it must not be an item once more, nor the last text that could tell two objects apart."""
        top = self._frames[-1]
        if top.items is not None:
            self.is_broken = self.is_broken or top.item in top.near
        above = self._frames[-2] if len(self._frames) > 1 else None
        if above is None or above.items is None or above.items.key != top.key or top.keys is None:
            return
        try:
            begun = value_of(above.item + b"}")[1]
        except ValueError:
            return  # a form: which of its tokens are meant is looked at by their texts
        self.is_broken = self.is_broken or any(one[0] == "object" and begun <= one[1] for one in above.values)
