"""How large a client's regexes and Lark grammars are once their counted repetitions are written out.

(a{1000}){1000} is fifteen characters and a million steps: whoever walks it would stall every other stream.
"""

import re
from collections.abc import Mapping
from typing import Any

from proxy_inference_engine.state_machine.demand import InvalidDemand
from proxy_inference_engine.state_machine.lark_reader import Part, parts_of, rules_of

MAX_SIZE = 20_000
_MAX_CHARS = 1 << 20  # of all patterns of a schema together, and values in it: to look at more takes long by itself
_MAX_LARK_CHARS = 1 << 18
_CAP = 10**9  # no need to count further
_MAX_DEPTH = 200  # of rules inside rules

# Counts are taken wherever they could be some: with spaces, as (?x) allows them, and with no lower end.
_REGEX_PART = re.compile(
    r"\\[xuU]\{[0-9A-Fa-f]*\}|\\[pP]\{[^}]*\}|\\.|\[(?:\\.|[^\]\\])*\]"
    r"|\{(?P<count>\s*\d+\s*(?:,\s*\d*\s*)?|\s*,\s*\d+\s*)\}|.",
    re.DOTALL,
)
_IS_SPACED = re.compile(r"\(\?[a-zA-Z]*x")  # spaces and comments mean nothing
_SPACED_PART = re.compile(r"(\\.|\[(?:\\.|[^\]\\])*\])|\s+|#[^\n]*", re.DOTALL)


class _Sum:
    """The size of nested groups while they are read."""

    def __init__(self) -> None:
        self._outer: list[int] = []
        self.total = self._last = 0

    def add(self, size: int) -> None:
        self._last = size
        self.total = min(self.total + size, _CAP)

    def open(self) -> None:
        self._outer.append(self.total)
        self.total = 0

    def close(self) -> None:
        group, self.total = self.total, self._outer.pop() if self._outer else 0
        self.add(group)

    def repeat(self, count: str) -> None:
        num = max((_number(each) for each in re.findall(r"\d+", count)), default=1)
        self.add(self._last * max(0, num - 1))
        self._last = min(self._last * num, _CAP)


def _number(digits: str) -> int:
    digits = digits.lstrip("0")
    return int(digits or 0) if len(digits) <= 9 else _CAP


def regex_size(definition: str, *, is_spaced: bool = False) -> int:
    if is_spaced or _IS_SPACED.search(definition):
        definition = _SPACED_PART.sub(lambda match: match[1] or "", definition)
    size = _Sum()
    for match in _REGEX_PART.finditer(definition):
        part = match.group()
        if match["count"]:
            size.repeat(match["count"])
        elif part == "(":
            size.open()
        elif part == ")":
            size.close()
        else:
            size.add(1)
    return size.total


def lark_size(parts: list[Part]) -> int:
    """The size of the largest rule with others written out in it; a rule inside itself counts once."""
    bodies = rules_of(parts)
    known: dict[str, int] = {}
    for name in bodies:
        _rule_size(name, bodies, known, depth=0)
    return max(known.values(), default=0)


def _rule_size(name: str, bodies: Mapping[str, list[Part]], known: dict[str, int], depth: int) -> int:
    if name in known or name not in bodies or depth > _MAX_DEPTH:
        return known.get(name, 1)
    known[name] = 1  # inside itself
    size = _Sum()
    body = bodies[name]
    index = 0
    while index < len(body):
        kind, text, _ = body[index]
        count, length = _count_at(body, index)
        if count:
            size.repeat(count)
        elif kind == "regex":
            regex, _, flags = text[1:].rpartition("/")
            size.add(regex_size(regex, is_spaced="x" in flags))
        elif kind == "text":
            size.add(len(text))
        elif kind == "name":
            size.add(_rule_size(text.lstrip("!?"), bodies, known, depth + 1))
        elif text in ("(", "["):
            size.open()
        elif text in (")", "]"):
            size.close()
        index += length
    known[name] = size.total
    return size.total


def _count_at(body: list[Part], index: int) -> tuple[str, int]:
    """The numbers of a repetition that begins here, as text, and how many parts it has: {2}, {,3}, {2,3}, ~2, ~2..3"""
    texts = [part.text for part in body[index : index + 6]]
    if texts[0] == "~" and len(texts) > 1 and body[index + 1].kind == "number":
        has_end = len(texts) > 3 and texts[2] == ".." and body[index + 3].kind == "number"
        return (" ".join((texts[1], texts[3])), 4) if has_end else (texts[1], 2)
    if texts[0] == "{" and "}" in texts:
        inside = body[index + 1 : index + texts.index("}")]
        numbers = [part.text for part in inside if part.kind == "number"]
        if numbers and all(part.kind in ("number", "line") or part.text == "," for part in inside):
            return " ".join(numbers), len(inside) + 2
    return "", 1


def check_size(size: int, what: str) -> None:
    if size > MAX_SIZE:
        raise InvalidDemand(f"{what} is too large: its repetitions come to more than {MAX_SIZE}", "output")


def check_lark(definition: str) -> None:
    """Raises InvalidDemand for what could change how the grammar is read, or stall whoever walks it."""
    if len(definition) > _MAX_LARK_CHARS:
        raise InvalidDemand(f"the grammar has more than {_MAX_LARK_CHARS} characters", "output")
    parts = parts_of(definition)
    for kind, text, value in parts:
        if kind == "reference":
            raise InvalidDemand("a grammar may not refer to others with '@'", "output")
        if kind == "keyword" and text == "%llguidance":
            raise InvalidDemand("a grammar may not contain '%llguidance'", "output")
        if kind == "json":
            check_patterns(value)
            if _has_key(value, "x-guidance"):
                raise InvalidDemand("a grammar may not contain 'x-guidance'", "output")
    check_size(lark_size(parts), "the grammar")


def _has_key(value: Any, key: str) -> bool:
    stack = [value]
    while stack:
        one = stack.pop()
        if isinstance(one, dict):
            if key in one:
                return True
            stack += one.values()
        elif isinstance(one, list):
            stack += one
    return False


def check_patterns(schema: Any) -> None:
    """Every regex of a JSON Schema. Takes strings for regexes that only stand where a schema could: harmless."""
    num_left = _MAX_CHARS
    stack = [schema]
    while stack:
        value = stack.pop()
        regexes: list[str] = []
        num_left -= 1
        if isinstance(value, list | tuple):
            stack.extend(value)
        elif isinstance(value, Mapping):
            regexes = _regexes(value)
            stack.extend(value.values())
        num_left -= sum(map(len, regexes))
        if num_left < 0 or len(stack) > _MAX_CHARS:
            raise InvalidDemand("the schema is too large", "output")
        check_size(max(map(regex_size, regexes), default=0), "a pattern")


def _regexes(schema: Mapping[Any, Any]) -> list[str]:
    pattern, patterns = schema.get("pattern"), schema.get("patternProperties")
    found = [pattern] if isinstance(pattern, str) else []
    return [*found, *map(str, patterns)] if isinstance(patterns, Mapping) else found
