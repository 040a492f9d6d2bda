"""Grammars in the engine: sampling by state, and failures that stay with their request."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from proxy_inference_engine.errors import EngineFailure
from proxy_inference_engine.state_machine.demand import Demand, JsonSchema
from proxy_inference_engine.state_machine.matcher import GrammarFailure, GrammarTooComplex
from proxy_inference_engine.types import Constraint, Failed, Matcher, Request, Sampling, State
from tests.unit.engine.constrained import DEMANDS, RECORD, brief, constrained, text_of
from tests.unit.engine.driven import Driven, alone

# Sampling by state


HOT, COLD = Sampling(seed=0, temperature=5.0), Sampling(seed=0, temperature=0.0)


def _answers(request: Request, states: Mapping[State, Sampling]) -> set[str]:
    """What twelve seeds say when all but the given states is hot."""
    hot = [replace(request, sampling=replace(HOT, seed=seed), state_sampling=states) for seed in range(12)]
    return {text_of(alone(one)) for one in hot}


def test_calls_at_temperature_0_take_the_likeliest_allowed_token() -> None:
    request = constrained(DEMANDS["call"])
    assert len(_answers(request, {})) > 1
    assert _answers(request, {"tool_call": COLD}) == {text_of(alone(replace(request, sampling=COLD)))}
    assert len(_answers(request, {"text": COLD})) > 1


def test_reasoning_and_answer_are_sampled_apart() -> None:
    demand = Demand(output=JsonSchema(RECORD), is_reasoning_open=True, max_reasoning_tokens=6)
    request = constrained(demand)
    answers = _answers(request, {"reasoning": COLD})
    assert len({text[:6] for text in answers}) == 1 and len(answers) > 1
    answers = _answers(request, {"structured": COLD})
    assert len({text[:6] for text in answers}) > 1


# Failures


class _Failing:
    """A matcher that fails at a given token."""

    def __init__(self, num_tokens: int, where: str, failure: type[GrammarFailure] = GrammarFailure) -> None:
        self._left = num_tokens
        self._where = where
        self._failure = failure
        self.state: State = "text"
        self.is_complete = False
        self.grammar: str | None = None
        self.min_reasoning_tokens = 0
        self.budget = None

    def start(self) -> Matcher:
        return _Failing(self._left, self._where, self._failure)

    def _maybe_fail(self, where: str) -> None:
        if self._left <= 0 and self._where == where:
            raise self._failure("over its limits")

    def mask(self) -> NDArray[np.bool_] | None:
        self._maybe_fail("mask")
        return None

    def prepare(self) -> None:
        """There is nothing to work out."""

    def forced(self) -> list[int]:
        self._maybe_fail("forced")
        return []

    def accept(self, token_id: int) -> None:
        self._left -= 1
        self._maybe_fail("accept")


@pytest.mark.parametrize("where", ["mask", "forced", "accept"])
def test_a_failing_matcher_ends_only_its_own_request(where: str) -> None:
    constraint: Constraint = _Failing(4, where)
    good = constrained(DEMANDS["record"], id="good")
    bad = replace(constrained(DEMANDS["record"], id="bad", num_choices=2), constraint=constraint)
    driven = Driven()
    driven.run(good, bad)
    assert brief(driven.heard["good", 0]) == brief(alone(good))
    outputs = [output for choice in (0, 1) for output in driven.heard["bad", choice].outputs]
    assert driven.heard["bad", 0].error.code == "grammar_failed"
    assert sum(isinstance(output, Failed) for output in outputs) == 1, "the request hears of it once"


def test_a_grammar_that_is_too_complex_is_its_clients_fault() -> None:
    driven = Driven()
    driven.run(replace(constrained(DEMANDS["record"], id="bad"), constraint=_Failing(4, "mask", GrammarTooComplex)))
    error = driven.heard["bad", 0].error
    assert (error.status, error.code) == (400, "grammar_too_complex")


def test_a_matcher_that_fails_at_the_start_is_refused_at_the_door() -> None:
    driven = Driven()
    bad = replace(constrained(DEMANDS["record"], id="bad"), constraint=_Failing(0, "forced"))
    with pytest.raises(EngineFailure):
        driven.add(bad)
    assert "bad" not in driven.engine
    driven.run(constrained(DEMANDS["record"]))
