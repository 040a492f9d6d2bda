"""Tries a format out: can it be enforced, what does it cost, and which instances does its grammar let through?"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, NamedTuple

from proxy_inference_engine.state_machine.demand import (
    Demand,
    InvalidDemand,
    JsonObject,
    JsonSchema,
    OutputFormat,
    SchemaProblem,
)
from proxy_inference_engine.state_machine.json_schema.document import WHOLE, rooted
from proxy_inference_engine.state_machine.json_schema.keywords import Address, at, children, pointer
from proxy_inference_engine.state_machine.machine import Machine, MachineBuilder
from proxy_inference_engine.state_machine.matcher import GrammarFailure
from proxy_inference_engine.types import Matcher

_MAX_TRIED = 24
_HALF_PAIR = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Compilation:
    """`machine` None: refused, for the reason in `error`."""

    machine: Machine | None
    error: str | None
    compile_ms: float
    place: SchemaProblem | None = None  # where in a schema the reason lies, where that is known


class Walk(NamedTuple):
    """One instance under the grammar."""

    is_accepted: bool
    text: str
    num_chars_accepted: int
    num_tokens: int
    num_forced: int  # tokens that the model would not have been asked for
    mask_us: list[float]


class Trial:
    """Schemas and instances against the grammars that requests get: the same builder, the same masks."""

    def __init__(self, builder: MachineBuilder) -> None:
        self._builder = builder
        builder.warm()
        # What is made once per model, the process that tries patterns too, is no schema's cost.
        self.compile({"type": "string", "pattern": "^a$"})

    def compile(
        self, schema: Mapping[str, Any] | bool, *, is_strict: bool = True, any_order: bool = False
    ) -> Compilation:
        return self.build(Demand(JsonSchema(schema, is_strict), can_reason=False, any_order=any_order))

    def build(self, demand: Demand, tenant: str = "") -> Compilation:
        """How a demand compiles, and in what time. Raises Unavailable when too many grammars are being compiled."""
        began = perf_counter()
        machine, failure = None, None
        try:
            machine = self._builder.build(demand, tenant)
        except InvalidDemand as error:
            failure = error
        compile_ms = (perf_counter() - began) * 1000
        if failure is None:
            return Compilation(machine, None, compile_ms)
        place = None if failure.place is not None else self._place(demand, failure, tenant)
        if place is None:
            return Compilation(None, failure.message, compile_ms, failure.place)
        where = f"{place.path}: {place.keyword}" if place.keyword else place.path
        return Compilation(None, f"the schema cannot be enforced ({where}): {place.reason}", compile_ms, place)

    def _place(self, demand: Demand, failure: InvalidDemand, tenant: str) -> SchemaProblem | None:
        """The smallest schema within one that does not compile alone either, found by trying."""
        output = demand.output
        if not isinstance(output, JsonSchema) or not output.is_strict or not isinstance(output.schema, Mapping):
            return None
        address: Address = ()
        found, whole = output.schema, rooted(output.schema)
        draft = {key: one for key, one in output.schema.items() if key == "$schema"}
        pending = _below(found, address, output.schema)
        for _ in range(_MAX_TRIED):
            if not pending:
                break
            there, one = pending.pop(0)
            alone = {**draft, "$ref": f"#/$defs/{WHOLE}{pointer(there)}", "$defs": {WHOLE: whole}}
            if isinstance(one, Mapping) and self._fails(replace(demand, output=JsonSchema(alone)), tenant):
                address, found, pending = there, one, _below(one, there, output.schema)
        reason = failure.message.removeprefix("the format cannot be enforced: ")
        keyword = _keyword_of(reason)
        return SchemaProblem(pointer((*address, keyword) if keyword in found else address) or "/", keyword, reason)

    def _fails(self, demand: Demand, tenant: str) -> bool:
        """Whether what is asked for is written as a grammar, and the library does not compile it."""
        try:
            self._builder.build(demand, tenant)
        except InvalidDemand as failure:
            return failure.place is None
        return False

    def write(self, instance: Any, output: OutputFormat | None = None) -> str:
        """An instance in the grammar's own spacing, keys in the order given; of a format that is no JSON a text."""
        if output is not None and not isinstance(output, JsonSchema | JsonObject):
            return str(instance)
        spacing = self._builder.spacing
        text = json.dumps(instance, ensure_ascii=False, separators=(spacing.item, spacing.key))
        return _HALF_PAIR.sub(lambda half: f"\\u{ord(half[0]):04x}", text)  # UTF-8 has no way to write it

    def walk(self, machine: Machine, instance: Any) -> Walk:
        return self.walk_text(machine, self.write(instance))

    def walk_text(self, machine: Machine, text: str) -> Walk:
        assert machine.constraint is not None
        matcher = machine.constraint.start()
        tokenizer = self._builder.vocabulary.tokenizer
        ids = self._builder.vocabulary.encode_inside(text)
        mask_us: list[float] = []
        num_bytes = num_forced = 0
        is_accepted = False
        try:
            for token_id in ids:
                num_forced += matcher.forced()[:1] == [token_id]
                if not self._allows(matcher, token_id, mask_us):
                    break
                matcher.accept(token_id)
                num_bytes += len(tokenizer.token_bytes(token_id))
            else:
                is_accepted = matcher.is_complete or self._allows(matcher, min(tokenizer.end_ids), mask_us)
        except GrammarFailure:
            is_accepted = False
        num_chars = len(text.encode()[:num_bytes].decode(errors="ignore"))
        return Walk(is_accepted, text, num_chars, len(ids), num_forced, mask_us)

    @staticmethod
    def _allows(matcher: Matcher, token_id: int, mask_us: list[float]) -> bool:
        if matcher.is_complete:
            return False
        began = perf_counter()
        allowed = matcher.mask()
        mask_us.append((perf_counter() - began) * 1e6)
        return allowed is None or bool(allowed[token_id])


# What to write instead of a keyword that cannot be enforced as it stands.
_ADVICE = {
    "oneOf": "Write anyOf, or give each branch a property with another const, which tells them apart.",
    "not": "Say what the value may be instead: an enum, a type, a range.",
    "if": "Write the cases out as an anyOf, each with a const for what the condition looks at.",
    "uniqueItems": (
        "Make them strings, whole numbers, an enum, or objects that all need one property which is such, alike at "
        "every place (before vLLM an enum of a few values); else check it afterwards."
    ),
    "contains": "Describe the first places with prefixItems, or lower minContains.",
    "pattern": "Write a pattern without lookaround, backreferences and word boundaries, with smaller counts.",
    "patternProperties": "Name the properties, or use one pattern that no other overlaps.",
    "propertyNames": "Give it an enum or a plain pattern, or name the properties.",
    "multipleOf": "Use a number with fewer digits, or an integer of another unit.",
    "minProperties": "List what is needed in required.",
    "maxProperties": "Name the properties and leave fewer of them optional.",
    "unevaluatedProperties": "Write additionalProperties: false where the properties are listed.",
    "unevaluatedItems": "Write items: false beside prefixItems.",
    "$ref": "Put the definition under $defs of the same schema, and refer to it as #/$defs/NAME.",
    "$recursiveRef": "Declare draft 2019-09 in $schema, or refer to a definition by its own name: #/$defs/NAME.",
    "$dynamicRef": "Refer to a definition by its own name: #/$defs/NAME.",
}
_LEAVE_OUT = "Leave it out and check it afterwards, or send strict: false: everything else still binds then."


def _below(schema: Mapping[str, Any], address: Address, root: Mapping[str, Any]) -> list[tuple[Address, Any]]:
    """The schemas in a schema, with their addresses, and the one that it refers to."""
    reference = schema.get("$ref")
    target = tuple(reference.split("/")[1:]) if isinstance(reference, str) and reference.startswith("#/") else address
    referred = [] if target == address else [(target, at(root, target))]
    return referred + [((*address, *below), one) for below, one in children(schema)]


def _keyword_of(message: str) -> str:
    """What the library speaks of."""
    return "patternProperties" if "patternProperty" in message else "pattern" if "regex" in message else ""


def advise(place: SchemaProblem | None, *, can_relax: bool) -> str | None:
    """What to write instead, where the problem lies in a schema. `can_relax`: with strict: false it would be taken."""
    return None if place is None else _ADVICE.get(place.keyword, _LEAVE_OUT if can_relax else None)


def spread(values: list[float]) -> dict[str, float]:
    """Mean, median, 99th percentile and largest; zeros of nothing."""
    if not values:
        return dict.fromkeys(("mean", "p50", "p99", "max"), 0.0)
    ranked = sorted(values)
    return {
        "mean": round(sum(ranked) / len(ranked), 1),
        "p50": round(ranked[len(ranked) // 2], 1),
        "p99": round(ranked[min(len(ranked) - 1, int(len(ranked) * 0.99))], 1),
        "max": round(ranked[-1], 1),
    }
