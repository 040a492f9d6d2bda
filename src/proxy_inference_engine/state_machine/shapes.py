"""What a watch knows of the values at one place of a schema, beside their grammar: plain data, made with the grammar.

No grammar can remember what was written. So where items have to differ it lets any item come again, and which are there
already is for a watch to know.
"""

import json
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple, Protocol

MANY = 1 << 62  # as many as anybody could use up
MAX_OBJECTS = 1_000  # of one array, where they differ: each has to be looked at when another begins
_AFTER_ALL = b"\xff"  # in no text


class ItemTexts(Protocol):
    """The texts that an item may be, as JSON is written."""

    def num_from(self, begun: bytes) -> int:
        """How many of them begin so; MANY where nobody could use them up."""
        ...

    def is_narrow(self, text: bytes) -> bool:
        """Whether so few of them may begin as this one does, somewhere, that they could be used up."""
        ...


@dataclass(slots=True, eq=False)
class Shape:
    """The values at one place. None: there is nothing to watch in those of a kind."""

    object: "ObjectShape | None" = None
    array: "ArrayShape | None" = None
    keeps_keys: bool = False  # of the root: whether it or something below it does


@dataclass(slots=True, eq=False)
class ObjectShape:
    """Objects, by their keys as they are written, and those that have to be there.

    `only`: others than those named may not; these surely can, and where they are endless, there is always one more.
    """

    names: dict[bytes, Shape | None] = field(default_factory=dict)
    others: Shape | None = None
    needed: frozenset[bytes] = frozenset()
    only: frozenset[bytes] | None = None
    is_endless: bool = False

    @property
    def is_kept(self) -> bool:
        """Whether the grammar leaves it to a watch which keys are there."""
        return bool(self.needed) or self.only is not None

    def may_end(self, keys: Set[bytes]) -> bool:
        return self.needed <= keys

    def may_go_on(self, keys: Set[bytes], begun: bytes = b"") -> bool:
        """Whether another key surely can come, one that begins so where one has begun as the grammar lets it."""
        if self.only is None or any(name.startswith(begun) for name in self.only if name not in keys):
            return True
        if not begun:
            return self.is_endless
        return not any(key.startswith(begun) for key in keys if not self.is_endless or key in self.names)

    def at(self, key: bytes) -> Shape | None:
        """The place below a key."""
        return self.names.get(plain_key(key) if b"\\" in key else key, self.others)


@dataclass(slots=True, eq=False)
class ArrayShape:
    """Arrays, by the place of their items.

    `texts`: those of items that differ, by kind; None: they may be equal. `parts`: the properties by which objects
    among them differ, with the texts of each.
    """

    item: Shape | None = None
    texts: Mapping[str, ItemTexts] | None = None
    parts: Mapping[bytes, Mapping[str, ItemTexts]] | None = None


class DifferentItems(NamedTuple):
    """The items of one array, scalars that differ, as far as they are written. Equal values have equal texts.

    Copied for each token that is tried, so no step may cost more the more items there are.
    """

    texts: Mapping[str, ItemTexts]
    used: tuple[bytes, ...] = ()  # sorted
    narrow: tuple[bytes, ...] = ()  # those on whose way an item can get stuck, sorted
    first: int = 0  # of those used that begin as the item does
    last: int = 0  # the one after them
    item: bytes = b""

    def with_byte(self, byte: int) -> "DifferentItems":
        item = self.item + bytes([byte])
        first, last = _beginning_with(self.used, item, self.first, self.last)
        return DifferentItems(self.texts, self.used, self.narrow, first, last, item)

    def with_next(self) -> "DifferentItems":
        """The item is whole, and another begins. Those of kinds that nothing is known of may come again."""
        if kind_of_text(self.item) not in self.texts:
            return self._replace(item=b"", first=0, last=len(self.used))
        used = _with(self.used, self.item)
        narrow = _with(self.narrow, self.item) if self._is_narrow(self.item) else self.narrow
        return DifferentItems(self.texts, used, narrow, 0, len(used))

    def without(self, texts: Iterable[bytes]) -> "DifferentItems":
        """Before the first item, which has to be another than some."""
        used = sorted(text for text in texts if kind_of_text(text) in self.texts)
        return DifferentItems(self.texts, tuple(used), tuple(filter(self._is_narrow, used)), 0, len(used))

    def _is_narrow(self, text: bytes) -> bool:
        group = self.texts.get(kind_of_text(text))
        return group is not None and group.is_narrow(text)

    @property
    def near(self) -> tuple[bytes, ...]:
        """Those used that begin as the item does."""
        return self.used[self.first : self.last]

    @property
    def narrow_near(self) -> tuple[bytes, ...]:
        first, last = _beginning_with(self.narrow, self.item, 0, len(self.narrow))
        return self.narrow[first:last]

    def has(self, text: bytes) -> bool:
        at = bisect_left(self.used, text)
        return self.used[at : at + 1] == (text,)

    @property
    def is_repeated(self) -> bool:
        return self.has(self.item)

    @property
    def is_stuck(self) -> bool:
        """Whether the item can only become one that is there already."""
        kind, num_near = kind_of_text(self.item), self.last - self.first
        if not num_near and kind != "number":
            return False  # what the grammar lets begin can be ended; but it may write a zero with a sign
        texts = self.texts.get(kind)
        return texts is not None and texts.num_from(self.item) <= num_near

    @property
    def is_full(self) -> bool:
        """Whether every item that there can be is there."""
        return num_texts(self.texts) <= len(self.used)


class DifferentObjects(NamedTuple):
    """The objects of one array that differ, and one of them as far as it is written.

    Each has all parts with texts, in whatever order. A part may be as it is in others as long as what is still to come
    can tell more objects apart than there are of those. Parts without texts may be anything.
    """

    parts: Mapping[bytes, Mapping[str, ItemTexts]]
    before: tuple[Mapping[bytes, bytes], ...] = ()
    written: Mapping[bytes, bytes] = {}  # never changed
    key: bytes = b""  # of the part that is being written

    def at(self, key: bytes) -> "DifferentObjects":
        return self._replace(key=key)

    @property
    def items(self) -> DifferentItems | None:
        """The texts of the part that comes, without those it may not have; None: it is no part."""
        texts = self.parts.get(self.key)
        if not texts:
            return None if texts is None else DifferentItems({})
        left = num_objects({key: one for key, one in self.parts.items() if key != self.key and key not in self.written})
        if left >= MANY:
            return DifferentItems(texts)
        alike = (one for one in self.before if self.written.items() <= one.items())
        nums = Counter(one[self.key] for one in alike if self.key in one)
        return DifferentItems(texts).without([text for text, num in nums.items() if num >= left])

    def with_part(self, text: bytes) -> "DifferentObjects":
        return self._replace(written={**self.written, self.key: text})

    def with_next(self) -> "DifferentObjects":
        """The object is whole."""
        return DifferentObjects(self.parts, (*self.before, self.written))

    @property
    def is_full(self) -> bool:
        return min(num_objects(self.parts), MAX_OBJECTS) <= len(self.before)


def num_texts(texts: Mapping[str, ItemTexts]) -> int:
    return sum(one.num_from(b"") for one in texts.values())


def num_objects(parts: Mapping[bytes, Mapping[str, ItemTexts]]) -> int:
    """How many objects some parts tell apart; MANY where that is more than anybody could write."""
    return min(MANY, prod(num_texts(texts) for texts in parts.values() if texts))


def _with(texts: tuple[bytes, ...], text: bytes) -> tuple[bytes, ...]:
    at = bisect_left(texts, text)
    return (*texts[:at], text, *texts[at:])


def _beginning_with(texts: tuple[bytes, ...], begun: bytes, first: int, last: int) -> tuple[int, int]:
    first = bisect_left(texts, begun, first, last)
    return first, bisect_left(texts, begun + _AFTER_ALL, first, last)


def kind_of_text(text: bytes) -> str:
    """The kind of a scalar by the first byte of its text."""
    if text[:1] == b'"':
        return "string"
    return "other" if text[:1].isalpha() else "number"


def plain_key(key: bytes) -> bytes:
    """A key without escapes that it does not need."""
    try:
        return written_key(json.loads(b'"' + key + b'"', strict=False))
    except (ValueError, UnicodeDecodeError):
        return key


def written_key(name: str) -> bytes:
    return json.dumps(name, ensure_ascii=False)[1:-1].encode(errors="surrogatepass")
