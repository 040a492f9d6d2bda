"""Texts cut into units that belong together: a tag, a bracketed token, a word, a single sign.

Two markers share letters by chance (`<think>`, `<tool_call>`); what texts have in common is told in whole units.
"""

import re
from collections.abc import Iterable, Sequence

from proxy_inference_engine.formats.syntax import KEY, WORD

MARKER = re.compile(r"<[^<>\s]+>|\[/?[A-Z_]{2,}\]")  # what is one token in many vocabularies
_UNIT = re.compile(r"<[^<>\s]*>?|\[/?[A-Z_]{2,}\]|[A-Za-z0-9_]+|.", re.DOTALL)


def cut(text: str) -> list[str]:
    return _UNIT.findall(text)


def common_start(*texts: str) -> str:
    """What texts begin with, all of them."""
    return "".join(_common(list(map(cut, texts))))


def common_end(*texts: str) -> str:
    """What texts end with, all of them."""
    return "".join(_common([cut(text)[::-1] for text in texts])[::-1])


def without_words(text: str, ids: Iterable[str]) -> str:
    """A text with a hole where an id stands, or a number of its own: those differ from call to call."""
    for id_ in ids:
        text = text.replace(id_, WORD)
    return "".join(WORD if unit.isdecimal() else unit for unit in cut(text))


def merged(one: str, other: str) -> str | None:
    """Two texts that differ in one word as one, with a hole; None where they differ in more."""
    mine, yours = cut(one), cut(other)
    different = [index for index, pair in enumerate(zip(mine, yours, strict=False)) if pair[0] != pair[1]]
    if len(mine) != len(yours) or len(different) > 1:
        return None
    return "".join(WORD if index in different else unit for index, unit in enumerate(mine))


def markers(texts: Iterable[str]) -> frozenset[str]:
    """Everything in some texts that may be one token."""
    return frozenset(marker for text in texts for marker in MARKER.findall(text) if KEY not in marker)


def _common(rows: Sequence[Sequence[str]]) -> list[str]:
    shared = []
    for column in zip(*rows, strict=False):
        if any(unit != column[0] for unit in column):
            break
        shared.append(column[0])
    return shared
