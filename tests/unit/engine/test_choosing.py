"""What ends a choice, what it may not say, and in which states a device chooses for it."""

from dataclasses import replace

import numpy as np
import pytest

from proxy_inference_engine.engine.choosing import Choosing
from proxy_inference_engine.engine.sequence import Sequence
from proxy_inference_engine.engine.speculation import make_drafter
from proxy_inference_engine.runners.base import Want
from proxy_inference_engine.types import Limits, Request, State
from tests.deferred import DeferredChooser
from tests.requests import GREEDY, make_request
from tests.unit.engine.constrained import DEMANDS, constrained
from tests.unit.engine.driven import make_sequence

END = 99
STATES: set[State] = {"text", "reasoning", "tool_call", "structured"}
PENALISED = replace(GREEDY, repetition_penalty=2.0)  # no device chooses with it


def _prepared(request: Request, *, ngram_draft_tokens: int = 0) -> tuple[Choosing, Sequence]:
    choosing = Choosing(frozenset({END}), DeferredChooser(260))
    sequence = make_sequence(request)
    sequence.matcher = None if request.constraint is None else request.constraint.start()
    sequence.drafter = make_drafter(request, ngram_draft_tokens)
    choosing.prepare(sequence)
    return choosing, sequence


def _want(request: Request, num_said: int) -> Want:
    choosing, sequence = _prepared(request)
    for _ in range(num_said):
        sequence.append(7)
    want = choosing.defer(sequence, np.zeros((1, 260), np.float32))
    assert want is not None
    return want


@pytest.mark.parametrize(
    ("limits", "ends", "ends_of_grammar"),
    [
        (Limits(9), {END}, {END}),
        (Limits(9, stop_token_ids=frozenset({5})), {5, END}, {5, END}),
        (Limits(9, stop_token_ids=frozenset({5}), ignore_eos=True), {5}, {5, END}),
        (Limits(9, ignore_eos=True), set(), {END}),
    ],
)
def test_what_ends_a_choice(limits: Limits, ends: set[int], ends_of_grammar: set[int]) -> None:
    assert _prepared(make_request(limits=limits))[1].ends == ends
    assert _prepared(replace(constrained(DEMANDS["record"]), limits=limits))[1].ends == ends_of_grammar


@pytest.mark.parametrize(
    ("limits", "early", "late"),
    [
        (Limits(9), set(), set()),
        (Limits(9, stop_token_ids=frozenset({5})), set(), set()),
        (Limits(9, 3), {END}, set()),
        (Limits(9, 3, frozenset({5})), {5, END}, set()),
        (Limits(9, 3, frozenset({5}), ignore_eos=True), {5, END}, {END}),
        (Limits(9, 3, ignore_eos=True), {END}, {END}),
        (Limits(9, ignore_eos=True), {END}, {END}),
    ],
)
def test_an_end_is_banned_before_min_tokens(limits: Limits, early: set[int], late: set[int]) -> None:
    found = [_want(make_request(limits=limits), num_said).banned for num_said in (0, 2, 3, 8)]
    assert found == [early, early, late, late]


def test_a_device_chooses_in_the_states_whose_sampling_it_knows() -> None:
    request = make_request()
    assert _prepared(request)[1].deferred_states == STATES
    mixed = replace(request, state_sampling={"reasoning": PENALISED})
    assert _prepared(mixed)[1].deferred_states == STATES - {"reasoning"}
    other_way = replace(request, sampling=PENALISED, state_sampling={"tool_call": GREEDY})
    assert _prepared(other_way)[1].deferred_states == {"tool_call"}


def test_guesses_and_log_probabilities_are_chosen_here() -> None:
    for request, num_drafted in [(make_request(num_top_logprobs=0), 0), (make_request(), 4)]:
        choosing, sequence = _prepared(request, ngram_draft_tokens=num_drafted)
        assert not sequence.deferred_states
        assert choosing.defer(sequence, np.zeros((1, 260), np.float32)) is None
