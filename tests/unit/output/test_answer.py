"""The fold: events in, one answer out."""

import pytest

from proxy_inference_engine.errors import EngineFailure
from proxy_inference_engine.output.answer import Answer, AnsweredCall
from proxy_inference_engine.output.events import (
    Broken,
    CallDelta,
    CallEnded,
    CallStarted,
    Ended,
    PromptRead,
    ReasoningDelta,
    TextDelta,
    TokenLogprob,
)
from tests.unit.output.pieces import TIMINGS


def test_adds_up_every_event() -> None:
    entries = [TokenLogprob(char, -1.0, char.encode(), (), index) for index, char in enumerate("abc")]
    prompt = PromptRead(7, None)
    ended = Ended("length", None, 3, TIMINGS)
    answer = Answer()
    for event in (prompt, TextDelta("ab", (entries[0],)), TextDelta("c", (entries[1], entries[2])), ended):
        answer.add(event)
    assert answer == Answer("abc", entries, prompt, ended)


def test_starts_empty() -> None:
    assert Answer() == Answer("", [], None, None)


def test_raises_the_error_of_a_broken_choice() -> None:
    error = EngineFailure("the engine failed")
    answer = Answer()
    answer.add(TextDelta("some"))
    with pytest.raises(EngineFailure) as caught:
        answer.add(Broken(error))
    assert caught.value is error
    assert answer.ended is None


def test_adds_up_reasoning_and_calls() -> None:
    answer = Answer()
    for event in (
        ReasoningDelta("a"),
        ReasoningDelta("b"),
        CallStarted(0, "f"),
        CallDelta(0, "{"),
        CallDelta(0, "}"),
        CallEnded(0),
        CallStarted(1, "g"),
        CallDelta(1, "{"),
    ):
        answer.add(event)
    calls = [AnsweredCall("f", "{}", is_complete=True), AnsweredCall("g", "{", is_complete=False)]
    assert answer == Answer(reasoning="ab", calls=calls)
