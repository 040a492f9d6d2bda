"""Whether guesses pay, from seconds alone."""

from itertools import pairwise

import pytest

from proxy_inference_engine.engine.drafts.payoff import Payoff


def passes(payoff: Payoff, num_passes: int, *, round_s: float, num_right: int, num_rows: int = 1) -> list[bool]:
    """What was allowed, pass by pass; a plain one takes a second a row, and a guess is of eight tokens."""
    allowed = []
    for _ in range(num_passes):
        allowed.append(payoff.allows())
        if allowed[-1]:
            payoff.observe_round(num_rows, 8, round_s)
            payoff.gain(num_right)
        else:
            payoff.observe_plain(num_rows, float(num_rows))
    return allowed


def test_plain_passes_are_measured_first() -> None:
    assert passes(Payoff(), 6, round_s=1.0, num_right=1) == [False, False, True, True, True, True]


@pytest.mark.parametrize(
    ("round_s", "num_right", "num_rows", "pays"),
    [
        (2.0, 2, 1, True),  # three tokens in two seconds
        (2.0, 1, 1, True),  # no gain and no loss
        (2.1, 1, 1, False),
        (1.1, 0, 1, False),
        (9.0, 8, 4, True),  # twelve tokens, which four plain rows have in twelve seconds
        (11.5, 7, 4, False),
        (0.0, 0, 1, True),  # a clock that stands still shows no loss
    ],
)
def test_what_loses_stops_after_a_few_rounds(round_s: float, num_right: int, num_rows: int, pays: bool) -> None:
    allowed = passes(Payoff(), 30, round_s=round_s, num_right=num_right, num_rows=num_rows)
    assert sum(allowed) == (28 if pays else 4)


def test_what_cannot_pay_stops_at_once() -> None:
    """Nine tokens at most, in ten seconds."""
    assert passes(Payoff(), 30, round_s=10.0, num_right=8).count(True) == 2


def test_a_loser_is_tried_again_after_longer_and_longer_rests() -> None:
    allowed = passes(Payoff(), 20_000, round_s=3.0, num_right=0)
    trials = [index for index in range(1, len(allowed)) if allowed[index] and not allowed[index - 1]]
    rests = [later - earlier - 4 for earlier, later in pairwise(trials)]
    assert rests[:7] == [64, 128, 256, 512, 1024, 2048, 4096] and set(rests[7:]) == {4096}
    assert sum(allowed) < 0.004 * len(allowed)


def test_what_wins_again_is_forgiven() -> None:
    payoff = Payoff()
    passes(payoff, 2 + 4 + 64 + 4 + 128, round_s=3.0, num_right=0)
    assert all(passes(payoff, 250, round_s=1.0, num_right=3))
    assert passes(payoff, 40, round_s=1.0, num_right=3).count(False) == 2, "plain passes are measured anew"


def test_a_machine_that_became_faster_is_noticed() -> None:
    """Guesses pay while a plain pass takes a second, and no longer when it takes a tenth of one."""
    payoff = Payoff()
    passes(payoff, 250, round_s=2.0, num_right=3)
    allowed = []
    for _ in range(40):
        allowed.append(payoff.allows())
        payoff.observe_round(1, 8, 2.0) if allowed[-1] else payoff.observe_plain(1, 0.1)
        if allowed[-1]:
            payoff.gain(3)
    assert allowed[-1] is False


def test_an_investment_is_paid_back_over_many_rounds() -> None:
    """Rounds gain 3.5 seconds each: enough for a prompt of 40 seconds now and then, too little for one every time."""
    payoff = Payoff()
    passes(payoff, 2, round_s=0.0, num_right=0)
    payoff.invest(40.0)
    assert all(passes(payoff, 60, round_s=1.5, num_right=4))
    allowed = []
    for _ in range(60):
        payoff.invest(5.0)
        allowed += passes(payoff, 1, round_s=1.5, num_right=4)
    assert not all(allowed)


def test_investments_that_come_to_nothing_end() -> None:
    payoff = Payoff()
    passes(payoff, 2, round_s=0.0, num_right=0)
    num_invested = 0
    while payoff.allows():
        payoff.invest(0.0)
        num_invested += 1
    assert num_invested == 64
