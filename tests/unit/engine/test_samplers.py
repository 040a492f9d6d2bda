"""One choice's samplers: each state its own sampling, all of them the whole text."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from proxy_inference_engine.engine.sequence import Samplers
from proxy_inference_engine.runners.base import Logits
from proxy_inference_engine.sampling.sampler import Sampler
from proxy_inference_engine.types import Limits, Request, Sampling, State

VOCABULARY = 12
HOT = Sampling(seed=3, temperature=2.0)
COLD = Sampling(seed=3, temperature=0.0)
PROMPT = (1, 2, 3)


def _samplers(sampling: Sampling, by_state: Mapping[State, Sampling], choice: int = 0) -> Samplers:
    request = Request("a", "t", PROMPT, sampling, Limits(9), state_sampling=by_state)
    return Samplers(request, choice, VOCABULARY)


def _row(seed: int) -> Logits:
    return np.random.default_rng(seed).normal(0, 1, VOCABULARY).astype(np.float32)


def test_without_states_they_are_one_sampler() -> None:
    samplers = _samplers(HOT, {}, choice=2)
    single = Sampler(HOT, choice=2, prompt_ids=PROMPT, num_tokens=VOCABULARY)
    for position in range(50):
        token_id = samplers.sample(_row(position), position)
        assert token_id == single.sample(_row(position), position)
        samplers.accept(token_id)
        single.accept(token_id)


@pytest.mark.parametrize("state", ["text", "reasoning", "tool_call", "structured"])
def test_each_state_has_its_own_sampling(state: State) -> None:
    samplers = _samplers(HOT, {state: COLD})
    others: list[State] = [other for other in ("text", "reasoning", "tool_call", "structured") if other != state]
    rows = [_row(position) for position in range(60)]
    cold = [samplers.sample(row, position, state=state) for position, row in enumerate(rows)]
    assert cold == [int(row.argmax()) for row in rows]
    for other in others:
        assert [samplers.sample(row, position, state=other) for position, row in enumerate(rows)] != cold


def test_every_sampler_hears_every_token() -> None:
    """A penalty of one state counts what was said in the others."""
    strict = replace(COLD, repetition_penalty=1e6)
    samplers = _samplers(COLD, {"tool_call": strict})
    row = np.zeros(VOCABULARY, np.float32) + 1
    row[7], row[8] = 5, 4
    assert samplers.sample(row, 0, state="tool_call") == 7
    samplers.accept(7)
    assert samplers.sample(row, 1, state="tool_call") == 8
    assert samplers.sample(row, 1, state="text") == 7


def test_a_state_draws_with_the_number_of_its_position() -> None:
    """The same sampling under another name changes no token."""
    plain, named = _samplers(HOT, {}), _samplers(HOT, {"reasoning": HOT})
    for position in range(40):
        row = _row(position)
        assert plain.sample(row, position) == named.sample(row, position, state="reasoning")


def test_bans_and_masks_reach_the_states_sampler() -> None:
    samplers = _samplers(HOT, {"structured": COLD})
    allowed = np.zeros(VOCABULARY, np.bool_)
    allowed[[4, 5]] = True
    row = np.arange(VOCABULARY, dtype=np.float32)
    assert samplers.sample(row, 0, (), allowed, "structured") == 5
    assert samplers.sample(row, 0, {5}, allowed, "structured") == 4
