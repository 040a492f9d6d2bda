"""A client's Lark grammar cut into its parts as llguidance cuts it: what is a comment here is one there."""

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from proxy_inference_engine.state_machine.demand import InvalidDemand

_PART = re.compile(
    r"""(?P<skipped>(?:\#|//)[^\n]*|[ \t]+)
    |(?P<text>"(?:\\.|[^"\\\x00-\x1F\x7F])*"i?)
    |(?P<regex>/(?:\\.|[^/\\])+/[imslux]*)
    |(?P<keyword>%[a-z]+)
    |(?P<reference>@[A-Za-z0-9_\-]+)
    |(?P<token><[^<>\s]+>)
    |(?P<number>0[xX][0-9a-fA-F]+|[+-]?[0-9]+)
    |(?P<name>!?[_?]?[a-z][_a-z0-9\-]*|_?[A-Z][_A-Z0-9\-]*)
    |(?P<line>(?:\r?\n)+[ \t]*)
    |(?P<sign>::|->|\.\.|.)""",
    re.VERBOSE | re.DOTALL,
)
_DECODER = json.JSONDecoder()
_WITH_JSON = frozenset({"%json", "%regex", "%llguidance"})
_SPACE = re.compile(r"[ \t\r\n]*")


class Part(NamedTuple):
    """`kind` is the name of a group above, or "json" for the value that follows a keyword."""

    kind: str
    text: str
    value: Any = None


def parts_of(definition: str) -> list[Part]:
    """The parts of a grammar but comments and spaces. Raises InvalidDemand where JSON was to follow and does not."""
    return list(_parts(definition))


def _parts(definition: str) -> Iterator[Part]:
    at = 0
    while at < len(definition):
        match = _PART.match(definition, at)
        assert match is not None and match.lastgroup is not None, "any character is a sign"
        at = match.end()
        if match.lastgroup != "skipped":
            yield Part(match.lastgroup, match.group())
        if match.lastgroup == "keyword" and match.group() in _WITH_JSON:
            value, at = _json_at(definition, at, match.group())
            yield Part("json", "", value)


def _json_at(definition: str, at: int, keyword: str) -> tuple[Any, int]:
    space = _SPACE.match(definition, at)
    try:
        return _DECODER.raw_decode(definition, at if space is None else space.end())
    except (ValueError, RecursionError):
        raise InvalidDemand(f"what follows {keyword} in the grammar is no JSON", "output") from None


def rules_of(parts: list[Part]) -> dict[str, list[Part]]:
    """The bodies of all rules by their names; several of one name, as nested grammars have them, put together."""
    rules: dict[str, list[Part]] = {}
    body: list[Part] = []
    index = 0
    while index < len(parts):
        is_first = index == 0 or parts[index - 1].kind == "line"
        colon = _colon_after(parts, index) if is_first and parts[index].kind == "name" else None
        if colon is None:
            body.append(parts[index])
            index += 1
        else:
            body = rules.setdefault(parts[index].text.lstrip("!?"), [])
            index = colon + 1
    return rules


def _colon_after(parts: list[Part], index: int) -> int | None:
    """Where the head of a rule ends: it is one line, with attributes perhaps."""
    for at in range(index + 1, len(parts)):
        if parts[at] == Part("sign", ":"):
            return at
        if parts[at].kind == "line":
            return None
    return None
