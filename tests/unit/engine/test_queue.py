"""The waiting line: by age within a tenant, fair between tenants."""

import pytest

from proxy_inference_engine.engine.queue import WaitingLine
from proxy_inference_engine.engine.sequence import Sequence
from tests.requests import make_request
from tests.unit.engine.driven import make_sequence


def named(name: str, arrival: int) -> Sequence:
    """The first letter of the name is the tenant."""
    return make_sequence(make_request(id=name, tenant=name[0]), arrival=arrival)


def make_line(*names: str) -> tuple[WaitingLine, dict[str, Sequence]]:
    line = WaitingLine()
    sequences = {name: named(name, arrival) for arrival, name in enumerate(names)}
    for sequence in sequences.values():
        line.add(sequence)
    return line, sequences


def turns(line: WaitingLine, **num_running: int) -> str:
    return " ".join(sequence.request.id for sequence in line.in_turn(num_running))


@pytest.mark.parametrize(
    ("names", "num_running", "expected"),
    [
        ("a1 a2 a3", {}, "a1 a2 a3"),
        ("a1 b1", {}, "a1 b1"),
        ("b1 a1", {}, "b1 a1"),
        ("a1 a2 a3 b1", {}, "a1 b1 a2 a3"),
        ("a1 a2 a3 b1 b2 c1", {}, "a1 b1 c1 a2 b2 a3"),
        ("a1 a2 b1 b2", {"a": 2}, "b1 b2 a1 a2"),
        ("a1 a2 b1 b2", {"a": 1}, "b1 a1 b2 a2"),
        ("a1 b1", {"a": 5, "b": 5}, "a1 b1"),
        ("", {"a": 1}, ""),
    ],
)
def test_the_tenant_with_the_fewest_running_comes_next(names: str, num_running: dict[str, int], expected: str) -> None:
    line, _ = make_line(*names.split())
    assert turns(line, **num_running) == expected


def test_a_preempted_sequence_returns_to_its_old_place() -> None:
    line, sequences = make_line("a1", "a2", "a3")
    line.remove(sequences["a1"])
    assert turns(line) == "a2 a3"
    line.add(sequences["a1"])
    assert turns(line) == "a1 a2 a3"


def test_the_line_may_change_while_it_is_gone_through() -> None:
    line, _ = make_line("a1", "b1", "a2", "b2")
    seen = []
    for sequence in line.in_turn({}):
        line.remove(sequence)
        seen.append(sequence.request.id)
    assert seen == ["a1", "b1", "a2", "b2"]
    assert len(line) == 0


def test_counts() -> None:
    line, sequences = make_line("a1", "a2", "b1")
    assert len(line) == 3
    assert line._levels[0].keys() == {"a", "b"}
    assert {sequence.request.id for sequence in line} == {"a1", "a2", "b1"}
    line.remove(sequences["b1"])
    assert line._levels[0].keys() == {"a"}, "a tenant without sequences is forgotten"


def test_removing_what_does_not_wait_is_harmless() -> None:
    line, sequences = make_line("a1", "a2")
    for _ in range(2):
        line.remove(sequences["a1"])
    line.remove(named("c1", 9))
    assert turns(line) == "a2"
