"""What every API writes alike: JSON, whole or in pieces, identifiers, and names of places in a body."""

import json
import re
import secrets
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, overload

from proxy_inference_engine.errors import shorten

WireEvent = dict[str, Any]  # an event of a stream, as JSON has it

_ECHOED = re.compile(r"[A-Za-z0-9._-]{1,128}", re.ASCII)
_MAX_PARTS = 16
_ITEMS = 64  # of a long list that are written at a time
_CHARS = 65536  # of a long text


class LongList(Sequence[Any]):
    """Stands for a list in JSON. Its items are made when they are wanted, so that it need not be whole anywhere."""

    at_once = _ITEMS  # items that are written at a time

    @abstractmethod
    def item(self, number: int) -> Any: ...

    @overload
    def __getitem__(self, index: int) -> Any: ...

    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [self.item(number) for number in range(*index.indices(len(self)))]
        return self.item(range(len(self))[index])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, list | LongList) and len(self) == len(other) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # as a list

    def pieces(self) -> Iterator[str]:
        """The items as JSON, separated by commas, a few at a time."""
        for start in range(0, len(self), self.at_once):
            yield ("," if start else "") + dumps(self[start : start + self.at_once])[1:-1]


class JsonItems(LongList):
    """A list of so many items, each made by a function when it is written."""

    def __init__(self, num_items: int, make: Callable[[int], Any], *, at_once: int = _ITEMS) -> None:
        self._num_items = num_items
        self._make = make
        self.at_once = at_once

    def __len__(self) -> int:
        return self._num_items

    def item(self, number: int) -> Any:
        return self._make(number)


def _listed(value: object) -> list[Any]:
    if isinstance(value, LongList):
        return list(value)
    raise TypeError(f"{type(value).__name__} is no JSON")


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_listed).encode


def dumps(value: Any) -> str:
    """JSON: compact, UTF-8, never NaN, and never a character that a line reader breaks at."""
    text = _encode(value)
    return text if text.isascii() else _escape_breaks(text)


def pieces(value: Any) -> Iterator[str]:
    """What `dumps` writes, in pieces. For what is long: the C library would write it in one go, and hold up everybody
    in every thread meanwhile.
    """
    match value:
        case LongList():
            yield "["
            yield from value.pieces()
            yield "]"
        case dict():
            for number, (key, each) in enumerate(value.items()):
                yield ("," if number else "{") + dumps(key) + ":"
                yield from pieces(each)
            yield "}" if value else "{}"
        case list():
            for number, each in enumerate(value):
                yield "," if number else "["
                yield from pieces(each)
            yield "]" if value else "[]"
        case str() if len(value) > _CHARS:
            yield '"'
            for start in range(0, len(value), _CHARS):
                yield dumps(value[start : start + _CHARS])[1:-1]
            yield '"'
        case _:
            yield dumps(value)


def gathered(parts: Iterable[str], num_chars: int) -> Iterator[str]:
    """A text that comes in parts, in fewer pieces of about so many characters."""
    found: list[str] = []
    size = 0
    for part in parts:
        found.append(part)
        size += len(part)
        if size >= num_chars:
            yield "".join(found)
            found, size = [], 0
    if found:
        yield "".join(found)


def _escape_breaks(text: str) -> str:
    # Line breaks to str.splitlines(), which some clients cut a stream of events with, but not to JSON.
    return text.replace("\x85", "\\u0085").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def new_id(prefix: str) -> str:
    """Random, so that nobody can guess it."""
    return prefix + secrets.token_hex(16)


def request_id(wanted: bytes | None) -> str:
    """The client's X-Request-Id where it is harmless, else one of ours."""
    text = (wanted or b"").decode("latin-1")
    return text if _ECHOED.fullmatch(text) else new_id("req-")


def param_name(parts: Iterable[str | int]) -> str | None:
    """How an error names a place in a body: `messages[0].content`; None for the body itself.

    Keys are the client's, so they are cut short.
    """
    name = ""
    for part in list(parts)[:_MAX_PARTS]:
        if isinstance(part, int):
            name += f"[{part}]"
        else:
            name += ("." if name else "") + shorten(part)
    return name or None
