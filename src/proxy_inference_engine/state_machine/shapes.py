"""What a watch knows of the values at one place of a schema, beside their grammar: plain data, made with the grammar.

No grammar can remember what was written. So where items have to differ it lets any item come again, and which are there
already is for a watch to know.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

MANY = 1 << 62  # as many as anybody could use up


class ItemTexts(Protocol):
    """The texts that an item may be, as JSON is written."""

    def num_from(self, begun: bytes) -> int:
        """How many of them begin so; MANY where nobody could use them up."""
        ...


@dataclass(slots=True, eq=False)
class Shape:
    """The values at one place. None: there is nothing to watch in those of a kind."""

    object: "ObjectShape | None" = None
    array: "ArrayShape | None" = None


@dataclass(slots=True, eq=False)
class ObjectShape:
    """Objects, by their keys as they are written."""

    names: dict[bytes, Shape | None] = field(default_factory=dict)
    others: Shape | None = None

    def at(self, key: bytes) -> Shape | None:
        """The place below a key."""
        return self.names.get(plain_key(key) if b"\\" in key else key, self.others)


@dataclass(slots=True, eq=False)
class ArrayShape:
    """Arrays, by the place of their items. `texts`: those of items that differ, by kind; None: they may be equal."""

    item: Shape | None = None
    texts: Mapping[str, ItemTexts] | None = None


class DifferentItems(NamedTuple):
    """The items of one array, scalars that differ, as far as they are written. Equal values have equal texts."""

    texts: Mapping[str, ItemTexts]
    used: tuple[bytes, ...] = ()
    near: tuple[bytes, ...] = ()  # those used that begin as the item does
    item: bytes = b""

    def with_byte(self, byte: int) -> "DifferentItems":
        item = self.item + bytes([byte])
        return self._replace(item=item, near=tuple(text for text in self.near if text.startswith(item)))

    def with_next(self) -> "DifferentItems":
        """The item is whole, and another begins."""
        used = (*self.used, self.item)
        return DifferentItems(self.texts, used, used)

    @property
    def is_repeated(self) -> bool:
        return self.item in self.near

    @property
    def is_stuck(self) -> bool:
        """Whether the item can only become one that is there already."""
        kind = kind_of_text(self.item)
        if not self.near and kind != "number":
            return False  # what the grammar lets begin can be ended; but it may write a zero with a sign
        texts = self.texts.get(kind)
        return texts is not None and texts.num_from(self.item) <= len(self.near)

    @property
    def is_full(self) -> bool:
        """Whether every item that there can be is there."""
        return sum(one.num_from(b"") for one in self.texts.values()) <= len(self.used)


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
