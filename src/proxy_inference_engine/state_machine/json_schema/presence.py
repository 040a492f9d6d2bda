"""Alternatives that say nothing but which properties are there and which are not: several lists of them as one.

One by one their numbers multiply; most of the combinations contradict themselves, or ask for more than another does.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import Any, NamedTuple

from proxy_inference_engine.state_machine.json_schema.budget import StepBudget
from proxy_inference_engine.state_machine.json_schema.keywords import Kinds, is_integral, kinds_of

MAX_PRESENCES = 64
_MAX_KEPT = 4 * MAX_PRESENCES  # while it is not known which of them others cover
_COMPARISONS_PER_STEP = 16
_LEAF = frozenset({"type", "required", "properties"})


class Presence(NamedTuple):
    """Names that are there, and names that are not."""

    needed: frozenset[str] = frozenset()
    absent: frozenset[str] = frozenset()

    @property
    def is_possible(self) -> bool:
        return self.needed.isdisjoint(self.absent)

    def and_(self, other: "Presence") -> "Presence":
        return Presence(self.needed | other.needed, self.absent | other.absent)

    def covers(self, other: "Presence") -> bool:
        """Whether it asks for no more than the other."""
        return self.needed <= other.needed and self.absent <= other.absent


def together(left: Any, right: Any, known: Mapping[str, Kinds], order: Iterable[str], budget: StepBudget) -> Any:
    """Two rewritten parts of an object's schema as one; None where they say something else, or that is too much.

    `known`: kinds of which properties can only be, as something beside the parts says. `order`: of all names.
    """
    if "anyOf" not in left or "anyOf" not in right:
        return None
    ours = terms_of(left, known, budget)
    theirs = terms_of(right, known, budget) if ours is not None else None
    found = None if ours is None or theirs is None else _both(ours, theirs, budget)
    if found is None:
        return None
    order = list(order)
    budget.spend(len(found) * len(order) // 8)
    options: list[Any] = [_written(term, order) for term in found]
    return {"anyOf": options} if len(options) > 1 else options[0] if options else False


def terms_of(schema: Any, known: Mapping[str, Kinds], budget: StepBudget) -> list[Presence] | None:
    """What a rewritten schema says of which properties are there; None where that is not all it says."""
    if not isinstance(schema, dict):
        return [Presence()] if schema else []
    budget.spend(1 + (len(schema.get("required", ())) + len(schema.get("properties", ()))) // 8)
    terms: list[Presence] | None = _leaf({key: one for key, one in schema.items() if key in _LEAF}, known)
    if not schema.keys() <= _LEAF | {"allOf", "anyOf"}:
        return None
    if "anyOf" in schema:
        options = [terms_of(option, known, budget) for option in schema["anyOf"]]
        listed = None if None in options else _fewest((term for option in options for term in option or ()), budget)
        if listed is None:
            return None
        terms = _both(terms, listed, budget) if terms else terms
    for part in schema.get("allOf", ()):
        others = terms_of(part, known, budget)
        terms = None if terms is None or others is None else _both(terms, others, budget)
    return terms


def _leaf(schema: Mapping[str, Any], known: Mapping[str, Kinds]) -> list[Presence] | None:
    if "object" not in kinds_of(schema):
        return []
    needed = frozenset(schema.get("required", ()))
    absent: set[str] = set()
    for name, one in schema.get("properties", {}).items():
        possible = known.get(name)
        if one is False or (possible is not None and possible.isdisjoint(kinds_of(one))):
            absent.add(name)
        elif one != {} and not (possible is not None and _is_only_type(one) and possible <= kinds_of(one)):
            return None
    term = Presence(needed, frozenset(absent))
    return [term] if term.is_possible else []


def _is_only_type(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.keys() == {"type"} and not is_integral(schema)


def _both(left: list[Presence], right: list[Presence], budget: StepBudget) -> list[Presence] | None:
    budget.spend(1 + len(left) * len(right))
    found = _fewest((one.and_(other) for one, other in product(left, right)), budget)
    return found if found is not None and len(found) <= MAX_PRESENCES else None


def _fewest(terms: Iterable[Presence], budget: StepBudget) -> list[Presence] | None:
    """Those that are possible, and that no other covers; None where they are too many to compare."""
    kept: list[Presence] = []
    for term in terms:
        budget.spend(len(kept) // _COMPARISONS_PER_STEP)
        if len(kept) > _MAX_KEPT:
            return None
        if term.is_possible and not any(one.covers(term) for one in kept):
            kept = [one for one in kept if not term.covers(one)] + [term]
    return kept


def names_in(schema: Any) -> Iterator[str]:
    """All names that a rewritten schema says something of, in its order."""
    if isinstance(schema, dict):
        yield from schema.get("required", ())
        yield from schema.get("properties", ())
        for part in (*schema.get("allOf", ()), *schema.get("anyOf", ())):
            yield from names_in(part)


def _written(term: Presence, order: list[str]) -> dict[str, Any]:
    needed = [name for name in order if name in term.needed]
    absent = [name for name in order if name in term.absent]
    result: dict[str, Any] = {"type": "object"}
    if absent:
        result["properties"] = dict.fromkeys(absent, False)
    return {**result, "required": needed} if needed else result
