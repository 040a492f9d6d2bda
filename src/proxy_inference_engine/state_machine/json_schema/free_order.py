"""Properties as patterns that list their names: the library writes them in any order, after all that are named.

It lets them come twice; so this is for objects that are watched, and may always have another property instead.
"""

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

from proxy_inference_engine.state_machine.json_schema.budget import StepBudget
from proxy_inference_engine.state_machine.json_schema.keywords import children
from proxy_inference_engine.state_machine.json_schema.result import DEFINITIONS

# Of an object, which the library compiles in a few milliseconds: names of equal schemas share a pattern.
MAX_PATTERNS = 40
MAX_FREED = 200
_PLAIN = re.compile("[A-Za-z0-9_ ]")
_CHAR = r"(?:[A-Za-z0-9_ ]|\\x\{[0-9A-F]{2,6}\})"
_LISTED = re.compile(rf"\^(?:({_CHAR}*)|\(\?:({_CHAR}*(?:\|{_CHAR}*)+)\))\$")
_ESCAPE = re.compile(r"\\x\{([0-9A-F]+)\}")
_CLOSING = frozenset({"patternProperties", "additionalProperties", "minProperties", "maxProperties"})


def names_of(pattern: str) -> list[str]:
    """The names that a pattern lists; none where it may stand for others."""
    listed = _LISTED.fullmatch(pattern)
    if listed is None:
        return []
    texts = [listed[1]] if listed[2] is None else listed[2].split("|")
    return [_ESCAPE.sub(lambda found: chr(int(found[1], 16)), text) for text in texts]


def may_be_freed(schema: Mapping[str, Any]) -> bool:
    """Whether an object that the schema describes may have any other property too, as far as it says."""
    is_open = schema.get("additionalProperties", {}) == {}
    return schema.keys().isdisjoint(_CLOSING - {"additionalProperties"}) and is_open


def freed(schema: Mapping[str, Any], needed: Collection[str]) -> dict[str, Any] | None:
    """An object's schema with all properties as patterns but those needed, which come first, in their order.

    None where that changes nothing, or is too much.
    """
    given = schema.get("properties", {})
    free = {name: one for name, one in given.items() if one is not False and name not in needed}
    groups: dict[str, list[str]] = {}
    for name, one in free.items():
        is_flat = isinstance(one, dict) and not any(children(one))
        groups.setdefault(json.dumps(one) if is_flat else f"{name}:", []).append(name)
    if not free or len(groups) > MAX_PATTERNS or len(free) > MAX_FREED:
        return None
    named = [name for name in needed if name in given] + [name for name, one in given.items() if one is False]
    result = {key: one for key, one in schema.items() if key != "properties"}
    if named:
        result["properties"] = {name: given[name] for name in named}
    return {**result, "patternProperties": {listing(names): free[names[0]] for names in groups.values()}}


def listing(names: Collection[str]) -> str:
    """The pattern that some names have, and no others."""
    texts = ["".join(char if _PLAIN.fullmatch(char) else f"\\x{{{ord(char):02X}}}" for char in name) for name in names]
    return f"^{texts[0]}$" if len(texts) == 1 else f"^(?:{'|'.join(texts)})$"


def is_part(keyword: str, is_a_part: bool) -> bool:
    """Whether what stands below a keyword holds together with other schemas."""
    return keyword == "allOf" or (is_a_part and keyword == "anyOf")


def parts_referred(document: Mapping[str, Any], budget: StepBudget) -> set[str]:
    """Definitions of what holds together with others: alternatives in there would multiply with theirs."""
    found: set[str] = set()
    stack: list[tuple[Any, bool]] = [(document, False)]
    while stack:
        budget.spend()
        schema, is_a_part = stack.pop()
        if not isinstance(schema, dict):
            continue
        name = schema.get("$ref", "").removeprefix(DEFINITIONS)
        if is_a_part and name and name not in found:
            found.add(name)
            stack.append((document["$defs"][name], True))
        stack += [(one, is_part(below[0], is_a_part)) for below, one in children(schema)]
    return found
