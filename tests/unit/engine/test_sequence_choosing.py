"""What ends a choice, and what it may not say."""

from dataclasses import replace

import pytest

from proxy_inference_engine.engine.sequence import Choosing, Sequence, banned_ids
from proxy_inference_engine.types import Limits, Request
from tests.requests import make_request
from tests.unit.engine.constrained import DEMANDS, constrained
from tests.unit.engine.driven import make_sequence

END = 99


def _prepared(request: Request) -> Sequence:
    sequence = make_sequence(request)
    sequence.matcher = None if request.constraint is None else request.constraint.start()
    Choosing(frozenset({END})).prepare(sequence)
    return sequence


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
    assert _prepared(make_request(limits=limits)).ends == ends
    assert _prepared(replace(constrained(DEMANDS["record"]), limits=limits)).ends == ends_of_grammar


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
    sequence = _prepared(make_request(limits=limits))
    found = []
    for _ in range(9):
        found.append(banned_ids(sequence))
        sequence.append(7)
    assert [found[num_said] for num_said in (0, 2, 3, 8)] == [early, early, late, late]
