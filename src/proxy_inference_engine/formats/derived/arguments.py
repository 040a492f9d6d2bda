"""How a template writes the arguments of a call, read off what it wrote for some."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from proxy_inference_engine.formats.derived.probe import KEYS
from proxy_inference_engine.formats.derived.units import MARKER, common_end, common_start, merged
from proxy_inference_engine.formats.syntax import KEY, ArgumentStyle, Parameter

# Arguments → what a template writes after a call's name, to the end of the answer; None where it writes no such call.
Write = Callable[[Mapping[str, Any]], str | None]

TEXTS = dict(zip(KEYS, ("qvala", "qvalb"), strict=True))
_JSON_SIGNS = " ,:\"'{}[]()"
_IS_OTHER = re.compile(r"""': '|\\""")  # a dictionary as Python prints it, or JSON within a string
_HARD = dict(zip(KEYS, ("a <qvala> &\nb", "qvalb"), strict=True))
_NUMBERS = dict(zip(KEYS, (417, 529), strict=True))
_NESTED = dict(zip(KEYS, (True, [417, {"qkeyc": "qvalc"}]), strict=True))
_JSON = re.compile(r'\{\s*"qkeya"(?P<key>\s*:\s*)"qvala"(?P<item>\s*,\s*)"qkeyb"\s*:\s*"qvalb"\s*\}')
_PYTHON = re.compile(r"""qkeya=(["']?)qvala\1,?\s*qkeyb=(["']?)qvalb\2""")


@dataclass(frozen=True, slots=True)
class ArgumentSyntax:
    """The part of a CallSyntax that is about arguments; `text` is how `TEXTS` are written."""

    text: str
    style: ArgumentStyle
    parameter: Parameter | None = None
    item_separator: str = ", "
    key_separator: str = ": "
    quote: str = '"'
    is_broken: bool = False  # what the template writes of a past call cannot be read as it is meant


def derive_arguments(write: Write) -> ArgumentSyntax | None:
    text = write(TEXTS)
    if text is None:
        return None
    found = _JSON.search(text)
    if found is not None:
        return _as_json(found)
    found = _PYTHON.search(text)
    if found is not None:
        # Some templates put every value in quotes or none, or no comma between arguments.
        quote = found[1]
        is_broken = "," not in found.group() or not quote or f"{quote}417{quote}" in (write(_NUMBERS) or "")
        return ArgumentSyntax(found.group(), ArgumentStyle.PYTHON, quote=quote or '"', is_broken=is_broken)
    return _as_elements(text, write)


def _as_json(found: re.Match[str]) -> ArgumentSyntax:
    item, key = found["item"], found["key"]
    if "\n" in item:  # spread over lines, which no model has to do
        item, key = ", ", ": "
    return ArgumentSyntax(found.group(), ArgumentStyle.JSON, item_separator=item, key_separator=key)


@dataclass(frozen=True, slots=True)
class _Gaps:
    """What stands around keys and values:  before KEY to_value VALUE between KEY to_last VALUE behind"""

    before: str
    to_value: str
    between: str
    to_last: str
    behind: str

    @classmethod
    def of(cls, text: str | None, arguments: Mapping[str, Any]) -> "_Gaps | None":
        """None where they do not stand there one after the other."""
        gaps, rest = [], text or ""
        for key, value in arguments.items():
            for word in (key, value if isinstance(value, str) else json.dumps(value)):
                gap, found, rest = rest.partition(word)
                if not found:
                    return None
                gaps.append(gap)
        before, to_value, between, to_last = gaps
        first, last = arguments
        return cls(before, to_value, between.replace(first, KEY), to_last, rest.replace(last, KEY))


def _as_elements(text: str, write: Write) -> ArgumentSyntax | None:
    """One parameter after the other, each between its own markers."""
    gaps = _Gaps.of(text, TEXTS)
    if gaps is None or gaps.to_value != gaps.to_last or not gaps.to_value or _IS_OTHER.search(gaps.to_value):
        return None
    # Tags that only differ in a key begin alike, those that open and those that end.
    shared = common_end(gaps.before, gaps.between) if KEY in gaps.between else ""
    after_text = common_start(gaps.between.removesuffix(shared), gaps.behind)
    rest = gaps.between[len(after_text) :]
    before_key = common_end(gaps.before, rest)
    separator = rest[: len(rest) - len(before_key)]
    if not after_text or any(key in f"{after_text}{separator}{before_key}" for key in KEYS):
        return None
    if KEY in separator + before_key:
        return None
    parameter = Parameter(before_key, gaps.to_value, after_text, separator)
    end = text.rindex(TEXTS[KEYS[-1]]) + len(TEXTS[KEYS[-1]] + after_text.replace(KEY, KEYS[-1]))
    written = text[len(gaps.before) - len(before_key) : end]
    mark = _mark(parameter, write)
    if mark is not None:
        return ArgumentSyntax(written, ArgumentStyle.MARKED, mark)
    item = _item(parameter, write) if KEY in after_text else ""
    parameter = replace(_with_values(parameter, write), wrapping=_wrapping(parameter, write), item=item)
    # What only signs of JSON end cannot be told from a part of itself.
    is_ended = all(parameter.around(is_text=is_text)[1].strip(_JSON_SIGNS) for is_text in (False, True))
    return ArgumentSyntax(written, ArgumentStyle.TAGS, parameter) if is_ended else None


def _item(texts: Parameter, write: Write) -> str:
    """What a template calls the items of an array, where it writes elements within elements; empty if it does not."""
    pattern = rf"{re.escape(texts.before_key)}(\w+){re.escape(texts.before_value)}417"
    found = re.search(pattern, write(_NESTED) or "")
    return "" if found is None else found[1]


def _wrapping(texts: Parameter, write: Write) -> tuple[str, str] | None:
    """What a template puts around a string with signs that are hard for it; None if nothing."""
    gaps = _Gaps.of(write(_HARD), _HARD)
    if gaps is None or not gaps.to_value.startswith(texts.before_value):
        return None
    before = gaps.to_value.removeprefix(texts.before_value)
    after = gaps.between.removesuffix(texts.after_value + texts.separator + texts.before_key)
    return (before, after) if before and after else None


def _mark(texts: Parameter, write: Write) -> Parameter | None:
    """Strings between marks at any depth, all else without: None if that is not what the template does."""
    numbers = _Gaps.of(write(_NUMBERS), _NUMBERS)
    nested = write(_NESTED)
    if numbers is None or nested is None or not texts.before_value.startswith(numbers.to_value):
        return None
    mark = texts.before_value.removeprefix(numbers.to_value)
    if MARKER.fullmatch(mark) is None or texts.after_value != mark or f"{mark}qvalc{mark}" not in nested:
        return None
    return Parameter(texts.before_key, numbers.to_value, "", texts.separator, before_text=mark, after_text=mark)


def _with_values(texts: Parameter, write: Write) -> Parameter:
    """The parameter of strings with what stands around other values, if that is something else."""
    numbers, nested = _Gaps.of(write(_NUMBERS), _NUMBERS), _Gaps.of(write(_NESTED), _NESTED)
    if numbers is None:
        return texts
    before = numbers.to_value
    if nested is not None:
        before = merged(before, nested.to_last) or before
    after = numbers.between.removesuffix(texts.separator + texts.before_key)
    if (before, after) == (texts.before_value, texts.after_value):
        return texts
    return Parameter(
        texts.before_key, before, after, texts.separator, before_text=texts.before_value, after_text=texts.after_value
    )
