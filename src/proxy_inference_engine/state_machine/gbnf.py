"""Grammars in llama.cpp's GBNF, written in Lark. What is malformed is refused with its line.

Rules that never lead back to themselves become terminals, each one pattern to the library's lexer. In a rule that does,
the lexer takes the longest match between them: such a grammar may admit less than llama.cpp does, never more.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NoReturn

from proxy_inference_engine.state_machine.vocabulary import quote

_ROOT = "root"
_RULE = re.compile(r"^[ \t]*[A-Za-z0-9_-]+[ \t]*::=", re.MULTILINE)
_NAME = re.compile(r"[A-Za-z0-9_-]+")
_SPACE = re.compile(r"(?:[ \t]|#[^\r\n]*)*")
_ANY_SPACE = re.compile(r"(?:\s|#[^\r\n]*)*")
_BOUNDS = re.compile(r"\{\s*(\d{1,6})\s*(?:(,)\s*(\d{1,6})?\s*)?\}")
_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([^xuU]))", re.DOTALL)
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r"}
_ANYTHING = "(?s:.)"
_SOMETHING = "/(?s:.+)/"
_MAX_DEPTH = 64
_MAX_CHARS = 1 << 18
_MAX_RULES = 1024


class MalformedGbnf(Exception):
    """Says why, and in which line."""


@dataclass(frozen=True, slots=True)
class _Text:
    text: str


@dataclass(frozen=True, slots=True)
class _Char:
    pattern: str  # a regex


@dataclass(frozen=True, slots=True)
class _Reference:
    name: str
    at: int


@dataclass(frozen=True, slots=True)
class _Row:
    items: "tuple[_Item, ...]"


@dataclass(frozen=True, slots=True)
class _OneOf:
    items: "tuple[_Item, ...]"


@dataclass(frozen=True, slots=True)
class _Times:
    item: "_Item"
    least: int
    most: int | None

    @property
    def suffix(self) -> str:
        signs = {(0, None): "*", (1, None): "+", (0, 1): "?"}
        return signs.get((self.least, self.most)) or f"{{{self.least},{'' if self.most is None else self.most}}}"


_Item = _Text | _Char | _Reference | _Row | _OneOf | _Times


def is_gbnf(text: str) -> bool:
    return _RULE.search(text) is not None


def lark_of(text: str) -> str:
    """Raises MalformedGbnf."""
    if len(text) > _MAX_CHARS:
        raise MalformedGbnf(f"a grammar may have at most {_MAX_CHARS} characters")
    try:
        return _Writer(_Reader(text).rules(), text).lark()
    except RecursionError:
        raise MalformedGbnf("it is nested too deeply") from None


class _Reader:
    """Reads rules from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def rules(self) -> dict[str, _Item]:
        rules: dict[str, _Item] = {}
        self._skip(_ANY_SPACE)
        while self._at < len(self._text):
            name = self._name()
            self._skip(_SPACE)
            if not self._takes("::="):
                self._fail("'::=' is expected after the name of a rule")
            if name in rules:
                self._fail(f"the rule {name[:64]!r} comes twice")
            if len(rules) == _MAX_RULES:
                self._fail(f"at most {_MAX_RULES} rules are allowed")
            self._skip(_ANY_SPACE)
            rules[name] = self._alternatives(_SPACE)
            end = self._at
            self._skip(_ANY_SPACE)
            if self._at < len(self._text) and "\n" not in self._text[end : self._at]:
                self._fail("the end of the rule is expected")
        if _ROOT not in rules:
            raise MalformedGbnf(f"there is no rule {_ROOT!r}")
        return rules

    def _alternatives(self, space: re.Pattern[str]) -> _Item:
        items = [self._row(space)]
        while self._continues():
            self._skip(_ANY_SPACE)
            items.append(self._row(space))
        return items[0] if len(items) == 1 else _OneOf(tuple(items))

    def _continues(self) -> bool:
        """Whether another alternative follows, on this line or the next."""
        begun = self._at
        self._skip(_ANY_SPACE)
        if self._takes("|"):
            return True
        self._at = begun
        return False

    def _row(self, space: re.Pattern[str]) -> _Item:
        items: list[_Item] = []
        self._skip(space)
        while (item := self._item()) is not None:
            items.append(self._repeated(item))
            self._skip(space)
        return items[0] if len(items) == 1 else _Row(tuple(items))

    def _item(self) -> _Item | None:
        char = self._text[self._at : self._at + 1]
        if char == '"':
            return _Text("".join(self._chars('"')))
        if char == "[":
            return self._char_class()
        if char == "(":
            return self._group()
        if char == ".":
            self._at += 1
            return _Char(_ANYTHING)
        if char in ("<", "!"):
            self._fail("tokens in angle brackets are not supported")
        if char and _NAME.match(char):
            at = self._at
            return _Reference(self._name(), at)
        return None

    def _group(self) -> _Item:
        self._at += 1
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            self._fail("the parentheses are nested too deeply")
        inside = self._alternatives(_ANY_SPACE)
        if not self._takes(")"):
            self._fail("')' is expected")
        self._depth -= 1
        return inside

    def _repeated(self, item: _Item) -> _Item:
        for sign, least, most in (("*", 0, None), ("+", 1, None), ("?", 0, 1)):
            if self._takes(sign):
                return self._repeated(_Times(item, least, most))
        bounds = _BOUNDS.match(self._text, self._at)
        if bounds is None:
            return item
        self._at = bounds.end()
        least = int(bounds[1])
        most = int(bounds[3]) if bounds[3] else None if bounds[2] else least
        if most is not None and most < least:
            self._fail("the bounds of a repetition are the wrong way round")
        return self._repeated(_Times(item, least, most))

    def _char_class(self) -> _Char:
        is_denied = self._text.startswith("[^", self._at)
        self._at += is_denied
        chars = list(self._chars("]"))
        parts, place = [], 0
        while place < len(chars):
            first = chars[place]
            place += 1
            if place + 1 < len(chars) and chars[place] == "-":  # an escaped one is two characters here
                last = chars[place + 1]
                place += 2
                if last[-1] < first[-1]:
                    self._fail("a range of characters is the wrong way round")
                parts.append(f"{_in_class(first)}-{_in_class(last)}")
            else:
                parts.append(_in_class(first))
        if not parts:
            return _Char(_ANYTHING) if is_denied else self._fail("a class needs characters")
        return _Char(f"[{'^' if is_denied else ''}{''.join(parts)}]")

    def _chars(self, end: str) -> Iterator[str]:
        """The characters up to the one that ends them; in a class, a `-` that is escaped is no range."""
        self._at += 1
        while not self._takes(end):
            char = self._text[self._at : self._at + 1]
            if not char or char in "\r\n":
                self._fail(f"{end!r} is expected before the end of the line")
            escape = _ESCAPE.match(self._text, self._at) if char == "\\" else None
            if char == "\\" and escape is None:
                self._fail("an unknown escape")
            self._at += len(char) if escape is None else len(escape[0])
            yield char if escape is None else self._unescaped(escape, end)

    def _unescaped(self, escape: re.Match[str], end: str) -> str:
        digits = escape[1] or escape[2] or escape[3]
        if digits is None:
            char = _CONTROLS.get(escape[4], escape[4])
            return "\\-" if char == "-" and end == "]" else char
        code = int(digits, 16)
        if code > 0x10FFFF or 0xD800 <= code < 0xE000:
            self._fail("an escape that is no character")
        return chr(code)

    def _name(self) -> str:
        found = _NAME.match(self._text, self._at)
        if found is None:
            self._fail("the name of a rule is expected")
        self._at = found.end()
        return found[0]

    def _takes(self, sign: str) -> bool:
        if not self._text.startswith(sign, self._at):
            return False
        self._at += len(sign)
        return True

    def _skip(self, space: re.Pattern[str]) -> None:
        found = space.match(self._text, self._at)
        assert found is not None
        self._at = found.end()

    def _fail(self, reason: str) -> NoReturn:
        raise _malformed(self._text, self._at, reason)


def _malformed(text: str, at: int, reason: str) -> MalformedGbnf:
    return MalformedGbnf(f"line {text.count(chr(10), 0, at) + 1}: {reason}")


def _in_class(char: str) -> str:
    char = char[-1]
    return char if char.isascii() and char.isalnum() else f"\\u{{{ord(char):X}}}"


class _Writer:
    """Writes rules as Lark, under names that Lark takes."""

    def __init__(self, rules: Mapping[str, _Item], text: str) -> None:
        self._rules = rules
        for item in rules.values():
            for reference in _references(item):
                if reference.name not in rules:
                    raise _malformed(text, reference.at, f"there is no rule {reference.name[:64]!r}")
        self._numbers = {name: number for number, name in enumerate(rules)}
        self._recursive = _recursive(rules)
        self._empty = _nullable(rules)
        self._terminals: dict[str, str] = {}  # body → name

    def lark(self) -> str:
        lines = [f"start: {self._in_rule(_Reference(_ROOT, 0))}"]
        for name, item in self._rules.items():
            if name in self._recursive:
                lines.append(f"{self._name(name)}: {self._in_rule(item)}")
            else:
                lines.append(f"{self._name(name)}: {self._in_terminal(item)}")
        return "\n".join([*lines, *(f"{name}: {body}" for body, name in self._terminals.items())])

    def _name(self, name: str) -> str:
        return f"{'r' if name in self._recursive else 'R'}{self._numbers[name]}"

    def _in_terminal(self, item: _Item) -> str:
        match item:
            case _Text(text):
                return quote(text)
            case _Char(pattern):
                return f"/{pattern}/"
            case _Reference(name):
                return self._name(name)
            case _Row(items):
                return " ".join(map(self._in_terminal, items)) or '""'
            case _OneOf(items):
                return f"({' | '.join(map(self._in_terminal, items))})"
            case _Times(inside, _, most):
                return '""' if most == 0 else f"({self._in_terminal(inside)}){item.suffix}"

    def _in_rule(self, item: _Item) -> str:
        if not self._recurs(item):
            return self._lexeme(item)
        match item:
            case _Reference(name):
                return self._name(name)
            case _Row(items):
                return " ".join(map(self._in_rule, self._merged(items)))
            case _OneOf(items):
                return f"({' | '.join(map(self._in_rule, items))})"
            case _Times(inside, _, most):
                return '""' if most == 0 else f"({self._in_rule(inside)}){item.suffix}"
        raise AssertionError(item)

    def _merged(self, items: tuple[_Item, ...]) -> Iterator[_Item]:
        """Neighbours that are patterns become one: the lexer cannot then cut between them in the wrong place."""
        row: list[_Item] = []
        for item in items:
            if self._recurs(item):
                yield from ([_Row(tuple(row))] if row else [])
                yield item
                row = []
            else:
                row.append(item)
        yield from [_Row(tuple(row))] if row else []

    def _lexeme(self, item: _Item) -> str:
        """A terminal of its own. One that may be empty is left out instead: a rule takes no empty lexeme."""
        body = self._in_terminal(item)
        if not _may_be_empty(item, self._empty):
            return self._terminal(body)
        return f"{self._terminal(f'({body}) & {_SOMETHING}')}?"

    def _terminal(self, body: str) -> str:
        return self._terminals.setdefault(body, f"T{len(self._terminals)}")

    def _recurs(self, item: _Item) -> bool:
        return any(reference.name in self._recursive for reference in _references(item))


def _references(item: _Item) -> Iterator[_Reference]:
    match item:
        case _Reference():
            yield item
        case _Row(items) | _OneOf(items):
            for each in items:
                yield from _references(each)
        case _Times(inside):
            yield from _references(inside)


def _recursive(rules: Mapping[str, _Item]) -> set[str]:
    """The rules from which a rule can be reached that leads back to itself."""
    below = {name: {each.name for each in _references(item)} for name, item in rules.items()}
    plain: set[str] = set()
    while more := {name for name in below.keys() - plain if below[name] <= plain}:
        plain |= more
    return below.keys() - plain


def _nullable(rules: Mapping[str, _Item]) -> set[str]:
    """The rules that the empty text satisfies."""
    empty: set[str] = set()
    while more := {name for name, item in rules.items() if name not in empty and _may_be_empty(item, empty)}:
        empty |= more
    return empty


def _may_be_empty(item: _Item, empty: set[str]) -> bool:
    match item:
        case _Text(text):
            return not text
        case _Char():
            return False
        case _Reference(name):
            return name in empty
        case _Row(items):
            return all(_may_be_empty(each, empty) for each in items)
        case _OneOf(items):
            return any(_may_be_empty(each, empty) for each in items)
        case _Times(inside, least):
            return least == 0 or _may_be_empty(inside, empty)
