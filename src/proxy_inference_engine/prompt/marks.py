"""Finding what people wrote in a rendered chat: it is rendered a second time between marks nobody can guess."""

import re
import secrets
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, NamedTuple

from proxy_inference_engine.prompt.places import Place, inside, is_kept, is_own_key
from proxy_inference_engine.prompt.tokens import Span

Message = dict[str, Any]

_OPEN, _CLOSE = "1", "2"


class Layout(NamedTuple):
    """A rendered chat and the spans of it that people wrote."""

    text: str
    contents: tuple[Span, ...]
    final_end: int | None = None  # where the last message's content ends
    tail: str = ""  # what the template wrote after the last thing a person wrote


class Chat(NamedTuple):
    """What a template is given of people's texts."""

    messages: list[Message]
    tools: list[dict[str, Any]] | None = None


class Marks:
    """Digits between tildes: no template changes their case, trims them or escapes them."""

    def __init__(self, chat: Chat) -> None:
        nonce = _new_nonce()
        while any(nonce in text for text in strings(chat)):
            nonce = _new_nonce()
        self._nonce = nonce
        self._pattern = re.compile(rf"~{nonce}([{_OPEN}{_CLOSE}])(\d+)~")
        self._cover_pattern = re.compile(rf"~{nonce}\d+~")

    def wrap(self, chat: Chat, *, is_trimmed: bool) -> Chat:
        """Every string between two marks; with `is_trimmed` its outer white space stays outside of them."""

        def mark(text: str, number: int) -> str:
            start = len(text) - len(text.lstrip()) if is_trimmed else 0
            end = len(text.rstrip()) if is_trimmed else len(text)
            opening, closing = (f"~{self._nonce}{kind}{number}~" for kind in (_OPEN, _CLOSE))
            return f"{text[:start]}{opening}{text[start:end]}{closing}{text[end:]}"

        return _change_chat(chat, mark)

    def cover(self, chat: Chat) -> Chat:
        """Every string replaced by a mark."""
        return _change_chat(chat, lambda text, number: f"~{self._nonce}{number}~")

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
        return None if opened else Layout("".join(pieces), tuple(contents), final_end, tail=marked[end:])

    def tail_of_covered(self, covered: str) -> str:
        return self._cover_pattern.split(covered)[-1]


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


def unmarked(chat: Chat) -> Iterator[str]:
    """The strings that `wrap` and `cover` leave as they are: what templates need to recognise."""
    yield from _unmarked(chat.messages, Place.MESSAGE)
    yield from _unmarked(chat.tools, Place.SCHEMA)


def _unmarked(value: Any, place: Place) -> Iterator[str]:
    if isinstance(value, dict):
        for key, each in value.items():
            if is_own_key(key, place):
                yield key
            if is_kept(key, each, place):
                yield from strings(each)
            else:
                yield from _unmarked(each, inside(key, place))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _unmarked(each, place)


def _change_chat(chat: Chat, change: Callable[[str, int], str]) -> Chat:
    numbers = count()
    known: dict[str, str] = {}

    def changed(text: str) -> str:
        if not text.strip():
            return text
        if text not in known:
            number = next(numbers)
            if number == 0:  # it is looked for by its number, so no equal text may have the same
                return change(text, number)
            # Templates compare: a parameter's name with the names of those required.
            known[text] = change(text, number)
        return known[text]

    # From the end, so that the last message's content is number 0.
    messages = [_change(message, Place.MESSAGE, changed) for message in reversed(chat.messages)][::-1]
    return Chat(messages, _change(chat.tools, Place.SCHEMA, changed))


def _change(value: Any, place: Place, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {
            key if is_own_key(key, place) else change(key): each
            if is_kept(key, each, place)
            else _change(each, inside(key, place), change)
            for key, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [_change(each, place, change) for each in value]
    return value


def _new_nonce() -> str:
    return f"{secrets.randbelow(10**30):030}"
