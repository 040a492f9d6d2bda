"""Tokens that a device chooses: in which states, with which bans, and what becomes of those that are lost."""

from collections.abc import Sequence as SequenceOf
from dataclasses import replace

import numpy as np
import pytest

from proxy_inference_engine.engine.deferral import Deferral
from proxy_inference_engine.engine.drafts.speculation import Drafter
from proxy_inference_engine.engine.sequence import Choosing, Sequence
from proxy_inference_engine.runners.base import Logits, Want
from proxy_inference_engine.types import Limits, Request, State
from tests.deferred import DeferredChooser, DeferredPicks
from tests.requests import GREEDY, make_request
from tests.unit.engine.driven import make_sequence

END = 99
LOGITS: Logits = np.zeros((1, 260), np.float32)
STATES: set[State] = {"text", "reasoning", "tool_call", "structured"}
PENALISED = replace(GREEDY, repetition_penalty=2.0)  # no device chooses with it


class Noting(DeferredChooser):
    """Keeps what was ordered; fails where it is told to."""

    def __init__(self, *, is_broken: bool = False) -> None:
        super().__init__(260)
        self.wants: list[Want] = []
        self._is_broken = is_broken

    def choose(self, wants: SequenceOf[Want]) -> DeferredPicks:
        if self._is_broken:
            raise RuntimeError("injected fault")
        self.wants += wants
        return super().choose(wants)


def _prepared(deferral: Deferral, request: Request) -> Sequence:
    sequence = make_sequence(request)
    sequence.drafter = Drafter(request.draft_ids, len(request.prompt_ids)) if request.draft_ids else None
    Choosing(frozenset({END})).prepare(sequence)
    deferral.prepare(sequence)
    return sequence


def _states(request: Request) -> frozenset[State]:
    return _prepared(Deferral(Noting(), lambda lost: None), request).deferred_states


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
def test_the_device_hears_what_is_banned(limits: Limits, early: set[int], late: set[int]) -> None:
    chooser = Noting()
    deferral = Deferral(chooser, lambda lost: None)
    for num_said in (0, 2, 3, 8):
        sequence = _prepared(deferral, make_request(limits=limits))
        for _ in range(num_said):
            sequence.append(7)
        assert deferral.want(sequence, LOGITS)
        deferral.order()
    assert [want.banned for want in chooser.wants] == [early, early, late, late]


def test_a_device_chooses_in_the_states_whose_sampling_it_knows() -> None:
    request = make_request()
    assert _states(request) == STATES
    mixed = replace(request, state_sampling={"reasoning": PENALISED})
    assert _states(mixed) == STATES - {"reasoning"}
    other_way = replace(request, sampling=PENALISED, state_sampling={"tool_call": GREEDY})
    assert _states(other_way) == {"tool_call"}


def test_guesses_and_log_probabilities_are_chosen_here() -> None:
    for request in (make_request(num_top_logprobs=0), replace(make_request(), draft_ids=(1, 2))):
        deferral = Deferral(Noting(), lambda lost: None)
        sequence = _prepared(deferral, request)
        assert not sequence.deferred_states
        assert not deferral.want(sequence, LOGITS)


def test_what_is_ordered_is_read_once() -> None:
    deferral = Deferral(Noting(), lambda lost: None)
    sequences = [_prepared(deferral, make_request(id=name)) for name in "ab"]
    for sequence in sequences:
        assert deferral.want(sequence, LOGITS)
    deferral.order()
    assert all(sequence.unread is not None for sequence in sequences)
    assert deferral.read() == [(sequence, 0) for sequence in sequences]
    assert deferral.read() == []


def test_who_is_over_when_it_is_ordered_gets_no_token() -> None:
    chooser = Noting()
    deferral = Deferral(chooser, lambda lost: None)
    gone, stays = (_prepared(deferral, make_request(id=name)) for name in "ab")
    for sequence in (gone, stays):
        deferral.want(sequence, LOGITS)
    gone.is_over = True
    deferral.order()
    assert len(chooser.wants) == 1 and gone.unread is None
    assert [sequence for sequence, _ in deferral.read()] == [stays]


@pytest.mark.parametrize("is_read", [False, True])
def test_who_is_lost_is_named(is_read: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: DeferredPicks) -> None:
        raise RuntimeError("injected fault")

    lost: list[Sequence] = []
    deferral = Deferral(Noting(is_broken=not is_read), lost.extend)
    sequence = _prepared(deferral, make_request())
    deferral.want(sequence, LOGITS)
    monkeypatch.setattr(DeferredPicks, "read", broken)
    deferral.order()
    assert deferral.read() == [] and lost == [sequence]
