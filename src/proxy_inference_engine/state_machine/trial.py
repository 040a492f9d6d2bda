"""Tries a schema out: can it be enforced, what does it cost, and which instances does its grammar let through?"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple

from proxy_inference_engine.state_machine.demand import Demand, InvalidDemand, JsonSchema
from proxy_inference_engine.state_machine.machine import Machine, MachineBuilder
from proxy_inference_engine.state_machine.matcher import GrammarFailure
from proxy_inference_engine.types import Matcher

_HALF_PAIR = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Compilation:
    """`machine` None: refused, for the reason in `error`."""

    machine: Machine | None
    error: str | None
    compile_ms: float


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
        _ = builder.vocabulary.ll  # made once per model: no schema's cost

    def compile(self, schema: Mapping[str, Any] | bool, *, is_strict: bool = True) -> Compilation:
        began = perf_counter()
        machine, reason = None, None
        try:
            machine = self._builder.build(Demand(JsonSchema(schema, is_strict), can_reason=False))
        except InvalidDemand as error:
            reason = error.message
        return Compilation(machine, reason, (perf_counter() - began) * 1000)

    def write(self, instance: Any) -> str:
        """An instance in the grammar's own spacing, keys in the order given."""
        spacing = self._builder.spacing
        text = json.dumps(instance, ensure_ascii=False, separators=(spacing.item, spacing.key))
        return _HALF_PAIR.sub(lambda half: f"\\u{ord(half[0]):04x}", text)  # UTF-8 has no way to write it

    def walk(self, machine: Machine, instance: Any) -> Walk:
        assert machine.constraint is not None
        matcher = machine.constraint.start()
        tokenizer = self._builder.vocabulary.tokenizer
        text = self.write(instance)
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
