"""Regular expressions of ECMA-262 read into terms: character sets, anchors and lookaheads included.

What is no regular expression raises MalformedRegex; what is one but cannot be reasoned about raises RegexError.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

Ranges = tuple[tuple[int, int], ...]
# ("set", ranges) ("cat" or "or", terms) ("rep", term, least, most or None) ("^",) ("$",) ("look", is_positive, term)
Term = tuple[object, ...]

MAX_CODE = 0x10FFFF
MAX_NESTING = 24
MAX_PATTERN = 500
MAX_REPEAT = 200


class RegexError(Exception):
    """A pattern that cannot be reasoned about."""


class MalformedRegex(RegexError):
    """A pattern that is no regular expression."""


def merged(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Ranges in order, none touching the next."""
    result: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if result and low <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(high, result[-1][1]))
        else:
            result.append((low, high))
    return tuple(result)


def complement(ranges: Ranges) -> Ranges:
    """All characters but these."""
    result = []
    start = 0
    for low, high in ranges:
        if low > start:
            result.append((start, low - 1))
        start = high + 1
    if start <= MAX_CODE:
        result.append((start, MAX_CODE))
    return tuple(result)


def _codes(text: str) -> Ranges:
    return merged((ord(char), ord(char)) for char in text)


DIGITS = merged([(48, 57)])
WORD = merged([(48, 57), (65, 90), (95, 95), (97, 122)])
SPACE = merged([*_codes("\t\n\v\f\r \u00a0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff"), (0x2000, 0x200A)])
DOT = complement(_codes("\n"))
CLASSES = {"d": DIGITS, "w": WORD, "s": SPACE}
CLASSES |= {name.upper(): complement(ranges) for name, ranges in CLASSES.items()}
CONTROLS = {"n": 10, "r": 13, "t": 9, "f": 12, "v": 11, "0": 0}


class _Reader:
    """A recursive descent over one pattern."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.nesting = 0

    def peek(self, text: str) -> bool:
        return self.text.startswith(text, self.at)

    def take(self, text: str) -> bool:
        if self.peek(text):
            self.at += len(text)
            return True
        return False

    def next(self) -> str:
        if self.at >= len(self.text):
            raise MalformedRegex("it ends too early")
        self.at += 1
        return self.text[self.at - 1]

    def alternatives(self) -> Term:
        options = [self.sequence()]
        while self.take("|"):
            options.append(self.sequence())
        return options[0] if len(options) == 1 else ("or", tuple(options))

    def sequence(self) -> Term:
        terms = []
        while self.at < len(self.text) and not self.peek("|") and not self.peek(")"):
            terms.append(self.repeated())
        return terms[0] if len(terms) == 1 else ("cat", tuple(terms))

    def repeated(self) -> Term:
        term = self.atom()
        while (bounds := self.bounds()) is not None:
            if term[0] in {"^", "$", "look"}:
                raise RegexError("an assertion is repeated")
            self.take("?")
            term = ("rep", term, *bounds)
        return term

    def bounds(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self.take(sign):
                return bounds
        end = self.text.find("}", self.at)
        if not self.peek("{") or end < 0:
            return None
        low, comma, high = self.text[self.at + 1 : end].partition(",")
        if not low.isdecimal() or (high and not high.isdecimal()):
            return None
        self.at = end + 1
        most = int(high) if high else None if comma else int(low)
        if int(low) > (most if most is not None else int(low)):
            raise MalformedRegex("a repetition has its bounds the wrong way round")
        return int(low), most

    def atom(self) -> Term:
        char = self.next()
        if char == "(":
            return self.group()
        if char == "[":
            return ("set", self.character_class())
        if char in "^$":
            return (char,)
        if char == ".":
            return ("set", DOT)
        if char in "*+?":
            raise MalformedRegex("there is nothing to repeat")
        return ("set", self.escape()) if char == "\\" else ("set", ((ord(char), ord(char)),))

    def group(self) -> Term:
        self.nesting += 1
        if self.nesting > MAX_NESTING:
            raise RegexError("it is nested too deeply")
        look = True if self.take("?=") else False if self.take("?!") else None
        if look is None and not self.take("?:") and self.peek("?"):
            self.named()
        inside = self.alternatives()
        if not self.take(")"):
            raise MalformedRegex("a parenthesis is not closed")
        self.nesting -= 1
        return inside if look is None else ("look", look, inside)

    def named(self) -> None:
        end = self.text.find(">", self.at)
        is_named = self.take("?<") or self.take("?P<")
        if not is_named or end < 0 or not self.text[self.at : end].isidentifier():
            raise RegexError("it has a group of a kind that is not supported")
        self.at = end + 1

    def escape(self) -> Ranges:
        char = self.next()
        if char in CLASSES:
            return CLASSES[char]
        if char in CONTROLS:
            return ((CONTROLS[char], CONTROLS[char]),)
        if char in "xu":
            code = self.hexadecimal(2 if char == "x" else 4)
            return ((code, code),)
        if char.isalnum():
            raise RegexError(f"it has the escape \\{char}")
        return ((ord(char), ord(char)),)

    def hexadecimal(self, num_digits: int) -> int:
        digits = self.text[self.at : self.at + num_digits]
        self.at += num_digits
        try:
            return int(digits, 16)
        except ValueError:
            raise RegexError("it has an escape of a kind that is not supported") from None

    def character_class(self) -> Ranges:
        is_negated = self.take("^")
        ranges: list[tuple[int, int]] = []
        while not self.take("]"):
            low = self.class_member()
            if self.peek("-") and not self.peek("-]") and len(low) == 1 and low[0][0] == low[0][1]:
                self.at += 1
                high = self.class_member()
                if len(high) != 1 or high[0][0] < low[0][0]:
                    raise MalformedRegex("a range of characters is out of order")
                low = ((low[0][0], high[0][1]),)
            ranges += low
        return complement(merged(ranges)) if is_negated else merged(ranges)

    def class_member(self) -> Ranges:
        char = self.next()
        if char == "\\":
            return ((8, 8),) if self.take("b") else self.escape()
        return ((ord(char), ord(char)),)


@lru_cache(maxsize=512)
def read(pattern: str) -> Term:
    """The term of a pattern."""
    if len(pattern) > MAX_PATTERN:
        raise RegexError("it is too long")
    reader = _Reader(pattern)
    term = reader.alternatives()
    if reader.at < len(pattern):
        raise MalformedRegex("a parenthesis is closed that was never opened")
    return term


def is_anchored_simply(term: Term) -> bool:
    """Whether the only assertions are anchors at the very ends of the pattern."""
    parts: Any = term[1] if term[0] == "cat" else (term,)
    parts = parts[1:] if parts and parts[0] == ("^",) else parts
    parts = parts[:-1] if parts and parts[-1] == ("$",) else parts
    return not any(map(has_assertions, parts))


def has_assertions(term: Any) -> bool:
    """Whether there is an anchor or a lookahead anywhere in the term."""
    if term[0] in {"^", "$", "look"}:
        return True
    if term[0] == "rep":
        return has_assertions(term[1])
    return term[0] in {"cat", "or"} and any(map(has_assertions, term[1]))


def as_set_text(ranges: Ranges) -> str:
    """A character set as it is written in a pattern."""
    rest = complement(ranges)
    negation, shown = ("^", rest) if len(rest) < len(ranges) else ("", ranges)
    if not shown:
        return r"[\s\S]"
    return "[" + negation + as_members_text(shown) + "]"


def as_members_text(ranges: Ranges) -> str:
    """A character set as it is written between the brackets of another."""
    return "".join(_range_text(low, high) for low, high in ranges)


def _range_text(low: int, high: int) -> str:
    ends = [chr(code) if chr(code).isalnum() and code < 128 else f"\\x{{{code:X}}}" for code in (low, high)]
    return ends[0] if low == high else "-".join(ends)
