"""What a watch knows of the values at one place of a schema, beside their grammar: plain data, made with the grammar.

No grammar can remember what was written. So where the order of keys is free it lets any key come at any time, and where
items have to differ any item: which are still missing, and which are there already, is for a watch to know.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

MANY = 1 << 62  # as many as anybody could use up


class Texts(Protocol):
    """The texts that an item may be, as JSON is written."""

    def num_from(self, begun: bytes) -> int:
        """How many of them begin so; MANY where nobody could use them up."""
        ...


class Keys(Protocol):
    """The keys that a pattern matches."""

    def has(self, text: bytes) -> bool:
        """Whether a key is one of them, with its first quotation mark."""
        ...


@dataclass(slots=True, eq=False)
class Shape:
    """The values at one place. None: nothing is known of those of a kind, and nothing has to be."""

    object: "ObjectShape | None" = None
    array: "ArrayShape | None" = None


@dataclass(slots=True, eq=False)
class ObjectShape:
    """Objects, by their keys as they are written. Free: the watch alone knows which keys are left, or needed."""

    names: dict[bytes, Shape | None] = field(default_factory=dict)
    patterns: list[tuple[Keys, Shape | None]] = field(default_factory=list)
    others: Shape | None = None
    is_free: bool = False
    required: frozenset[bytes] = frozenset()
    other_keys: Texts | None = None  # None: there are only the names

    def has_more(self, begun: bytes, keys: frozenset[bytes]) -> bool:
        """Whether a key that begins so can still become a new one."""
        if any(name.startswith(begun) for name in self.names.keys() - keys):
            return True
        return self.other_keys is not None and self.other_keys.num_from(b'"' + begun) > 0

    def at(self, key: bytes) -> Shape | None:
        key = plain_key(key) if b"\\" in key else key
        if key in self.names:
            return self.names[key]
        return next((one for keys, one in self.patterns if keys.has(b'"' + key)), self.others)


@dataclass(slots=True, eq=False)
class ArrayShape:
    """Arrays, by the places of their items. `items` None: they may be equal."""

    prefix: tuple[Shape | None, ...] = ()
    rest: Shape | None = None
    items: "Items | None" = None

    def at(self, index: int) -> Shape | None:
        return self.prefix[index] if index < len(self.prefix) else self.rest


@dataclass(frozen=True, slots=True)
class Items:
    """How items differ: by their text, by a text of their own that can always go on, or by one thing more in them."""

    texts: Mapping[str, Texts]  # by kind: string, number or other
    has_objects: bool = False  # or arrays
    key: bytes | None = None  # of the last property of an object that is always there, and can be any text

    def has_more(self, begun: bytes, near: Sequence[bytes], used: Collection[Any]) -> bool:
        """Whether a text that begins so can still become a new one. `near` are the used ones that begin so too."""
        kind = kind_of_text(begun)
        texts = self.texts.get(kind)
        if texts is None:
            return True
        if kind != "number":  # what the grammar lets begin can be ended
            return not near or texts.num_from(begun) > len(near)
        if b"." in begun and begun.endswith(b"0") and float(begun) in used:
            return False  # one more zero is the same number
        return texts.num_from(begun) > len(near)

    def has_another(self, num_used: int) -> bool:
        """Whether there is an item that was not used."""
        return self.has_objects or sum(one.num_from(b"") for one in self.texts.values()) > num_used


def kind_of_text(text: bytes) -> str:
    """The kind of a value by the first byte of its text."""
    first = text[:1]
    if first == b'"':
        return "string"
    if first in (b"{", b"["):
        return "object"
    return "other" if first.isalpha() else "number"


def plain_key(key: bytes) -> bytes:
    """A key without escapes that it does not need."""
    try:
        return written_key(json.loads(b'"' + key + b'"', strict=False))
    except (ValueError, UnicodeDecodeError):
        return key


def written_key(name: str) -> bytes:
    return json.dumps(name, ensure_ascii=False)[1:-1].encode(errors="surrogatepass")


def value_of(text: bytes) -> Any:
    """What makes the text of an item the same value as another: nothing of how it is written."""
    return text if text[:1] == b'"' else _frozen(json.loads(text, strict=False))


def _frozen(value: Any) -> Any:
    if isinstance(value, bool) or value is None:
        return ("word", value)
    if isinstance(value, list):
        return ("array", tuple(map(_frozen, value)))
    if isinstance(value, dict):
        return ("object", frozenset((name, _frozen(one)) for name, one in value.items()))
    return value
