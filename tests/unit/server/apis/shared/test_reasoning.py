"""The fields about reasoning: what reaches the template and the machine, and what is refused."""

from dataclasses import replace
from typing import Any

import pytest

from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.formats import Format, by_name
from proxy_inference_engine.formats.syntax import Channels, Thinking
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.server.apis.chat.schema import ChatRequest
from proxy_inference_engine.server.apis.shared.fields import validate
from proxy_inference_engine.server.apis.shared.reasoning import ReasoningWishes, make_reasoning
from tests.unit.served.scripted import ScriptedEngine, served, served_as

PLAIN = replace(by_name("plain"), thinking=None, channels=None)
THINKING = replace(PLAIN, thinking=Thinking())
CHANNELS = replace(PLAIN, channels=Channels())
SWITCH = frozenset({"enable_thinking"})
EFFORT = frozenset({"reasoning_effort"})
BOTH = SWITCH | EFFORT
NEITHER: frozenset[str] = frozenset()
KWARGS = "chat_template_kwargs"
BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "x"}]}


def reasoning(fields: dict[str, Any], format: Format, readable: frozenset[str]) -> ReasoningWishes:
    return make_reasoning(validate(ChatRequest, {**BODY, **fields}), served_as(format, readable))


def inner(value: Any) -> dict[str, Any]:
    return {"chat_template_kwargs": {"enable_thinking": value}}


@pytest.mark.parametrize(
    ("fields", "readable", "variables", "is_wanted"),
    [
        ({}, BOTH, {}, True),
        ({"enable_thinking": True}, BOTH, {"enable_thinking": True}, True),
        ({"enable_thinking": False}, BOTH, {"enable_thinking": False}, False),
        (inner(False), BOTH, {"enable_thinking": False}, False),
        (inner(True), BOTH, {"enable_thinking": True}, True),
        (inner(None), BOTH, {}, True),
        ({"enable_thinking": False, **inner(False)}, SWITCH, {"enable_thinking": False}, False),
        ({"reasoning_effort": "low"}, EFFORT, {"reasoning_effort": "low"}, True),
        ({"reasoning_effort": "low"}, BOTH, {"enable_thinking": True, "reasoning_effort": "low"}, True),
        ({"reasoning_effort": "none"}, SWITCH, {"enable_thinking": False}, False),
        ({"reasoning_effort": "none"}, EFFORT, {"reasoning_effort": "none"}, True),  # told, but nothing holds it
        ({"reasoning_effort": "none", "enable_thinking": False}, SWITCH, {"enable_thinking": False}, False),
        ({"chat_template_kwargs": {"date": "now", "n": None}}, BOTH | {"date", "n"}, {"date": "now", "n": None}, True),
        ({"chat_template_kwargs": {"reasoning_effort": "x"}}, BOTH, {"reasoning_effort": "x"}, True),
    ],
)
@pytest.mark.parametrize("format", [THINKING, CHANNELS], ids=["thinking", "channels"])
def test_a_family_that_reasons(
    format: Format, fields: dict[str, Any], readable: frozenset[str], variables: dict[str, Any], is_wanted: bool
) -> None:
    assert reasoning(fields, format, readable) == ReasoningWishes(variables, is_wanted)


@pytest.mark.parametrize(
    ("fields", "readable", "variables", "ignored"),
    [
        ({"enable_thinking": False}, EFFORT, {}, ["enable_thinking"]),
        ({"enable_thinking": False}, NEITHER, {}, ["enable_thinking"]),
        (inner(False), NEITHER, {}, [f"{KWARGS}.enable_thinking"]),
        ({"enable_thinking": False, **inner(False)}, NEITHER, {}, ["enable_thinking", f"{KWARGS}.enable_thinking"]),
        ({"reasoning_effort": "none"}, NEITHER, {}, ["reasoning_effort"]),
        ({"reasoning_effort": "low"}, SWITCH, {"enable_thinking": True}, ["reasoning_effort"]),
        ({"reasoning_effort": "low"}, NEITHER, {}, ["reasoning_effort"]),
        ({KWARGS: {"date": "now", "n": None}}, SWITCH, {}, [f"{KWARGS}.date", f"{KWARGS}.n"]),
        ({KWARGS: {"reasoning_effort": "x"}}, SWITCH, {}, [f"{KWARGS}.reasoning_effort"]),
    ],
)
@pytest.mark.parametrize("format", [THINKING, CHANNELS], ids=["thinking", "channels"])
def test_what_changes_nothing_is_named(
    format: Format, fields: dict[str, Any], readable: frozenset[str], variables: dict[str, Any], ignored: list[str]
) -> None:
    assert reasoning(fields, format, readable) == ReasoningWishes(variables, ignored=tuple(ignored))


def test_a_block_that_the_prompt_opens_can_be_closed() -> None:
    model = served(ScriptedEngine(runner=FakeRunner(chat_template=by_name("deepseek_r1").template)))
    body = validate(ChatRequest, {**BODY, "enable_thinking": False})
    assert make_reasoning(body, model) == ReasoningWishes({}, is_wanted=False)


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
        ({"reasoning_budget_tokens": 1}, "reasoning_budget_tokens"),
        ({"reasoning_min_tokens": 1}, "reasoning_min_tokens"),
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
    assert reasoning(fields, PLAIN, NEITHER).ignored == ()


@pytest.mark.parametrize(
    ("fields", "readable", "variables", "ignored"),
    [
        ({"reasoning_effort": "minimal"}, NEITHER, {}, ["reasoning_effort"]),
        ({"reasoning_effort": "max", "enable_thinking": False}, NEITHER, {}, ["reasoning_effort"]),
        ({"reasoning_effort": "low"}, EFFORT, {"reasoning_effort": "low"}, []),
        (inner(True), NEITHER, {}, [INNER]),
        (inner(True), SWITCH, {"enable_thinking": True}, []),
        ({"enable_thinking": True}, SWITCH, {"enable_thinking": True}, []),
    ],
)
def test_a_family_that_does_not_reason_skips_effort_and_what_its_template_does_not_read(
    fields: dict[str, Any], readable: frozenset[str], variables: dict[str, Any], ignored: list[str]
) -> None:
    made = reasoning(fields, PLAIN, readable)
    assert (made.variables, list(made.ignored)) == (variables, ignored)
