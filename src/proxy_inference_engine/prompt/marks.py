"""Finding what people wrote in a rendered chat: it is rendered a second time between marks nobody can guess."""

import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any, NamedTuple

from proxy_inference_engine.prompt.tokens import Span

Message = dict[str, Any]

_OPEN, _CLOSE = "1", "2"
_STRUCTURE = frozenset({"id", "role", "tool_call_id", "type"})  # templates compare and count these


class Layout(NamedTuple):
    """A rendered chat and the spans of it that people wrote."""

    text: str
    contents: tuple[Span, ...]
    final_end: int | None = None  # where the last message's content ends


class Marks:
    """Digits between tildes: no template changes their case, trims them or escapes them."""

    def __init__(self, messages: Sequence[Message]) -> None:
        nonce = _new_nonce()
        while any(nonce in text for text in strings(messages)):
            nonce = _new_nonce()
        self._nonce = nonce
        self._pattern = re.compile(rf"~{nonce}([{_OPEN}{_CLOSE}])(\d+)~")

    def wrap(self, messages: Sequence[Message], *, is_trimmed: bool) -> list[Message]:
        """Every string between two marks; with `is_trimmed` its outer white space stays outside of them."""
        numbers = count()

        def mark(text: str) -> str:
            if not text.strip():
                return text
            number = next(numbers)
            start = len(text) - len(text.lstrip()) if is_trimmed else 0
            end = len(text.rstrip()) if is_trimmed else len(text)
            opening, closing = (f"~{self._nonce}{kind}{number}~" for kind in (_OPEN, _CLOSE))
            return f"{text[:start]}{opening}{text[start:end]}{closing}{text[end:]}"

        # From the end, so that the last message's content is number 0.
        return [_change(message, mark) for message in reversed(messages)][::-1]

    def cover(self, messages: Sequence[Message]) -> list[Message]:
        """Every string replaced by a mark."""
        covered: list[Message] = _change(list(messages), lambda text: f"~{self._nonce}~" if text.strip() else text)
        return covered

    def read(self, marked: str) -> Layout | None:
        """The text without marks and what stood between them; None when a template tore a pair apart."""
        pieces: list[str] = []
        contents: list[Span] = []
        final_end = None
        opened: tuple[str, int] | None = None
        end = num_chars = 0
        for match in self._pattern.finditer(marked):
            pieces.append(marked[end : match.start()])
            num_chars += match.start() - end
            end = match.end()
            kind, number = match.groups()
            if kind == _OPEN and opened is None:
                opened = (number, num_chars)
            elif kind == _CLOSE and opened is not None and opened[0] == number:
                contents.append(Span(opened[1], num_chars))
                final_end = num_chars if number == "0" else final_end
                opened = None
            else:
                return None
        pieces.append(marked[end:])
        return None if opened else Layout("".join(pieces), tuple(contents), final_end)


def strings(value: Any) -> Iterator[str]:
    """Every string in a JSON value, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from strings(list(value))
        yield from strings(list(value.values()))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from strings(each)


def unmarked(value: Any) -> Iterator[str]:
    """The strings that `wrap` and `cover` leave as they are: keys, and what templates need to recognise."""
    if isinstance(value, dict):
        yield from value
        for key, each in value.items():
            yield from strings(each) if key in _STRUCTURE else unmarked(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from unmarked(each)


def _change(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {key: each if key in _STRUCTURE else _change(each, change) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_change(each, change) for each in value]
    return value


def _new_nonce() -> str:
    return f"{secrets.randbelow(10**30):030}"
