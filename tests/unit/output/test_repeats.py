"""Calls that come again: held back while they may be the same, told when they are not."""

import pytest

from proxy_inference_engine.output.events import CallDelta, CallEnded, CallStarted
from proxy_inference_engine.output.pieces import CallPiece, RepeatFilter


def told(*calls: tuple[str, list[str]]) -> tuple[list[CallPiece], bool]:
    """What is told of calls whose arguments come in pieces, up to the first that is repeated."""
    subject, pieces = RepeatFilter(), []
    for index, (name, arguments) in enumerate(calls):
        parts: list[CallPiece] = [
            CallStarted(index, name),
            *(CallDelta(index, part) for part in arguments),
            CallEnded(index),
        ]
        for part in parts:
            pieces += subject.feed(part)
            if subject.is_repeated:
                return pieces, True
    return pieces, False


FIRST = [CallStarted(0, "f"), CallDelta(0, '{"a": '), CallDelta(0, "1}"), CallEnded(0)]


@pytest.mark.parametrize(
    ("name", "arguments", "more", "is_repeated"),
    [
        ("f", ['{"a"', ": 1}"], [], True),
        ("f", ['{"a": 1', "}"], [], True),
        ("g", ['{"a": ', "1}"], [CallStarted(1, "g"), CallDelta(1, '{"a": '), CallDelta(1, "1}"), CallEnded(1)], False),
        (
            "f",
            ['{"a"', ": 2", "}"],
            [CallStarted(1, "f"), CallDelta(1, '{"a": 2'), CallDelta(1, "}"), CallEnded(1)],
            False,
        ),
        ("f", ['{"a"', ": 1"], [CallStarted(1, "f"), CallDelta(1, '{"a": 1'), CallEnded(1)], False),
        ("f", [], [CallStarted(1, "f"), CallEnded(1)], False),
    ],
)
def test_a_second_call(name: str, arguments: list[str], more: list[CallPiece], is_repeated: bool) -> None:
    pieces, was_repeated = told(("f", ['{"a": ', "1}"]), (name, arguments))
    assert (pieces, was_repeated) == ([*FIRST, *more], is_repeated)


def test_any_earlier_call_counts() -> None:
    pieces, is_repeated = told(("f", ["{}"]), ("g", ["{}"]), ("f", ["{1}"]), ("f", ["{}"]))
    assert is_repeated and [piece.index for piece in pieces if isinstance(piece, CallEnded)] == [0, 1, 2]


@pytest.mark.parametrize(("arguments", "is_repeated"), [("{}", True), ("{", False), ("", False)])
def test_what_is_cut_off_is_no_news_where_it_was_said_before(arguments: str, is_repeated: bool) -> None:
    subject = RepeatFilter()
    for piece in (CallStarted(0, "f"), CallDelta(0, "{}"), CallEnded(0), CallStarted(1, "f"), CallDelta(1, arguments)):
        subject.feed(piece)
    told = subject.cut()
    assert (told == []) == subject.is_repeated == is_repeated


def test_what_is_held_can_be_released() -> None:
    subject = RepeatFilter()
    for piece in (CallStarted(0, "f"), CallDelta(0, "{}"), CallEnded(0)):
        subject.feed(piece)
    assert subject.release() == [] and subject.feed(CallStarted(1, "f")) == []
    assert subject.feed(CallDelta(1, "{")) == []
    assert subject.release() == [CallStarted(1, "f"), CallDelta(1, "{")] and subject.release() == []
