"""SandboxTurns: one at a time in each place, tenants one after the other, and nobody waits without bound."""

import threading

import pytest

from proxy_inference_engine.errors import Unavailable
from proxy_inference_engine.state_machine.sandbox.turns import SandboxTurns, TurnLimits
from tests.polling import HANG_S, wait_until

UNHURRIED = TurnLimits(max_seconds=HANG_S, slow_seconds=HANG_S)


class Visitor:
    """Takes one turn in a thread of its own, and stays until it is let go."""

    def __init__(self, turns: SandboxTurns, tenant: str, seen: list[str]) -> None:
        self.is_in = threading.Event()
        self.may_go = threading.Event()
        self.error: Unavailable | None = None
        self._turns, self._tenant, self._seen = turns, tenant, seen
        self.thread = threading.Thread(target=self._visit, daemon=True)
        self.thread.start()

    def _visit(self) -> None:
        try:
            with self._turns.turn(self._tenant):
                self._seen.append(self._tenant)
                self.is_in.set()
                assert self.may_go.wait(HANG_S)
        except Unavailable as error:
            self.error = error

    def leave(self) -> None:
        assert self.is_in.wait(HANG_S)
        self.may_go.set()
        self.thread.join(HANG_S)


def queue_up(turns: SandboxTurns, tenants: str, seen: list[str]) -> list[Visitor]:
    """One after the other; the first is in, the others wait."""
    visitors = [Visitor(turns, tenants[0], seen)]
    assert visitors[0].is_in.wait(HANG_S)
    for number, tenant in enumerate(tenants[1:], 1):
        visitors.append(Visitor(turns, tenant, seen))
        wait_until(lambda number=number: turns.num_waiting == number)  # type: ignore[misc]
    return visitors


@pytest.mark.parametrize(
    ("came", "served"),
    [
        ("a", "a"),
        ("aaa", "aaa"),
        ("abc", "abc"),
        ("aab", "aba"),
        ("aaaabbc", "abcabaa"),
        ("aaabbb", "ababab"),
        ("abab", "abab"),
    ],
)
def test_tenants_take_turns(came: str, served: str) -> None:
    turns, seen = SandboxTurns(UNHURRIED), list[str]()
    visitors = queue_up(turns, came, seen)
    for count in range(1, len(came) + 1):
        wait_until(lambda count=count: len(seen) == count)  # type: ignore[misc]
        next(visitor for visitor in visitors if visitor.is_in.is_set() and not visitor.may_go.is_set()).leave()
    assert "".join(seen) == served
    assert not turns.is_taken and turns.num_waiting == 0


def test_a_tenant_that_comes_back_at_once_does_not_go_first() -> None:
    turns, seen = SandboxTurns(UNHURRIED), list[str]()
    first, second = queue_up(turns, "ab", seen)
    again = Visitor(turns, "a", seen)
    wait_until(lambda: turns.num_waiting == 2)
    first.leave()
    second.leave()
    again.leave()
    assert seen == ["a", "b", "a"]


def test_whoever_fails_leaves() -> None:
    turns = SandboxTurns()
    with pytest.raises(ValueError, match="inside"), turns.turn("a"):
        raise ValueError("inside")
    with turns.turn("b"):
        assert turns.is_taken


def test_too_many_are_told_to_come_again() -> None:
    turns, seen = SandboxTurns(TurnLimits(max_seconds=HANG_S, slow_seconds=HANG_S, max_waiting=2)), list[str]()
    visitors = queue_up(turns, "abc", seen)
    with pytest.raises(Unavailable, match="try again") as caught, turns.turn("d"):
        pass
    assert caught.value.retry_after_s is not None and caught.value.status == 503
    for visitor in visitors:
        visitor.leave()
    assert seen == ["a", "b", "c"]


def test_nobody_waits_for_ever() -> None:
    turns, seen = SandboxTurns(TurnLimits(max_seconds=0.01)), list[str]()
    (visitor,) = queue_up(turns, "a", seen)
    with pytest.raises(Unavailable, match="try again"), turns.turn("b"):
        pass
    assert turns.num_waiting == 0
    visitor.leave()


def test_behind_a_slow_one_only_a_few_of_each_tenant_wait() -> None:
    """Or a tenant's grammars that never end would hold every thread there is."""
    patience = TurnLimits(max_seconds=HANG_S, slow_seconds=0.0, max_waiting_slow=3, max_waiting_slow_each=2)
    turns, seen = SandboxTurns(patience), list[str]()
    visitors = queue_up(turns, "aaa", seen)
    with pytest.raises(Unavailable), turns.turn("a"):
        pass
    other = Visitor(turns, "b", seen)
    wait_until(lambda: turns.num_waiting == 3)
    with pytest.raises(Unavailable), turns.turn("c"):
        pass
    visitors[0].leave()
    other.leave()
    visitors[1].leave()
    visitors[2].leave()
    assert seen == ["a", "b", "a", "a"]


def test_those_who_wait_already_leave_when_it_turns_out_slow() -> None:
    patience = TurnLimits(max_seconds=HANG_S, slow_seconds=0.05, max_waiting_slow_each=1)
    turns, seen = SandboxTurns(patience), list[str]()
    first = Visitor(turns, "a", seen)
    assert first.is_in.wait(HANG_S)
    waiting = [Visitor(turns, "a", seen) for _ in range(4)]
    wait_until(lambda: sum(visitor.error is not None for visitor in waiting) == 3)
    first.leave()
    next(visitor for visitor in waiting if visitor.error is None).leave()
    assert seen == ["a", "a"]


def test_a_tenant_has_one_of_two_places() -> None:
    turns, seen = SandboxTurns(UNHURRIED, num_places=2), list[str]()
    first, other = Visitor(turns, "a", seen), Visitor(turns, "b", seen)
    assert first.is_in.wait(HANG_S) and other.is_in.wait(HANG_S), "nobody waits for somebody else alone"
    again = Visitor(turns, "a", seen)
    wait_until(lambda: turns.num_waiting == 1)
    other.leave()
    third = Visitor(turns, "c", seen)
    assert third.is_in.wait(HANG_S) and turns.num_waiting == 1, "the free place is not for the one who has one"
    first.leave()
    again.leave()
    third.leave()
    assert seen[2:] == ["c", "a"] and not turns.is_taken


def test_places_are_told_apart() -> None:
    turns = SandboxTurns(num_places=2)
    with turns.turn("a") as first:
        with turns.turn("b") as second:
            assert {first, second} == {0, 1}
        with turns.turn("b") as third:
            assert third == second
    with turns.turn("b") as last:
        assert last == 0


def test_who_finds_both_places_slow_waits_with_few_others() -> None:
    patience = TurnLimits(max_seconds=HANG_S, slow_seconds=0.0, max_waiting_slow=2, max_waiting_slow_each=1)
    turns, seen = SandboxTurns(patience, num_places=2), list[str]()
    inside = [Visitor(turns, tenant, seen) for tenant in "ab"]
    assert all(visitor.is_in.wait(HANG_S) for visitor in inside)
    waiting = [Visitor(turns, "a", seen)]
    wait_until(lambda: turns.num_waiting == 1)
    for tenant in "ac":
        waiting.append(Visitor(turns, tenant, seen))
        wait_until(lambda: turns.num_waiting == 2 or waiting[-1].error)
    assert [visitor.error is not None for visitor in waiting] == [False, True, False]
    for visitor in (*inside, waiting[0], waiting[2]):
        visitor.leave()
