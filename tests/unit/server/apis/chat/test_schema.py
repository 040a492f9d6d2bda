"""Every parameter of chat with values it must refuse, and by what name."""

from typing import Any

import pytest

from proxy_inference_engine.server.apis.chat.schema import ChatRequest
from proxy_inference_engine.server.apis.shared.fields import validate
from tests.unit.server.apis.shared.refusals import CHAT, HELLO, NOT_INTS, SHARED, refusal

ONLY_CHAT: dict[str, list[Any]] = {
    "max_tokens": [*NOT_INTS, 0],
    "max_completion_tokens": [*NOT_INTS, 0],
    "logprobs": [1, "true"],
    "top_logprobs": [*NOT_INTS, -1, 21, 10**6],
    "echo": [True],
    "prompt": ["x"],
    "add_generation_prompt": ["no", 0],
    "continue_final_message": [1],
    "chat_template_kwargs": [[], "x", {str(number): 1 for number in range(65)}],
    "enable_thinking": [1, "true", []],
    "parallel_tool_calls": [1, "x"],
    "prediction": [
        "x",
        {},
        {"type": "content"},
        {"type": "text", "content": "x"},
        {"type": "content", "content": 5},
        {"type": "content", "content": []},
        {"type": "content", "content": [{"type": "image_url", "image_url": {"url": "x"}}]},
        {"type": "content", "content": "x", "more": 1},
    ],
    "reasoning_effort": ["huge", 1, True],
    "reasoning_budget_tokens": [*NOT_INTS, -1],
    "reasoning_min_tokens": [*NOT_INTS, -1],
    "store": ["true", 0],
    "tool_choice": ["some", 1, [], {}, {"type": "web"}],
    "tools": [{}, "x", [5], [{}], [{"type": "web_search"}]],
    "audio": [{"voice": "x"}],
    "function_call": [{"name": "f"}],
    "functions": [{}, [5], [{"name": "f g"}]],
    "modalities": [["audio"], ["text", "audio"], []],
    "moderation": [{}],
    "web_search_options": [{}],
}


@pytest.mark.parametrize("param", SHARED | ONLY_CHAT)
def test_chat_refuses_by_name(param: str) -> None:
    for value in (SHARED | ONLY_CHAT)[param]:
        error = refusal(ChatRequest, {**CHAT, param: value})
        assert error.param is not None and error.param.startswith(param), (value, error.message)
        assert param in error.message and len(error.message) < 300


@pytest.mark.parametrize(
    ("param", "value"),
    [
        ("audio", {}),
        ("messages", [HELLO]),
        ("web_search_options", {}),
    ],
)
def test_what_is_not_supported_says_so(param: str, value: Any) -> None:
    error = refusal(ChatRequest, {**CHAT, param: value})
    assert error.code == "unsupported_parameter"
    assert "not supported by this" in error.message


def test_unknown_and_missing_fields_have_their_codes() -> None:
    assert refusal(ChatRequest, {**CHAT, "foo": 1}).code == "unknown_parameter"
    error = refusal(ChatRequest, {"model": "m"})
    assert (error.param, error.code) == ("messages", "missing_parameter")


@pytest.mark.parametrize("body", [None, [], "x", 5, True])
def test_a_body_is_an_object(body: Any) -> None:
    assert refusal(ChatRequest, body).param is None


NEUTRAL: dict[str, list[Any]] = {
    "best_of": [1, 20],
    "prediction": [{"type": "content", "content": ""}, {"type": "content", "content": [{"type": "text", "text": "x"}]}],
    "response_format": [{"type": "text"}],
    "tools": [[]],
    "tool_choice": ["none", "auto", "required"],
    "parallel_tool_calls": [True, False],
    "store": [False, True],
    "chat_template_kwargs": [{}, {"any": {"value": [1, None]}}],
    "enable_thinking": [True, False],
    "reasoning_effort": ["none", "minimal", "low", "medium", "high", "xhigh", "max"],
    "reasoning_budget_tokens": [0, 2**63 - 1],
    "modalities": [["text"]],
    "functions": [[]],
    "temperature": [0, 0.0, 1, 2],
    "n": [16],
    "seed": [-1, 0, 2**63 - 1],
    "stop": ["x", ["x"], ["x" * 1024] * 16, []],
    "logit_bias": [{}, {"0": -100, "5": 100.0}],
    "metadata": [{}, {"a": "b"}],
    "service_tier": ["auto", "flex"],
    "max_tokens": [1, 2**63 - 1],
}


@pytest.mark.parametrize("param", NEUTRAL)
def test_accepts_neutral_and_edge_values(param: str) -> None:
    for value in NEUTRAL[param]:
        validate(ChatRequest, {**CHAT, param: value})


@pytest.mark.parametrize(
    ("fields", "num_candidates", "num_generated"),
    [
        ({}, None, 1),
        ({"n": 3}, None, 3),
        ({"best_of": 1}, None, 1),
        ({"best_of": 1, "stream": True}, None, 1),
        ({"best_of": 4}, 4, 4),
        ({"n": 2, "best_of": 2}, 2, 2),
        ({"n": 2, "best_of": 20}, 20, 20),
    ],
)
def test_candidates_are_counted(fields: dict[str, Any], num_candidates: int | None, num_generated: int) -> None:
    body = validate(ChatRequest, {**CHAT, **fields})
    assert (body.num_candidates, body.num_generated) == (num_candidates, num_generated)


@pytest.mark.parametrize(
    ("content", "text"), [("ab", "ab"), ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "ab")]
)
def test_a_prediction_is_text(content: Any, text: str) -> None:
    body = validate(ChatRequest, {**CHAT, "prediction": {"type": "content", "content": content}})
    assert body.prediction is not None and body.prediction.text == text
