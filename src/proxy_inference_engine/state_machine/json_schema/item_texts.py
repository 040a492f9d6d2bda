"""How the items of an array can be kept apart while they are written, so that there is always another way to go on.

Items are counted by their texts: a watch goes where more of them begin than there are already. So they are scalars of
which each has one text.
"""

import json
from collections.abc import Iterable, Mapping
from math import ceil, floor
from typing import Any

from proxy_inference_engine.state_machine.json_schema.budget import StepBudget
from proxy_inference_engine.state_machine.json_schema.formats import PATTERNS, PLAIN_TEXTS, PlainTexts
from proxy_inference_engine.state_machine.json_schema.keywords import KINDS, OF_STRINGS, is_number, kind_of, kinds_of
from proxy_inference_engine.state_machine.json_schema.languages import language_of
from proxy_inference_engine.state_machine.json_schema.regexes import MAX_REPEAT, RegexError
from proxy_inference_engine.state_machine.json_schema.text_counts import (
    AnyStrings,
    FewTexts,
    PatternStrings,
    SeveralTexts,
    WholeNumbers,
)
from proxy_inference_engine.state_machine.shapes import ItemTexts, num_texts

# Stands in a rewritten schema for uniqueItems, with its path; never in what the library is given.
DIFFERENT = "x-different"
MAX_FEW = 1_000
_BY_PATTERN = {PATTERNS[name]: part for name, part in PLAIN_TEXTS.items() if name in PATTERNS}
_ROOM = 12  # characters in which a part surely has as many texts as anybody needs
_BOUNDS = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")
_OTHERS: dict[str, tuple[bytes, ...]] = {"null": (b"null",), "boolean": (b"false", b"true")}

Together = tuple[Mapping[str, Any], ...]


class Unwatchable(Exception):
    """Nothing shows that the items can be kept apart without a dead end."""


def texts_of(
    cases: Iterable[Together], least: int, budget: StepBudget, besides: frozenset[str] = frozenset()
) -> dict[str, ItemTexts]:
    """The texts, by their kind, of items that are as one of the cases says, of which there are at least so many.

    `besides`: kinds that are kept apart in another way.
    """
    found: dict[str, list[ItemTexts]] = {}
    for case in cases:
        budget.spend(len(case))
        listed = _listed(case)
        for kind in _kinds(case) - besides if listed is None else ():
            if kind in _OTHERS:
                found.setdefault("other", []).append(FewTexts(_OTHERS[kind]))
            elif kind == "string":
                found.setdefault(kind, []).append(_strings(case, budget))
            elif kind == "number":
                found.setdefault(kind, []).append(_whole_numbers(case))
            else:
                raise Unwatchable
        for value in listed or ():
            kind = kind_of(value)
            kind = kind if kind in {"string", "number"} else "other"
            found.setdefault(kind, []).append(FewTexts([_text(value)]))
    texts = {kind: _union(group) for kind, group in found.items()}
    if num_texts(texts) < least:
        raise Unwatchable
    return texts


def _kinds(case: Together) -> frozenset[str]:
    return KINDS.intersection(*map(kinds_of, case))


def _listed(case: Together) -> list[Any] | None:
    """The values that a case lists, which nothing beside them may make fewer."""
    listing = [part for part in case if "enum" in part or "const" in part]
    if not listing:
        return None
    rest = [part for part in case if part is not listing[0] and not part.keys() <= {"type"}]
    values: list[Any] = listing[0].get("enum", [listing[0].get("const")])
    if rest or len(values) > MAX_FEW or not listing[0].keys() <= {"type", "enum", "const"}:
        raise Unwatchable
    return [value for value in values if kind_of(value) in _kinds((*case, {"enum": [value]}))]


def _text(value: Any) -> bytes:
    if isinstance(value, list | dict | float):
        raise Unwatchable
    return json.dumps(value, ensure_ascii=False).encode()


def _union(group: list[ItemTexts]) -> ItemTexts:
    few = [one for one in group if isinstance(one, FewTexts)]
    listed = [FewTexts([text for one in few for text in one.texts])] if few else []
    united = [*listed, *(one for one in group if not isinstance(one, FewTexts))]
    return united[0] if len(united) == 1 else SeveralTexts(united)


def _merged(case: Together, keywords: Iterable[str]) -> dict[str, Any]:
    """What the parts say with some keywords, each of which only one may use."""
    merged: dict[str, Any] = {}
    for part in case:
        for keyword in keywords:
            if keyword in part and merged.setdefault(keyword, part[keyword]) != part[keyword]:
                raise Unwatchable
    return merged


def _strings(case: Together, budget: StepBudget) -> ItemTexts:
    said = _merged(case, OF_STRINGS - {"pattern"})
    patterns = list(dict.fromkeys(part["pattern"] for part in case if "pattern" in part))
    least, most = said.get("minLength", 0), said.get("maxLength")
    if not patterns and "format" not in said:
        return AnyStrings(most)
    part = _BY_PATTERN.get(patterns[0]) if patterns else PLAIN_TEXTS.get(said["format"])
    if part is not None and len(patterns) + ("format" in said) == 1:
        return _part_of_strings(part, least, most, budget)
    if max(least, most or 0) > MAX_REPEAT or "format" in said:
        raise Unwatchable
    try:
        language = language_of(patterns[0])
        for pattern in patterns[1:]:
            language = language.and_(language_of(pattern))
        return PatternStrings(language.with_length(least, most), budget.think)
    except RegexError:
        raise Unwatchable from None


def _part_of_strings(part: PlainTexts, least: int, most: int | None, budget: StepBudget) -> ItemTexts:
    """Some of a format's texts, where lengths leave room for them."""
    longest = part.longest if most is None else min(most - _ROOM, part.longest or most)
    if least > _ROOM or (longest is not None and longest < _ROOM):
        raise Unwatchable
    return PatternStrings(language_of(part.pattern), budget.think, longest)


def _whole_numbers(case: Together) -> ItemTexts:
    """The texts of items that are whole numbers; any other number has many texts."""
    said = _merged(case, ("multipleOf", *_BOUNDS))
    types = [part["type"] if isinstance(part["type"], list) else [part["type"]] for part in case if "type" in part]
    is_whole = any("integer" in names and "number" not in names for names in types)
    if not is_whole or "multipleOf" in said or not all(map(is_number, said.values())):
        raise Unwatchable
    lows = [ceil(said["minimum"])] if "minimum" in said else []
    lows += [floor(said["exclusiveMinimum"]) + 1] if "exclusiveMinimum" in said else []
    highs = [floor(said["maximum"])] if "maximum" in said else []
    highs += [ceil(said["exclusiveMaximum"]) - 1] if "exclusiveMaximum" in said else []
    return WholeNumbers(max(lows, default=None), min(highs, default=None))
