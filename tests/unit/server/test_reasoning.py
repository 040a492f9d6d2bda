"""The fields about reasoning: what reaches the template and the machine, and what is refused."""

from dataclasses import replace
from typing import Any

import pytest

from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.formats import Format, by_name
from proxy_inference_engine.formats.syntax import Channels, Thinking
from proxy_inference_engine.server.convert.reasoning import Reasoning, make_reasoning
from proxy_inference_engine.server.schemas.base import validate
from proxy_inference_engine.server.schemas.chat import ChatRequest

PLAIN = replace(by_name("plain"), thinking=None, channels=None)
THINKING = replace(PLAIN, thinking=Thinking())
CHANNELS = replace(PLAIN, channels=Channels())
SWITCH = frozenset({"enable_thinking"})
EFFORT = frozenset({"reasoning_effort"})
BOTH = SWITCH | EFFORT
NEITHER: frozenset[str] = frozenset()


def reasoning(fields: dict[str, Any], format: Format, readable: frozenset[str]) -> Reasoning:
    body = validate(ChatRequest, {"model": "m", "messages": [{"role": "user", "content": "x"}], **fields})
    return make_reasoning(body, format, readable)


def inner(value: Any) -> dict[str, Any]:
    return {"chat_template_kwargs": {"enable_thinking": value}}


@pytest.mark.parametrize(
    ("fields", "readable", "variables", "is_wanted"),
    [
        ({}, BOTH, {}, True),
        ({"enable_thinking": True}, BOTH, {"enable_thinking": True}, True),
        ({"enable_thinking": False}, BOTH, {"enable_thinking": False}, False),
        ({"enable_thinking": False}, EFFORT, {}, False),
        ({"enable_thinking": False}, NEITHER, {}, False),
        (inner(False), BOTH, {"enable_thinking": False}, False),
        (inner(True), BOTH, {"enable_thinking": True}, True),
        (inner(False), NEITHER, {}, False),
        (inner(None), BOTH, {}, True),
        ({"enable_thinking": False, **inner(False)}, SWITCH, {"enable_thinking": False}, False),
        ({"reasoning_effort": "low"}, EFFORT, {"reasoning_effort": "low"}, True),
        ({"reasoning_effort": "low"}, SWITCH, {"enable_thinking": True}, True),
        ({"reasoning_effort": "low"}, BOTH, {"enable_thinking": True, "reasoning_effort": "low"}, True),
        ({"reasoning_effort": "low"}, NEITHER, {}, True),
        ({"reasoning_effort": "none"}, SWITCH, {"enable_thinking": False}, False),
        ({"reasoning_effort": "none"}, EFFORT, {"reasoning_effort": "none"}, False),
        ({"reasoning_effort": "none"}, NEITHER, {}, False),
        ({"reasoning_effort": "none", "enable_thinking": False}, SWITCH, {"enable_thinking": False}, False),
        ({"chat_template_kwargs": {"date": "now", "n": None}}, BOTH, {"date": "now", "n": None}, True),
        ({"chat_template_kwargs": {"reasoning_effort": "x"}}, BOTH, {"reasoning_effort": "x"}, True),
    ],
)
@pytest.mark.parametrize("format", [THINKING, CHANNELS], ids=["thinking", "channels"])
def test_a_family_that_reasons(
    format: Format, fields: dict[str, Any], readable: frozenset[str], variables: dict[str, Any], is_wanted: bool
) -> None:
    assert reasoning(fields, format, readable) == Reasoning(variables, is_wanted)


@pytest.mark.parametrize(
    ("fields", "limits"),
    [
        ({"reasoning_budget_tokens": 9}, (0, 9)),
        ({"reasoning_budget_tokens": 0}, (0, 0)),
        ({"reasoning_min_tokens": 9}, (9, None)),
        ({"reasoning_min_tokens": 9, "reasoning_budget_tokens": 9}, (9, 9)),
    ],
)
def test_limits(fields: dict[str, Any], limits: tuple[int, int | None]) -> None:
    made = reasoning(fields, THINKING, BOTH)
    assert (made.min_tokens, made.max_tokens) == limits


INNER = "chat_template_kwargs.enable_thinking"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"reasoning_min_tokens": 10, "reasoning_budget_tokens": 9}, "reasoning_min_tokens"),
        ({"reasoning_min_tokens": 1, "enable_thinking": False}, "reasoning_min_tokens"),
        ({"reasoning_min_tokens": 1, "reasoning_effort": "none"}, "reasoning_min_tokens"),
        ({"enable_thinking": False, "reasoning_effort": "low"}, "reasoning_effort"),
        ({"enable_thinking": True, "reasoning_effort": "none"}, "reasoning_effort"),
        ({"enable_thinking": True, **inner(False)}, INNER),
        ({"reasoning_effort": "none", **inner(True)}, "reasoning_effort"),
        (inner("yes"), INNER),
        (inner(1), INNER),
        (
            {"reasoning_effort": "low", "chat_template_kwargs": {"reasoning_effort": "high"}},
            "chat_template_kwargs.reasoning_effort",
        ),
    ],
)
def test_contradictions_are_refused(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        reasoning(fields, THINKING, BOTH)
    assert caught.value.param == param and f"'{param}'" in caught.value.message


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"enable_thinking": True}, "enable_thinking"),
        ({"enable_thinking": True, "reasoning_effort": "low"}, "enable_thinking"),
        ({"reasoning_effort": "minimal"}, "reasoning_effort"),
        ({"reasoning_effort": "max"}, "reasoning_effort"),
        ({"reasoning_budget_tokens": 1}, "reasoning_budget_tokens"),
        ({"reasoning_min_tokens": 1}, "reasoning_min_tokens"),
        (inner(True), INNER),
    ],
)
def test_a_family_that_does_not_reason_refuses(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        reasoning(fields, PLAIN, NEITHER)
    assert caught.value.param == param


@pytest.mark.parametrize(
    "fields",
    [
        {"enable_thinking": False},
        {"reasoning_effort": "none"},
        {"reasoning_budget_tokens": 0},
        {"reasoning_min_tokens": 0},
        {"reasoning_min_tokens": None, "reasoning_budget_tokens": None},
        inner(False),
    ],
)
def test_asking_for_no_reasoning_is_always_fine(fields: dict[str, Any]) -> None:
    assert reasoning(fields, PLAIN, NEITHER).variables == {}
