"""Values as models write them (JSON, Python, or a mixture) to JSON text. One pass over a whole text, no guessing."""

import json
import re

_SPACES = re.compile(r"\s*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![0-9A-Za-z_.])")
_WORD = re.compile(r"[A-Za-z_]+")
PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}
_WORDS = {"true": "true", "false": "false", "null": "null", **PYTHON_WORDS}
_PLAIN = {'"': re.compile(r'[^"\\]*'), "'": re.compile(r"[^'\\]*")}
_HEX = re.compile("[0-9a-fA-F]{4}")
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", '"': '"', "'": "'", "\\": "\\", "/": "/"}
_MAX_DEPTH = 64


class Unreadable(Exception):
    """The text is no value, or could be read in more than one way."""


class Literals:
    """Reads from `at` on; on Unreadable, `at` is wherever the reading stopped."""

    __slots__ = ("_depth", "at", "text")

    def __init__(self, text: str, at: int = 0) -> None:
        self.text = text
        self.at = at
        self._depth = 0

    @property
    def next_char(self) -> str:
        return self.text[self.at : self.at + 1]

    @property
    def is_at_end(self) -> bool:
        return self.at >= len(self.text)

    def skip_space(self) -> None:
        match = _SPACES.match(self.text, self.at)
        assert match is not None
        self.at = match.end()

    def accept(self, text: str) -> bool:
        """Read the text if it comes next, after white space."""
        self.skip_space()
        if not self.text.startswith(text, self.at):
            return False
        self.at += len(text)
        return True

    def match(self, pattern: re.Pattern[str]) -> str:
        """Read what the pattern matches here; nothing if it does not."""
        match = pattern.match(self.text, self.at)
        if match is None:
            return ""
        self.at = match.end()
        return match.group()

    def value(self) -> str:
        """The next value as JSON text."""
        self.skip_space()
        char = self.next_char
        if char == "{":
            return write_object(self.members())
        if char == "[":
            return f"[{', '.join(self.items())}]"
        if char and char in "\"'":
            return json.dumps(self.string(), ensure_ascii=False)
        number = self.match(_NUMBER)
        if number:
            return number
        word = _WORDS.get(self.match(_WORD))
        if word is None:
            raise Unreadable
        return word

    def members(self) -> dict[str, str]:
        """An object: its keys, each with the first value it has, as JSON text."""
        found: dict[str, str] = {}
        self._enter("{")
        while not self.accept("}"):
            if found and not self.accept(","):
                raise Unreadable
            self.skip_space()
            key = self.string()
            if not self.accept(":"):
                raise Unreadable
            value = self.value()
            found.setdefault(key, value)
        self._depth -= 1
        return found

    def items(self) -> list[str]:
        """An array: its values as JSON text."""
        found: list[str] = []
        self._enter("[")
        while not self.accept("]"):
            if found and not self.accept(","):
                raise Unreadable
            found.append(self.value())
        self._depth -= 1
        return found

    def string(self) -> str:
        """A string in either kind of quotes."""
        quote = self.next_char
        if not quote or quote not in _PLAIN:
            raise Unreadable
        self.at += 1
        parts = [self.match(_PLAIN[quote])]
        while self.next_char == "\\":
            parts.append(self._escape())
            parts.append(self.match(_PLAIN[quote]))
        if self.is_at_end:
            raise Unreadable
        self.at += 1
        # Halves of a pair meet here; one that is alone is no character.
        return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")

    def _escape(self) -> str:
        kind = self.text[self.at + 1 : self.at + 2]
        self.at += 2
        if kind == "u":
            digits = self.match(_HEX)
            if digits:
                return chr(int(digits, 16))
        elif kind in _ESCAPES:
            return _ESCAPES[kind]
        raise Unreadable

    def _enter(self, bracket: str) -> None:
        self._depth += 1
        if self._depth > _MAX_DEPTH or not self.accept(bracket):
            raise Unreadable


def write_object(members: dict[str, str]) -> str:
    """JSON text of an object whose values are JSON text."""
    return "{" + ", ".join(f"{json.dumps(key, ensure_ascii=False)}: {value}" for key, value in members.items()) + "}"


def python_as_json(text: str) -> str:
    """A value of Python's as JSON text; anything else as it is."""
    try:
        return Literals(text).value() if "'" in text else PYTHON_WORDS.get(text, text)
    except Unreadable:
        return text
