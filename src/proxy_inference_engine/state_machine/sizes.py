"""How large a client's regexes and Lark grammars are once their counted repetitions are written out.

(a{1000}){1000} is fifteen characters and a million steps: whoever walks it would stall every other stream.
"""

import re
from typing import Any

from proxy_inference_engine.state_machine.demand import InvalidDemand

MAX_SIZE = 20_000
_CAP = 10**9  # no need to count further

_REGEX_PART = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|\{(?P<count>\d+(?:,\d*)?)\}|.", re.DOTALL)
_RULE = re.compile(r"^[?!]?(\w+)[^\n:]*:", re.MULTILINE)
_LARK_PART = re.compile(
    r'//[^\n]*|"(?P<text>(?:\\.|[^"\\])*)"|/(?P<regex>(?:\\.|[^/\\])+)/|(?P<name>[A-Za-z_]\w*)'
    r"|\{(?P<count>\d+(?:,\d*)?)\}|~\s*(?P<tilde>\d+(?:\s*\.\.\s*\d+)?)|.",
    re.DOTALL,
)


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
        num = max((int(each[:9]) for each in re.findall(r"\d+", count)), default=1)
        self.add(self._last * max(0, num - 1))
        self._last = min(self._last * num, _CAP)


def regex_size(definition: str) -> int:
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


def lark_size(definition: str) -> int:
    """Of the largest rule, others written out in it; a rule inside itself counts once."""
    starts = list(_RULE.finditer(definition))
    ends = [match.start() for match in starts[1:]] + [len(definition)]
    bodies = {match[1]: definition[match.end() : end] for match, end in zip(starts, ends, strict=False)}
    known: dict[str, int] = {}
    for name in bodies:
        _rule_size(name, bodies, known, depth=0)
    return max(known.values(), default=0)


def _rule_size(name: str, bodies: dict[str, str], known: dict[str, int], depth: int) -> int:
    if name in known or name not in bodies or depth > 200:
        return known.get(name, 1)
    known[name] = 1  # inside itself
    size = _Sum()
    for match in _LARK_PART.finditer(bodies[name]):
        if count := match["count"] or match["tilde"]:
            size.repeat(count)
        elif match["regex"]:
            size.add(regex_size(match["regex"]))
        elif match["text"] is not None:
            size.add(len(match["text"]))
        elif match["name"]:
            size.add(_rule_size(match["name"], bodies, known, depth + 1))
        elif match.group() == "(":
            size.open()
        elif match.group() == ")":
            size.close()
    known[name] = size.total
    return size.total


def check_size(size: int, what: str) -> None:
    if size > MAX_SIZE:
        raise InvalidDemand(f"{what} is too large: its repetitions come to more than {MAX_SIZE}", "output")


def check_patterns(schema: Any) -> None:
    """Every regex of a JSON Schema. Takes strings for regexes that only stand where a schema could: harmless."""
    stack = [schema]
    while stack:
        value = stack.pop()
        if isinstance(value, list | tuple):
            stack.extend(value)
        elif isinstance(value, dict):
            for key, each in value.items():
                if key == "pattern" and isinstance(each, str):
                    check_size(regex_size(each), "a pattern")
                elif key == "patternProperties" and isinstance(each, dict):
                    check_size(max(map(regex_size, each), default=0), "a pattern")
            stack.extend(value.values())
