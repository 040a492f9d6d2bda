"""Every parameter with values it must refuse, and by what name."""

import math
from typing import Any

import pytest

from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.server.schemas.base import Schema, validate
from proxy_inference_engine.server.schemas.chat import ChatRequest
from proxy_inference_engine.server.schemas.completions import CompletionRequest
from proxy_inference_engine.server.schemas.tokens import DetokenizeRequest, TemplateRequest, TokenizeRequest

HELLO: list[Any] = [{"role": "user", "content": "Hello"}]
CHAT: dict[str, Any] = {"model": "m", "messages": HELLO}
TEXT: dict[str, Any] = {"model": "m", "prompt": "Hello"}
NOT_NUMBERS: list[Any] = ["1", True, [], {}, math.nan, math.inf, -math.inf]
NOT_INTS: list[Any] = ["1", True, 1.5, 1.0, [], 2**64]

SHARED: dict[str, list[Any]] = {
    "model": [1, True, [], {}],
    "n": [*NOT_INTS, 0, -1, 17, 10**9],
    "seed": ["1", True, 1.5, 2**63],
    "temperature": [*NOT_NUMBERS, -0.1, 2.1],
    "top_p": [*NOT_NUMBERS, -0.1, 1.1],
    "min_p": [*NOT_NUMBERS, -0.1, 1.1],
    "top_k": [*NOT_INTS, -1],
    "frequency_penalty": [*NOT_NUMBERS, -2.1, 2.1],
    "presence_penalty": [*NOT_NUMBERS, -2.1, 2.1],
    "repetition_penalty": [*NOT_NUMBERS, 0, -1],
    "repetition_window": [*NOT_INTS, -1],
    "dry_multiplier": [*NOT_NUMBERS, -1],
    "dry_base": [*NOT_NUMBERS, 0.5],
    "dry_allowed_length": [*NOT_INTS, -1],
    "dry_sequence_breakers": ["\n", [""], [1], ["x"] * 65],
    "xtc_probability": [*NOT_NUMBERS, 1.1],
    "xtc_threshold": [*NOT_NUMBERS, -1],
    "logit_bias": [
        [], "x", {"abc": 1}, {"-1": 1}, {"1.5": 1}, {"1": "1"}, {"1": 101}, {"1": -101}, {"1": math.nan},
        {"1": None}, {"1": 1, "01": 1}, {"": 1}, {"٣": 1}, {str(i): 1 for i in range(1025)}, {"9" * 5000: 1},
    ],
    "stop": [1, [""], "", [1], ["x"] * 17, "x" * 1025, ["a", "x" * 1025], {}, ["x"] * 100_000],
    "stop_token_ids": [1, ["1"], [-1], [1.5], [True], [1] * 1025],
    "min_tokens": [*NOT_INTS, -1],
    "ignore_eos": [1, "true"],
    "stream": ["yes", 1],
    "stream_options": [True, {"include_usage": "yes"}, {"unknown": 1}, {"include_usage": True}],
    "user": [1, "x" * 10_000_000],
    "safety_identifier": ["x" * 513],
    "metadata": [[], {"a": 1}, {"a" * 65: "x"}, {"a": "x" * 513}, {str(i): "x" for i in range(10_000)}],
    "client_metadata": [{"a": {}}],
    "service_tier": ["gold", 1],
    "prompt_cache_key": [5],
    "prompt_cache_retention": ["forever"],
    "prompt_cache_options": [{"mode": "x"}, {"x": 1}],
    "verbosity": ["loud"],
    "best_of": [0, 21, 10**6, "1", True, 1.0],
    "response_format": ["text", [], {}, {"type": "xml"}, {"type": "text", "x": 1}, {"type": ["text"]}, 5],
    "unknown_field": [1, "x", {}],
    "chat_template": ["{{ x }}"],
    "cache_salt": ["x"],
}  # fmt: skip

ONLY_CHAT: dict[str, list[Any]] = {
    "max_tokens": [*NOT_INTS, 0, -1],
    "max_completion_tokens": [*NOT_INTS, 0, -1],
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
    "tool_choice": ["any", 1, [], {}, {"type": "web"}],
    "tools": [{}, "x", [5], [{}], [{"type": "web_search"}]],
    "audio": [{"voice": "x"}],
    "function_call": [{"name": "f"}],
    "functions": [[{"name": "f"}]],
    "modalities": [["audio"], ["text", "audio"], []],
    "moderation": [{}],
    "web_search_options": [{}],
}

ONLY_TEXT: dict[str, list[Any]] = {
    "response_format": [{"type": "json_object"}],
    "max_tokens": [*NOT_INTS, -1],
    "max_completion_tokens": [5],
    "logprobs": [True, -1, 6, "1", 10**6],
    "echo": [1, "yes"],
    "suffix": [1, ["x"]],
    "messages": [HELLO],
    "prompt": [
        5, True, [], {}, [[]], ["a", 1], [1, "a"], [1.5], [True], [[1], []], [[1], "a"], [["a"]], [[[1]]],
        ["a"] * 129, [[1]] * 129,
    ],
}  # fmt: skip


def refusal(schema: type[Schema], data: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        validate(schema, data)
    return caught.value


@pytest.mark.parametrize("param", SHARED | ONLY_CHAT)
def test_chat_refuses_by_name(param: str) -> None:
    for value in (SHARED | ONLY_CHAT)[param]:
        error = refusal(ChatRequest, {**CHAT, param: value})
        assert error.param is not None and error.param.startswith(param), (value, error.message)
        assert param in error.message and len(error.message) < 300


@pytest.mark.parametrize("param", SHARED | ONLY_TEXT)
def test_completions_refuse_by_name(param: str) -> None:
    for value in (SHARED | ONLY_TEXT)[param]:
        error = refusal(CompletionRequest, {**TEXT, param: value})
        assert error.param is not None and error.param.startswith(param), (value, error.message)


CALL: dict[str, Any] = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def with_call(**fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [{"id": "c", **fields}]}


MESSAGES: list[tuple[Any, str]] = [
    (None, "messages"),
    ([], "messages"),
    ("hello", "messages"),
    ({}, "messages"),
    ([1], "messages[0]"),
    (["x"], "messages[0]"),
    (HELLO * 4097, "messages"),
    ([{"content": "x"}], "messages[0].role"),
    ([{"role": "root", "content": "x"}], "messages[0].role"),
    ([{"role": ["user"], "content": "x"}], "messages[0].role"),
    ([{"role": "tool", "content": "x"}], "messages[0].tool_call_id"),
    ([{"role": "tool", "content": "x", "tool_call_id": ""}], "messages[0].tool_call_id"),
    ([{"role": "tool", "content": "x", "tool_call_id": "c" * 257}], "messages[0].tool_call_id"),
    ([{"role": "tool", "tool_call_id": "c"}], "messages[0].content"),
    ([{"role": "user", "content": "x", "tool_call_id": "c"}], "messages[0].tool_call_id"),
    ([{"role": "function", "content": "x", "name": "f", "tool_call_id": "c"}], "messages[0].tool_call_id"),
    ([{"role": "function", "content": "x"}], "messages[0].name"),
    ([{"role": "user"}], "messages[0].content"),
    ([*HELLO, {"role": "user", "content": None}], "messages[1].content"),
    ([{"role": "assistant", "content": None}], "messages[0].content"),
    ([{"role": "user", "content": 5}], "messages[0].content"),
    ([{"role": "user", "content": []}], "messages[0].content"),
    ([{"role": "user", "content": {}}], "messages[0].content"),
    ([{"role": "user", "content": ["x"]}], "messages[0].content[0]"),
    ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text"),
    ([{"role": "user", "content": [{"type": "text", "text": 5}]}], "messages[0].content[0].text"),
    ([{"role": "user", "content": [{"type": "text", "text": "x", "y": 1}]}], "messages[0].content[0].y"),
    ([{"role": "user", "content": [{"type": "poem", "text": "x"}]}], "messages[0].content[0].type"),
    ([{"role": "user", "content": [{"type": "text", "text": "x"}] * 1025}], "messages[0].content"),
    ([{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}], "messages[0].content[0].image_url"),
    ([{"role": "user", "content": [{"type": "image_url"}]}], "messages[0].content[0].image_url"),
    ([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}], "messages[0].content[0].image_url.url"),
    (
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x", "detail": "most"}}]}],
        "messages[0].content[0].image_url.detail",
    ),
    ([{"role": "system", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}], "messages[0].content"),
    ([{"role": "assistant", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}], "messages[0].content"),
    ([{"role": "user", "content": [{"type": "image"}]}], "messages[0].content[0]"),
    ([{"role": "user", "content": [{"type": "input_audio"}]}], "messages[0].content[0]"),
    ([{"role": "user", "content": [{"type": "file"}]}], "messages[0].content[0]"),
    ([{"role": "user", "content": "x", "name": "n" * 1_000_000}], "messages[0].name"),
    ([{"role": "user", "content": "x", "foo": 1}], "messages[0].foo"),
    ([{"role": "user", "content": "x", "tool_calls": [CALL]}], "messages[0].tool_calls"),
    ([{"role": "user", "content": "x", "reasoning_content": "hm"}], "messages[0].reasoning_content"),
    ([{"role": "system", "content": "x", "reasoning": "hm"}], "messages[0].reasoning"),
    ([{"role": "assistant", "content": "x", "reasoning": 5}], "messages[0].reasoning"),
    ([{"role": "assistant", "content": "x", "reasoning": "a", "reasoning_content": "b"}], "messages[0].reasoning"),
    ([{"role": "assistant", "content": None, "tool_calls": []}], "messages[0].content"),
    ([{"role": "assistant", "content": None, "reasoning_content": ""}], "messages[0].content"),
    ([{"role": "assistant", "tool_calls": [CALL] * 1025}], "messages[0].tool_calls"),
    ([{"role": "assistant", "tool_calls": {}}], "messages[0].tool_calls"),
    ([{"role": "assistant", "tool_calls": [5]}], "messages[0].tool_calls[0]"),
    ([{"role": "assistant", "tool_calls": [{"id": "c"}]}], "messages[0].tool_calls[0].function"),
    ([{"role": "assistant", "tool_calls": [CALL, {**CALL, "id": ""}]}], "messages[0].tool_calls[1].id"),
    ([{"role": "assistant", "tool_calls": [{**CALL, "type": "web"}]}], "messages[0].tool_calls[0]"),
    ([{"role": "assistant", "tool_calls": [{**CALL, "index": 0}]}], "messages[0].tool_calls[0].index"),
    ([with_call(function={"name": "f"})], "messages[0].tool_calls[0].function.arguments"),
    ([with_call(function={"name": "f", "arguments": {}})], "messages[0].tool_calls[0].function.arguments"),
    ([with_call(function={"name": "f g", "arguments": ""})], "messages[0].tool_calls[0].function.name"),
    ([with_call(type="custom")], "messages[0].tool_calls[0].custom"),
    ([with_call(type="custom", custom={"name": "f"})], "messages[0].tool_calls[0].custom.input"),
    ([{"role": "assistant", "content": "x", "audio": {"id": "a"}}], "messages[0].audio"),
    ([HELLO, HELLO], "messages"),
]


@pytest.mark.parametrize(("messages", "param"), MESSAGES)
@pytest.mark.parametrize("schema", [ChatRequest, TemplateRequest, TokenizeRequest])
def test_messages_are_refused_by_place(schema: type[Schema], messages: Any, param: str) -> None:
    error = refusal(schema, {"model": "m", "messages": messages})
    assert error.param == param


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
    error = refusal(ChatRequest, {"messages": HELLO})
    assert (error.param, error.code) == ("model", "missing_parameter")
    assert refusal(CompletionRequest, {"model": "m"}).param == "prompt"


@pytest.mark.parametrize("body", [None, [], "x", 5, True])
def test_a_body_is_an_object(body: Any) -> None:
    assert refusal(ChatRequest, body).param is None


@pytest.mark.parametrize(("schema", "body"), [(ChatRequest, CHAT), (CompletionRequest, TEXT)])
def test_null_equals_absent(schema: type[Schema], body: dict[str, Any]) -> None:
    optional = {name: None for name in schema.model_fields if name not in body}
    assert len(optional) > 30
    assert validate(schema, {**body, **optional}) == validate(schema, body)


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


@pytest.mark.parametrize(("schema", "body"), [(ChatRequest, CHAT), (CompletionRequest, TEXT)])
@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"n": 2, "best_of": 1}, "at least n"),
        ({"n": 16, "best_of": 15}, "at least n"),
        ({"best_of": 2, "stream": True}, "streamed"),
    ],
)
def test_candidates_have_to_be_enough_and_unseen(
    schema: type[Schema], body: dict[str, Any], fields: dict[str, Any], reason: str
) -> None:
    error = refusal(schema, {**body, **fields})
    assert error.param == "best_of" and reason in error.message


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


def test_a_message_of_the_sdk_can_be_sent_back() -> None:
    message: dict[str, Any] = {
        "role": "assistant", "content": "hi", "refusal": None, "annotations": [], "audio": None,
        "function_call": None, "tool_calls": None,
    }  # fmt: skip
    body = validate(ChatRequest, {**CHAT, "messages": [*HELLO, message]})
    assert body.messages[1].texts == ["hi"]


def test_content_parts_and_refusals_are_text() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "refusal", "refusal": "b"}]
    messages = [{"role": "assistant", "content": parts}, {"role": "assistant", "content": None, "refusal": "c"}]
    body = validate(ChatRequest, {**CHAT, "messages": messages})
    assert [message.texts for message in body.messages] == [["a", "b"], ["c"]]


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [
        ("a", ["a"]),
        ("", [""]),
        (["a", "b"], ["a", "b"]),
        ([1, 2], [[1, 2]]),
        ([[1], [2, 3]], [[1], [2, 3]]),
        ([-1, 2**40], [[-1, 2**40]]),  # the vocabulary is the model's to check
    ],
)
def test_prompts_have_four_forms(prompt: Any, prompts: list[Any]) -> None:
    assert validate(CompletionRequest, {**TEXT, "prompt": prompt}).prompt == prompts


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "messages"),
        ({"prompt": "x", "messages": HELLO}, "messages"),
        ({"prompt": 5}, "prompt"),
        ({"prompt": "x", "add_special_tokens": 1}, "add_special_tokens"),
        ({"prompt": "x", "foo": 1}, "foo"),
        ({"messages": HELLO, "tools": [{}]}, "tools[0]"),
        ({"messages": HELLO, "chat_template_kwargs": []}, "chat_template_kwargs"),
    ],
)
def test_tokenize_refuses(body: dict[str, Any], param: str) -> None:
    assert refusal(TokenizeRequest, body).param == param


@pytest.mark.parametrize("tokens", [None, 5, ["1"], [1.5], [True], [-1], "x"])
def test_detokenize_refuses(tokens: Any) -> None:
    param = refusal(DetokenizeRequest, {"tokens": tokens}).param
    assert param is not None and param.startswith("tokens")
