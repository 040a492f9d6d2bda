"""What people wrote in a rendered chat: it is rendered a second time between marks nobody can guess.

Some strings of a message or a tool have to stay as they are, because templates look for them; `ChatPart` says which.
"""

import json
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from enum import Enum, auto
from itertools import count, groupby
from typing import Any, NamedTuple

from proxy_inference_engine.formats import ToolPlace
from proxy_inference_engine.runners.base import ImageEncoder, Tokenizer

TemplateMessage = dict[str, Any]

_DAY = "%d %B %Y"  # as templates ask for it
_OPEN, _CLOSE = "1", "2"
# What follows the nonce. It is searched for as it is: a pattern with it in it would be compiled for each prompt.
_EDGE = re.compile(rf"([{_OPEN}{_CLOSE}])(\d+)~")
_COVER = re.compile(r"\d+~")
_STRUCTURE = frozenset({"id", "role", "tool_call_id", "type"})  # templates compare and count these
_TYPES = frozenset({"array", "boolean", "function", "integer", "null", "number", "object", "string"})
_NAMES = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"})
_DATA = frozenset({"arguments", "const", "default", "enum", "example", "examples"})
_KEYWORDS = """
$ref additionalProperties allOf anyOf description format function items maxItems maxLength maximum minItems minLength
minimum name nullable oneOf parameters pattern prefixItems required title type
"""
_OWN_KEYS = frozenset(_KEYWORDS.split()) | _NAMES | _DATA


class TextSpan(NamedTuple):
    """The characters text[start:end] of a text."""

    start: int
    end: int


class RenderedChat(NamedTuple):
    """A rendered chat and the spans of it that people wrote."""

    text: str
    contents: tuple[TextSpan, ...]
    final_end: int | None = None  # where the last message's content ends
    tail: str = ""  # what the template wrote after the last thing a person wrote


class Chat(NamedTuple):
    """What a template is given of people's texts."""

    messages: list[TemplateMessage]
    tools: list[dict[str, Any]] | None = None

    def variables(self, place: ToolPlace, now: datetime, *, is_absent: bool) -> dict[str, Any]:
        """The chat as a template's variables, tools where it looks for them; with `is_absent`, none are named."""
        if place is ToolPlace.FUNCTIONS:
            return {"messages": self.messages, "functions": _functions(self.tools), "datetime": now.strftime(_DAY)}
        if place is ToolPlace.SYSTEM and self.tools:
            tools = {"tools": _functions(self.tools)}
            return {"messages": [each | tools if each["role"] == "system" else each for each in self.messages]}
        return {"messages": self.messages, **({} if is_absent and not self.tools else {"tools": self.tools})}


def _functions(tools: list[dict[str, Any]] | None) -> str:
    return json.dumps([each["function"] for each in tools or ()], ensure_ascii=False)


class ChatPart(Enum):
    """What a value belongs to: that decides which of its strings a template looks for. All others are people's."""

    MESSAGE = auto()  # and its calls: every key is ours
    SCHEMA = auto()  # and the tool around it: keywords are recognised, other keys are people's
    NAMES = auto()  # of parameters or definitions: keys are people's, their values schemas
    DATA = auto()  # anything: all of it is people's


class Marks:
    """Digits between tildes: no template changes their case, trims them or escapes them."""

    def __init__(self, chat: Chat) -> None:
        nonce = _new_nonce()
        while any(nonce in text for text in strings(chat)):
            nonce = _new_nonce()
        self._start = f"~{nonce}"

    def wrap(self, chat: Chat, *, is_trimmed: bool) -> Chat:
        """Every string between two marks; with `is_trimmed` its outer white space stays outside of them."""

        def mark(text: str, number: int) -> str:
            start = len(text) - len(text.lstrip()) if is_trimmed else 0
            end = len(text.rstrip()) if is_trimmed else len(text)
            opening, closing = (f"{self._start}{kind}{number}~" for kind in (_OPEN, _CLOSE))
            return f"{text[:start]}{opening}{text[start:end]}{closing}{text[end:]}"

        return _change_chat(chat, mark)

    def cover(self, chat: Chat) -> Chat:
        """Every string replaced by a mark."""
        return _change_chat(chat, lambda text, number: f"{self._start}{number}~")

    def read(self, marked: str) -> RenderedChat | None:
        """The text without marks and what stood between them; None when a template tore a pair apart."""
        pieces: list[str] = []
        contents: list[TextSpan] = []
        final_end = None
        opened: tuple[str, int] | None = None
        end = num_chars = 0
        for start, match in self._found(marked, _EDGE):
            pieces.append(marked[end:start])
            num_chars += start - end
            end = match.end()
            kind, number = match.groups()
            if kind == _OPEN and opened is None:
                opened = (number, num_chars)
            elif kind == _CLOSE and opened is not None and opened[0] == number:
                contents.append(TextSpan(opened[1], num_chars))
                final_end = num_chars if number == "0" else final_end
                opened = None
            else:
                return None
        pieces.append(marked[end:])
        return None if opened else RenderedChat("".join(pieces), tuple(contents), final_end, tail=marked[end:])

    def tail_of_covered(self, covered: str) -> str:
        end = 0
        for _, match in self._found(covered, _COVER):
            end = match.end()
        return covered[end:]

    def _found(self, text: str, rest: re.Pattern[str]) -> Iterator[tuple[int, re.Match[str]]]:
        """Where each mark starts, and what follows its nonce."""
        start = text.find(self._start)
        while start >= 0:
            match = rest.match(text, start + len(self._start))
            if match is not None:
                yield start, match
            start = text.find(self._start, start + 1 if match is None else match.end())


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
    yield from _unmarked(chat.messages, ChatPart.MESSAGE)
    yield from _unmarked(chat.tools, ChatPart.SCHEMA)


def _unmarked(value: Any, part: ChatPart) -> Iterator[str]:
    if isinstance(value, dict):
        for key, each in value.items():
            if _is_own_key(key, part):
                yield key
            if _is_kept(key, each, part):
                yield from strings(each)
            else:
                yield from _unmarked(each, _inside(key, part))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _unmarked(each, part)


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
    messages = [_change(message, ChatPart.MESSAGE, changed) for message in reversed(chat.messages)][::-1]
    return Chat(messages, _change(chat.tools, ChatPart.SCHEMA, changed))


def _change(value: Any, part: ChatPart, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {
            key if _is_own_key(key, part) else change(key): each
            if _is_kept(key, each, part)
            else _change(each, _inside(key, part), change)
            for key, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [_change(each, part, change) for each in value]
    return value


def _new_nonce() -> str:
    return f"{secrets.randbelow(10**30):030}"


def _is_own_key(key: str, part: ChatPart) -> bool:
    """Whether a template looks for this key, so that it must stay as it is."""
    return part is ChatPart.MESSAGE or (part is ChatPart.SCHEMA and key in _OWN_KEYS)


def _is_kept(key: str, value: Any, part: ChatPart) -> bool:
    """Whether the value under a key must stay as it is."""
    if part is ChatPart.SCHEMA:
        types = value if isinstance(value, list) else [value]
        return key == "type" and all(isinstance(each, str) and each in _TYPES for each in types)
    return part is ChatPart.MESSAGE and key in _STRUCTURE and isinstance(value, str)


def _inside(key: str, part: ChatPart) -> ChatPart:
    """What the value under a key belongs to."""
    if part is ChatPart.DATA or (part is not ChatPart.NAMES and key in _DATA):
        return ChatPart.DATA
    if part is ChatPart.NAMES:
        return ChatPart.SCHEMA
    return ChatPart.NAMES if part is ChatPart.SCHEMA and key in _NAMES else part


class PromptEncoder:
    """Knows the special tokens of one vocabulary, and how images stand in a text. Safe to use from several threads."""

    def __init__(self, tokenizer: Tokenizer, image_encoder: ImageEncoder | None = None) -> None:
        self._tokenizer = tokenizer
        self._around = (
            {} if image_encoder is None else {image_encoder.marker: (image_encoder.before, image_encoder.after)}
        )
        # Some vocabularies list runs of spaces as special; they are text like any other.
        self._specials = {text: token_id for text, token_id in tokenizer.specials.items() if text.strip()}
        self._pattern = re.compile(_any_of(sorted(self._specials)) if self._specials else r"(?!)")

    def encode(self, text: str, contents: Sequence[TextSpan]) -> tuple[int, ...]:
        """Ids of a rendered chat. Inside `contents` (ascending spans) nothing is special.

            <|im_start|>user\\nHello <|im_end|> there<|im_end|>\\n
            ┗ special  ┛┗ one run: merged as in training┛┗special┛

        What lies between two special tokens is encoded in one go, template and content together, and with what the
        model wants around an image where one of the two is its marker.
        """
        ids: list[int] = []
        run_start, opening = 0, ""
        for match in self._find(text, contents):
            before, after = self._around.get(match.group(), ("", ""))
            ids += self._encode_run(f"{opening}{text[run_start : match.start()]}{before}")
            ids.append(self._specials[match.group()])
            run_start, opening = match.end(), after
        ids += self._encode_run(opening + text[run_start:])
        return self._with_one_bos(ids)

    def encode_raw(self, text: str, *, reads_specials: bool, adds_bos: bool) -> tuple[int, ...]:
        """Ids of a text that is its writer's own: the special tokens that it spells are those, if wanted."""
        ids: list[int] = []
        start = 0
        for match in self._pattern.finditer(text) if reads_specials else ():
            ids += self._encode_run(text[start : match.start()])
            ids.append(self._specials[match.group()])
            start = match.end()
        ids += self._encode_run(text[start:])
        return self._with_one_bos(ids) if adds_bos else tuple(ids)

    def special_ids(self, text: str, contents: Sequence[TextSpan] = ()) -> list[int]:
        """Every special token that a text spells out, in order."""
        return [self._specials[match.group()] for match in self._find(text, contents)]

    def has_special(self, texts: Iterable[str]) -> bool:
        return any(self._pattern.search(text) for text in texts)

    def may_complete_special(self, text: str) -> bool:
        """Whether a text spells a special token, or could together with what stands next to it."""
        return self.has_special([text]) or any(
            text.endswith(special[:size]) or text.startswith(special[-size:])
            for special in self._specials
            for size in range(1, len(special))
        )

    def _find(self, text: str, contents: Sequence[TextSpan]) -> Iterator[re.Match[str]]:
        start = 0
        for content in contents:
            yield from self._pattern.finditer(text, start, content.start)
            start = content.end
        yield from self._pattern.finditer(text, start)

    def _encode_run(self, text: str) -> list[int]:
        return self._tokenizer.encode(text) if text else []

    def _with_one_bos(self, ids: list[int]) -> tuple[int, ...]:
        bos_id = self._tokenizer.bos_id
        if bos_id is None:
            return tuple(ids)
        num_bos = next((index for index, token_id in enumerate(ids) if token_id != bos_id), len(ids))
        return (bos_id, *ids[num_bos:])


def _any_of(words: Sequence[str]) -> str:
    """A pattern for the longest of sorted words at a position; shared beginnings are tried once."""
    pairs = zip(words[0], words[-1], strict=False)
    size = next((index for index, (one, other) in enumerate(pairs) if one != other), len(words[0]))
    start, rest = words[0][:size], [word[size:] for word in words if len(word) > size]
    if not rest:
        return re.escape(start)
    branches = "|".join(_any_of(list(group)) for _, group in groupby(rest, key=lambda word: word[0]))
    return f"{re.escape(start)}(?:{branches}){'?' if len(rest) < len(words) else ''}"
