"""A rewritten schema: what it is put together from, in the client's order, and what can be said of it once it is."""

import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from math import lcm
from typing import Any, NamedTuple

from proxy_inference_engine.state_machine.json_schema.bounds import gathered, spread, uncounted
from proxy_inference_engine.state_machine.json_schema.budget import StepBudget
from proxy_inference_engine.state_machine.json_schema.errors import UnenforceableSchema
from proxy_inference_engine.state_machine.json_schema.keywords import KINDS, Kinds, Schema, children
from proxy_inference_engine.state_machine.json_schema.overlaps import joined
from proxy_inference_engine.state_machine.json_schema.presence import names_in, together

DEFINITIONS = "#/$defs/"
# The library follows all alternatives at once, each with the properties that may come next, up to 2,000 items or so;
# a property is two or three of them.
MAX_ROW = 800
MIN_WIDTH = 8
MANY = 1 << 20  # no need to count further


class Result:
    """A schema under construction: the parts that hold together, in order, or nothing once one is impossible.

    The library fixes the order of properties by the order of parts in allOf, and of nothing else.
    """

    def __init__(self, budget: StepBudget, known: Callable[[], Mapping[str, Kinds]] | None = None) -> None:
        """`known` tells kinds that the properties of an object can only be; None: it need not be an object."""
        self._known = known
        self._names: dict[str, None] = {}  # in the order in which they are mentioned, where alternatives are joined
        self._parts: list[Any] = []
        self._is_possible = True
        self._num_alternatives = 1
        self._num_openings = 1  # of the part that has most
        self._budget = budget

    def add_plain(self, keywords: Any) -> None:
        """Keywords about one kind of value each, and alternatives that the number of properties leaves."""
        options = keywords.pop("anyOf", None) if isinstance(keywords, dict) else None
        self.add_part(keywords)
        if options is not None:
            self.add_options(options)

    def add_values(self, values: list[Any] | None) -> None:
        """The only values there are; None where they do not bind."""
        if values is not None:
            self.add_part({"enum": values} if values else False)

    def add_options(self, options: list[Any]) -> None:
        """Schemas of which one must hold."""
        options = [option for option in options if option is not False]
        if not options:
            self.add_part(False)
        elif {} not in options:
            self.add_part({"anyOf": options} if len(options) > 1 else options[0])

    def add_part(self, part: Any) -> None:
        """A schema that must hold together with the parts there are."""
        if part is False:
            self._is_possible = False
            return
        for one in part["allOf"] if part.keys() == {"allOf"} else (part,):
            self._budget.spend(1 + len(self._parts) // 8)
            if one != {} and one not in self._parts and not self._joins(one):
                self._num_alternatives = min(MANY, self._num_alternatives * num_alternatives(one, self._budget))
                self._num_openings = max(self._num_openings, num_openings(one))
                self._parts.append(one)

    def _joins(self, part: Any) -> bool:
        """Whether the part's alternatives could be joined with those of another part."""
        if self._known is None or "anyOf" not in part:
            return False
        self._names |= dict.fromkeys(names_in(part))
        for index, one in enumerate(self._parts):
            both = together(one, part, self._known(), self._names, self._budget)
            if both is not None:
                self._parts[index : index + 1] = []
                counts = [num_alternatives(other, self._budget) for other in self._parts]
                self._num_alternatives = min(MANY, math.prod(counts))
                self.add_part(both)
                return True
        return False

    def takes(self, part: Any) -> bool:
        """Add a part, unless it makes too many combinations with the alternatives there are; alone it may have many."""
        before = self._parts.copy(), self._num_alternatives, self._num_openings, self._is_possible
        self.add_part(part)
        if not before[0] or part is False or num_alternatives(part, self._budget) == 1:
            return True
        if self._num_alternatives * max(MIN_WIDTH if before[1] > 1 else 1, before[2]) <= MAX_ROW:
            return True
        self._parts, self._num_alternatives, self._num_openings, self._is_possible = before
        return False

    def without_counts(self) -> Any:
        """All parts as one schema, without bounds that stand alone."""
        self._parts = [left for part in self._parts if (left := uncounted(part)) is not None]
        return self.schema()

    def _counted(self) -> list[Any]:
        return spread(gathered(self._parts, self._budget), self._budget)

    def schema(self) -> Any:
        """All parts as one schema; raises NotEnforceable where bounds on properties have too many ways to be met."""
        parts = joined(self._counted(), self._budget) if len(self._parts) > 1 else self._parts
        if not self._is_possible or False in parts:
            return False
        if len(parts) > 1:
            return {"allOf": parts}
        return parts[0] if parts else {}


def num_openings(schema: Mapping[str, Any]) -> int:
    """How many properties may be the first one of an object."""
    names = list(schema.get("properties", ()))
    required = set(schema.get("required", ()))
    return next((index + 1 for index, name in enumerate(names) if name in required), len(names))


def num_alternatives(schema: Any, budget: StepBudget) -> int:
    """How many ways a rewritten schema has to be satisfied, by the alternatives written in it; at most MANY."""
    if not isinstance(schema, dict):
        return 1
    budget.think(2)
    result = sum(num_alternatives(option, budget) for option in schema.get("anyOf", ())) or 1
    for part in schema.get("allOf", ()):
        result = min(MANY, result * num_alternatives(part, budget))
    return min(MANY, result)


def type_names(schema: Mapping[str, Any], kinds: set[str]) -> str | list[str]:
    """The value of "type" for some kinds, whole numbers where the client asks for them."""
    given = schema.get("type", sorted(KINDS))
    given = given if isinstance(given, list) else [given]
    names = [name for name in dict.fromkeys(given) if ("number" if name == "integer" else name) in kinds]
    if "number" in names and "integer" in names:
        names.remove("integer")
    return names[0] if len(names) == 1 else names


def property_of(schema: Mapping[str, Any], name: str) -> Schema:
    """What a rewritten object says of a property; True where a pattern may say more."""
    if name in schema.get("properties", {}):
        return schema["properties"][name]
    return True if schema.get("patternProperties") else schema.get("additionalProperties", True)


def depth_of(schema: Mapping[str, Any], budget: StepBudget) -> int:
    """How many schemas the library has open at once when it reads a document, following references when first met."""
    definitions = schema.get("$defs", {})
    root = {keyword: one for keyword, one in schema.items() if keyword != "$defs"}
    deepest = 0
    seen: set[str] = set()
    stack: list[tuple[Any, int]] = [(root, 1)]
    while stack:
        budget.spend()
        one, depth = stack.pop()
        deepest = max(deepest, depth)
        if not isinstance(one, dict):
            continue
        below = [child for _, child in children(one)]
        if "$ref" in one and one["$ref"] not in seen:
            seen.add(one["$ref"])
            below.append(definitions[one["$ref"].removeprefix(DEFINITIONS)])
        stack += [(child, depth + 1) for child in reversed(below)]
    return deepest


# Which definitions some finite value satisfies


def unproductive(definitions: Mapping[str, Any], budget: StepBudget) -> set[str]:
    """The names of definitions that no finite value satisfies: one that needs itself forever has none."""
    unknown = dict(definitions)
    while True:
        # Definitions stand before those they need, so that backwards most are settled in one go.
        found = [name for name in reversed(list(unknown)) if _settle(name, unknown, budget)]
        if not found:
            return set(unknown)


def _settle(name: str, unknown: dict[str, Any], budget: StepBudget) -> bool:
    if not _has_value(unknown[name], unknown, budget):
        return False
    del unknown[name]
    return True


def _has_value(schema: Any, unknown: Mapping[str, Any], budget: StepBudget) -> bool:
    """Whether there is a value, given the definitions of which that is not known."""
    budget.spend()
    if not isinstance(schema, dict):
        return schema is not False
    if "$ref" in schema and schema["$ref"].removeprefix(DEFINITIONS) in unknown:
        return False
    if "anyOf" in schema and not any(_has_value(option, unknown, budget) for option in schema["anyOf"]):
        return False
    if not all(_has_value(part, unknown, budget) for part in schema.get("allOf", ())):
        return False
    kind = schema.get("type")
    if kind == "object":
        return all(_has_value(property_of(schema, name), unknown, budget) for name in schema.get("required", ()))
    if kind == "array":
        least = schema.get("minItems", 0)
        prefix = schema.get("prefixItems", [])[:least]
        rest = [schema.get("items", True)] if least > len(prefix) else []
        return all(_has_value(item, unknown, budget) for item in (*prefix, *rest))
    return True


MAX_DIVISOR = 1_000_000
MAX_DECIMALS = 9
_MAX_HELD = 2**32 - 1


class Divisor(NamedTuple):
    """A number without its decimal point, and how many digits stand behind it."""

    digits: int
    num_decimals: int

    @property
    def is_held(self) -> bool:
        """Whether its multiples can be told; a large one has more remainders than there is time for."""
        return self.digits <= MAX_DIVISOR and self.num_decimals <= MAX_DECIMALS


def divisor_of(number: int | float) -> Divisor:
    _, digits, exponent = Decimal(str(number)).as_tuple()
    assert isinstance(exponent, int), "only finite numbers are well-formed"
    whole = int("".join(map(str, digits))) * 10 ** max(0, exponent)
    num_decimals = max(0, -exponent)
    while num_decimals and whole % 10 == 0:
        whole, num_decimals = whole // 10, num_decimals - 1
    return Divisor(whole, num_decimals)


def check_multiples(schema: Mapping[str, Any], budget: StepBudget) -> None:
    """Refuse a rewritten schema with divisors that hold together but whose product the library could not hold.

    It would not notice: the product would lose its first digits, and other numbers would pass for multiples.
    """
    definitions = schema.get("$defs", {})
    stack: list[Any] = [schema]
    while stack:
        budget.spend()
        one = stack.pop()
        if not isinstance(one, dict):
            continue
        if len(one.get("allOf", ())) > 1:
            _check_together(one["allOf"], definitions, budget)
        stack += [below for _, below in children(one)]


def _check_together(parts: list[Any], definitions: Mapping[str, Any], budget: StepBudget) -> None:
    found = [divisors for divisors in (_divisors(part, definitions, budget) for part in parts) if divisors]
    if len(found) < 2:
        return
    every = set[Divisor]().union(*found)
    num_decimals = max(each.num_decimals for each in every)
    whole = [each.digits * 10 ** (num_decimals - each.num_decimals) for each in every]
    if lcm(*whole) * max(whole) > _MAX_HELD:
        raise UnenforceableSchema("", "multipleOf", "The common multiples of such numbers cannot be enforced.")


def _divisors(schema: Any, definitions: Mapping[str, Any], budget: StepBudget) -> set[Divisor]:
    """The divisors in all that a schema may say about its own value."""
    found: set[Divisor] = set()
    seen: set[str] = set()
    stack = [schema]
    while stack:
        budget.spend()
        one = stack.pop()
        if not isinstance(one, dict):
            continue
        if "multipleOf" in one:
            found.add(divisor_of(one["multipleOf"]))
        stack += [*one.get("allOf", ()), *one.get("anyOf", ())]
        name = one.get("$ref", "").removeprefix(DEFINITIONS)
        if name and name not in seen:
            seen.add(name)
            stack.append(definitions[name])
    return found
