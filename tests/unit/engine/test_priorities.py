"""Who goes first, who gives way, and who waits for no longer than is bearable."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from proxy_inference_engine.engine.embedding import EmbeddingJob
from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.engine.grants import without_rest
from proxy_inference_engine.engine.queue import PATIENCE, Admission, RequestBook, WaitingLine
from proxy_inference_engine.engine.sequence import Sequence
from proxy_inference_engine.errors import Busy, QueueFull
from proxy_inference_engine.runners.base import Lane
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.types import IDLE_PRIORITY, Failed, Request
from tests.clock import Clock
from tests.requests import make_request
from tests.unit.engine.driven import ENDLESS, Driven, make_sequence


def ranked(name: str, priority: int, arrival: int) -> Sequence:
    """The first letter of the name is the tenant."""
    return make_sequence(make_request(id=name, tenant=name[0], priority=priority), arrival=arrival)


def make_line(**priorities: int) -> tuple[WaitingLine, dict[str, Sequence]]:
    line = WaitingLine()
    named = {name: ranked(name, priority, place) for place, (name, priority) in enumerate(priorities.items())}
    for sequence in named.values():
        line.add(sequence)
    return line, named


def turns(line: WaitingLine, **num_running: int) -> str:
    return " ".join(sequence.request.id for sequence in line.in_turn(num_running))


# The line


def test_smaller_priorities_go_first_and_tenants_take_turns_within_one() -> None:
    line, _ = make_line(a1=5, a2=0, b1=5, a3=0, b2=0, c1=-3)
    assert turns(line) == "c1 a2 b2 a3 b1 a1"


def test_what_fills_idle_time_comes_last_and_has_turns_of_its_own() -> None:
    line, _ = make_line(a1=IDLE_PRIORITY, a2=0, b1=IDLE_PRIORITY)
    assert turns(line, a=9) == "a2 a1 b1", "running answers do not count against what fills idle time"
    assert line.has_wanted
    line, _ = make_line(a1=IDLE_PRIORITY)
    assert not line.has_wanted


def test_who_is_passed_too_often_has_the_next_turn() -> None:
    line, named = make_line(a1=10, a2=10, b1=IDLE_PRIORITY)
    for number in range(PATIENCE):
        assert next(line.in_turn({})).request.id == "a1", "nobody else waits"
        first = ranked(f"c{number}", 0, 100 + number)
        line.add(first)
        assert next(line.in_turn({})) is first
        line.start(first)
    line.add(ranked("c99", 0, 99))
    assert turns(line) == "a1 c99 a1 a2 b1", "and only one of them, before those that were first"
    line.start(named["a1"])
    assert turns(line) == "c99 a2 b1"


def test_a_priority_that_nobody_waits_with_is_forgotten() -> None:
    line, named = make_line(a1=10)
    line.add(first := ranked("c", 0, 9))
    line.start(first)
    line.remove(named["a1"])
    assert not line._levels and not line._num_passed


# Slots


def driven(num_slots: int = 2, **options: float) -> Driven:
    return Driven(FakeRunner(lanes=[Lane(num_slots, 512)], end_bias=ENDLESS), **options)  # type: ignore[arg-type]


def idle(name: str, prompt: str = "", tenant: str = "x") -> Request:
    return make_request(prompt or name * 9, id=name, tenant=tenant, max_tokens=40, priority=IDLE_PRIORITY)


def usual(name: str, prompt: str = "", **fields: int) -> Request:
    return make_request(prompt or name * 9, id=name, max_tokens=fields.pop("max_tokens", 40), **fields)  # type: ignore[arg-type]


def test_what_fills_idle_time_leaves_a_slot_and_takes_it_from_the_end() -> None:
    engine = driven(4)
    engine.add(*(idle(name) for name in "pqrst"))
    engine.step(2)
    assert engine.slots() == {"p": 3, "q": 2, "r": 1}
    engine.add(usual("a"))
    engine.step()
    assert engine.slots()["a"] == 0


def test_it_gives_way_at_once_and_goes_on_later() -> None:
    engine = driven(2)
    engine.add(idle("p"))
    engine.step(3)
    engine.add(usual("a"), usual("b"))
    engine.step()
    assert engine.slots().keys() == {"a", "b"}, "the youngest of what fills idle time went"
    engine.run()
    assert [len(engine.heard[name, 0].token_ids) for name in "pab"] == [40, 40, 40]


def test_nobody_else_is_preempted_for_what_goes_behind_him() -> None:
    engine = driven(2)
    engine.add(replace(usual("a"), tenant="x"), replace(usual("b"), tenant="x"))
    engine.step(2)
    engine.add(replace(usual("f", priority=10_000), tenant="y"))
    engine.step(2)
    assert engine.slots().keys() == {"a", "b"}, "of a larger priority: it waits"
    engine.add(replace(usual("c"), tenant="z"))
    engine.step()
    assert "c" in engine.slots(), "of the same one: the key that has two more gives way, as ever"


def test_nobody_waits_for_a_prefix_that_is_computed_in_idle_time() -> None:
    engine = driven(4)
    engine.add(idle("p", prompt="same beginning " * 20, tenant="local"))
    engine.step()
    engine.add(usual("a", prompt="same beginning " * 20 + "end", max_tokens=3))
    engine.step()
    assert "a" in engine.slots()
    for _ in range(60):
        engine.step()
    assert engine.heard["a", 0].finished.reason == "length"


def test_idle_time_is_what_nobody_else_is_kept_waiting_in() -> None:
    """A row costs as much as ten: beside an answer there is no time for one more."""
    clock, computed = Clock(), list[set[int]]()
    runner = FakeRunner(
        lanes=[Lane(4, 512)],
        end_bias=ENDLESS,
        step_seconds=lambda num_tokens: 0.01 * num_tokens,
        sleep=clock.sleep,
        on_forward=lambda rows: computed.append({row.slot for row in rows}),
    )
    engine = Driven(runner, clock=clock)
    engine.add(idle("p"), idle("q"))
    engine.step(6)
    engine.add(usual("a", max_tokens=10))
    engine.step()
    first = len(computed) - 1
    while engine.heard["a", 0].outputs == [] or "a" in engine.slots():
        engine.step()
    assert all(slots == {0} for slots in computed[first:]), "only the answer was computed while it was made"
    engine.run()
    assert len(engine.heard["p", 0].token_ids) == 40


def test_beside_others_as_many_rows_fill_idle_time_as_cost_nothing() -> None:
    """A device on which rows are nearly free."""
    clock, computed = Clock(), list[set[int]]()
    runner = FakeRunner(
        lanes=[Lane(8, 512)],
        end_bias=ENDLESS,
        step_seconds=lambda num_tokens: 0.01 + 0.00001 * num_tokens,
        sleep=clock.sleep,
        on_forward=lambda rows: computed.append({row.slot for row in rows}),
    )
    engine = Driven(runner, clock=clock)
    engine.add(idle("p"), idle("q"), idle("r"))
    engine.step(10)
    engine.add(usual("a", max_tokens=20))
    engine.step(4)
    assert computed[-1] == {0, 6, 7}, "the answer, and two rows that nobody notices"


# The time of waiting


def test_who_waits_too_long_is_told() -> None:
    clock = Clock()
    engine = StepEngine(
        FakeRunner(lanes=[Lane(1, 512)], end_bias=ENDLESS, sleep=clock.sleep, step_seconds=lambda _: 1.0),
        max_cache_bytes=0,
        queue_timeout_s=5.0,
        clock=clock,
    )
    engine.add(usual("a", max_tokens=30))
    engine.step()
    for request in (usual("b"), idle("p"), usual("c", num_choices=2)):
        engine.add(request)
    failed: dict[str, Failed] = {}
    for _ in range(8):
        failed |= {each.request_id: each.output for each in engine.step() if isinstance(each.output, Failed)}
        engine.check()
    assert failed.keys() == {"b", "c"}, "what fills idle time may wait"
    error = failed["b"].error
    assert isinstance(error, Busy) and error.status == 503 and error.code == "queue_timeout" and error.retry_after_s
    assert "a" in engine, "who runs is left alone"


# What the event loop knows


def test_a_place_in_the_line_is_told_and_guessed() -> None:
    clock = Clock()
    book = RequestBook(clock)
    requests = [usual(f"r{number}") for number in range(8)]
    for request in requests:
        book.enter(request)
    for request in requests[:4]:
        book.begin(request.id)
    assert [book.place(request, 4) for request in requests[:4]] == [None] * 4
    assert [place.position for request in requests[4:] if (place := book.place(request, 4))] == [1, 2, 3, 4]
    first = usual("first", priority=-1)
    book.enter(first)
    place = book.place(first, 4)
    assert place is not None and place.position == 1 and place.wait_s is None, "nothing ended yet"
    assert book.place(requests[4], 4).position == 2  # type: ignore[union-attr]
    for number in range(4):
        clock.sleep(2.0)
        book.leave(f"r{number}")
        book.begin(f"r{number + 4}")
    last = book.place(first, 4)
    assert last is not None and last.wait_s == pytest.approx(last.position * 6.0 / 4)


def test_what_fills_idle_time_is_in_nobody_elses_way() -> None:
    book = RequestBook(Clock())
    for number in range(4):
        book.enter(idle(f"i{number}"))
        book.begin(f"i{number}")
    book.enter(request := usual("a"))
    place = book.place(request, 4)
    assert place is not None and place.position == 0
    admission = Admission(max_waiting=1, max_waiting_per_tenant=1)
    admission.check_request(usual("a"), [idle(f"i{number}") for number in range(50)], 1)
    with pytest.raises(QueueFull):
        admission.check_request(idle("j"), [idle(f"i{number}", tenant="local") for number in range(50)], 1)
    job = EmbeddingJob("a", (), fills_idle=True)
    admission.check_job(EmbeddingJob("a", ()), [job] * 9)
    with pytest.raises(QueueFull):
        admission.check_job(EmbeddingJob("a", (), fills_idle=True), [job] * 9)


def test_idle_time_is_filled_only_beside_answers_and_while_nobody_waits() -> None:
    pace: Any = SimpleNamespace(num_rows_beside=lambda _: 4, num_tokens_beside=lambda _: 100)
    answering: Any = SimpleNamespace(fills_idle=False, is_decoding=True)
    reading: Any = SimpleNamespace(fills_idle=False, is_decoding=False)
    idle: Any = SimpleNamespace(fills_idle=True, is_decoding=True)
    assert without_rest([answering, idle], False, pace) == [answering, idle]
    assert without_rest([answering, idle], True, pace) == [answering]
    assert without_rest([answering, reading, idle], False, pace) == [answering, reading]
    assert without_rest([idle], True, pace) == []
