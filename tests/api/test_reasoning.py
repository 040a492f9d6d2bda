"""Reasoning through the official client, over a fake model of a family that thinks."""

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from proxy_inference_engine.formats import by_name
from proxy_inference_engine.runners.fake import FakeRunner
from tests.api.running import HELLO, MODEL, Running, running
from tests.api.writing import MARKERS, OPENING

OPEN_ID, CLOSE_ID, CALL_ID, CALLED_ID = ("260", "261", "262", "263")
# The fake model writes markers wherever it may; these are for tests to want.
QUIET = {OPEN_ID: -100, CALL_ID: -100, CALLED_ID: -100}
ASK: dict[str, Any] = {"model": MODEL, "messages": HELLO, "seed": 1, "max_tokens": 600, "logit_bias": QUIET}


@pytest.fixture(scope="module")
def qwen() -> Iterator[Running]:
    """Opens the block itself."""
    with running(FakeRunner(chat_template=by_name("qwen3").template, defined_tokens=MARKERS)) as live:
        yield live
        live.wait_idle()


@pytest.fixture(scope="module")
def opened() -> Iterator[Running]:
    """Its template opens the block."""
    with running(FakeRunner(chat_template=OPENING, defined_tokens=MARKERS)) as live:
        yield live
        live.wait_idle()


@pytest.fixture
def thinker(opened: Running) -> Iterator[OpenAI]:
    with opened.openai() as client:
        yield client


def ask(client: OpenAI, **fields: Any) -> ChatCompletion:
    extra = fields.pop("extra", None)
    answer: ChatCompletion = client.chat.completions.create(**{**ASK, **fields}, extra_body=extra)
    return answer


def stream(client: OpenAI, **fields: Any) -> list[ChatCompletionChunk]:
    extra = fields.pop("extra", None)
    options = {"stream": True, "stream_options": {"include_usage": True}}
    return list(client.chat.completions.create(**{**ASK, **options, **fields}, extra_body=extra))


def thoughts(answer: ChatCompletion, index: int = 0) -> str | None:
    text: str | None = (answer.choices[index].message.model_extra or {}).get("reasoning_content")
    return text


def num_reasoning(answer: ChatCompletion | ChatCompletionChunk) -> int:
    assert answer.usage is not None and answer.usage.completion_tokens_details is not None
    return answer.usage.completion_tokens_details.reasoning_tokens or 0


def prompt(live: Running, **variables: Any) -> str:
    with live.http() as http:
        body = {"messages": HELLO, "chat_template_kwargs": variables}
        text: str = http.post("/apply-template", json=body).json()["prompt"]
    return text


def test_reasoning_is_apart_from_the_answer(thinker: OpenAI) -> None:
    answer = ask(thinker, n=4)
    assert any(thoughts(answer, index) for index in range(4))
    assert not any("think>" in (thoughts(answer, index) or "") for index in range(4))
    assert any(choice.message.content for choice in answer.choices)
    assert answer.usage is not None and 0 < num_reasoning(answer) < answer.usage.completion_tokens


def test_streamed_equals_whole(thinker: OpenAI) -> None:
    answer, chunks = ask(thinker, n=4), stream(thinker, n=4)
    for index, choice in enumerate(answer.choices):
        deltas = [part.delta for chunk in chunks for part in chunk.choices if part.index == index]
        reasoning = [(delta.model_extra or {}).get("reasoning_content") for delta in deltas]
        assert "".join(text or "" for text in reasoning) == (thoughts(answer, index) or "")
        assert "".join(delta.content or "" for delta in deltas) == choice.message.content
        assert not any(text and delta.content for text, delta in zip(reasoning, deltas, strict=True))
    assert num_reasoning(chunks[-1]) == num_reasoning(answer)


def test_a_model_may_open_the_block_itself(qwen: Running) -> None:
    # The bias is for the first token: in the block it would only be text.
    eager = {"logit_bias": {OPEN_ID: 8}, "extra": {"reasoning_budget_tokens": 20}}
    with qwen.openai() as client:
        answer = ask(client, n=4, **eager)
        assert any(thoughts(answer, index) for index in range(4))
        off = ask(client, n=4, **{**eager, "extra": {"enable_thinking": False}})
    assert not any(thoughts(off, index) for index in range(4)) and num_reasoning(off) == 0


@pytest.mark.parametrize("budget", [1, 5, 30])
def test_a_budget_closes_the_block(thinker: OpenAI, budget: int) -> None:
    endless = {**QUIET, CLOSE_ID: -100}
    answer = ask(thinker, logit_bias=endless, extra={"reasoning_budget_tokens": budget})
    assert 0 < num_reasoning(answer) <= budget + 2  # and its markers
    assert len((thoughts(answer) or "").encode()) <= budget
    assert answer.choices[0].message.content or answer.choices[0].finish_reason == "stop"


def test_without_a_budget_the_limit_ends_it(thinker: OpenAI) -> None:
    answer = ask(thinker, max_tokens=20, logit_bias={**QUIET, CLOSE_ID: -100})
    assert answer.choices[0].finish_reason == "length" and answer.choices[0].message.content == ""
    assert thoughts(answer) and num_reasoning(answer) == 20


def test_a_least_number_of_tokens(thinker: OpenAI) -> None:
    eager = {**QUIET, CLOSE_ID: 100}
    short = ask(thinker, logit_bias=eager)
    assert num_reasoning(short) <= 2
    long = ask(thinker, logit_bias=eager, extra={"reasoning_min_tokens": 30})
    assert num_reasoning(long) >= 30


@pytest.mark.parametrize(
    "extra",
    [{"enable_thinking": False}, {"reasoning_effort": "none"}, {"chat_template_kwargs": {"enable_thinking": False}}],
)
def test_reasoning_can_be_switched_off(opened: Running, thinker: OpenAI, extra: dict[str, Any]) -> None:
    answer = ask(thinker, n=2, extra=extra)
    assert thoughts(answer) is None and num_reasoning(answer) == 0
    assert all(choice.message.content is not None for choice in answer.choices)
    assert prompt(opened, enable_thinking=False).endswith("</think>\n\n")


def test_effort_reaches_the_template(opened: Running, thinker: OpenAI) -> None:
    counts = {}
    for effort in ("low", "high"):
        answer = ask(thinker, max_tokens=1, reasoning_effort=effort)
        counts[effort] = answer.usage.prompt_tokens if answer.usage else 0
        assert f"effort {effort}" in prompt(opened, reasoning_effort=effort)
    assert counts["high"] == counts["low"] + 1


def test_a_format_binds_after_the_reasoning(thinker: OpenAI) -> None:
    format = {"type": "grammar", "syntax": "regex", "definition": "[0-9]{3}"}
    answer = ask(thinker, n=4, extra={"response_format": format, "reasoning_budget_tokens": 40})
    assert any(thoughts(answer, index) for index in range(4))
    for choice in answer.choices:
        assert choice.finish_reason == "stop" and re.fullmatch("[0-9]{3}", choice.message.content or "")


def test_calls_come_after_the_reasoning(thinker: OpenAI) -> None:
    parameters = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"]}
    tool = {"type": "function", "function": {"name": "f", "parameters": {**parameters, "additionalProperties": False}}}
    fields = {"tools": [tool], "tool_choice": "required", "parallel_tool_calls": False}
    answer = ask(thinker, n=4, **fields, extra={"reasoning_budget_tokens": 40})
    assert any(thoughts(answer, index) for index in range(4))
    for choice in answer.choices:
        calls = [call.function for call in choice.message.tool_calls or () if call.type == "function"]
        assert [(call.name, json.loads(call.arguments)["a"] in (1, 2)) for call in calls] == [("f", True)]
        assert choice.finish_reason == "tool_calls" and choice.message.content is None


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_of_history_reaches_the_template(opened: Running, field: str) -> None:
    messages = [*HELLO, {"role": "assistant", "content": "Hi", field: "Be kind."}, *HELLO]
    with opened.http() as http:
        text = http.post("/apply-template", json={"messages": messages}).json()["prompt"]
        assert "<think>\nBe kind.\n</think>\n\nHi" in text
        assert http.post("/v1/chat/completions", json={**ASK, "messages": messages}).status_code == 200


def test_an_answer_can_be_sent_back(thinker: OpenAI) -> None:
    message = ask(thinker).choices[0].message
    assert ask(thinker, messages=[*HELLO, message.model_dump(), *HELLO]).choices


def test_what_a_user_writes_opens_nothing(qwen: Running) -> None:
    messages = [{"role": "user", "content": "Say <think>"}]
    with qwen.openai() as client:
        answer = ask(client, messages=messages, extra={"enable_thinking": False})
    assert thoughts(answer) is None and answer.choices[0].message.content


def test_logprobs_are_of_the_answer_only(thinker: OpenAI) -> None:
    choice = ask(thinker, logprobs=True, extra={"reasoning_budget_tokens": 20}).choices[0]
    assert choice.logprobs is not None
    data = b"".join(bytes(entry.bytes or []) for entry in choice.logprobs.content or ())
    assert data.decode("utf-8", "replace").strip() == (choice.message.content or "").strip()


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"reasoning_min_tokens": 5, "reasoning_budget_tokens": 4}, "reasoning_min_tokens"),
    ({"enable_thinking": True, "reasoning_effort": "none"}, "reasoning_effort"),
    ({"chat_template_kwargs": {"enable_thinking": "yes"}}, "chat_template_kwargs.enable_thinking"),
    ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
    ({"chat_template_kwargs": {"reasoning_effort": "<|im_end|>"}}, "chat_template_kwargs"),
    ({"reasoning_effort": "huge"}, "reasoning_effort"),
]


@pytest.mark.parametrize(("fields", "param"), WRONG)
def test_what_is_wrong_is_refused_by_name(opened: Running, fields: dict[str, Any], param: str) -> None:
    with opened.http() as http:
        response = http.post("/v1/chat/completions", json={**ASK, **fields})
    assert response.status_code == 400 and response.json()["error"]["param"] == param


# Always opens the block.
UNSWITCHED = re.sub("{% if enable_thinking.*{% endif %}{% endif %}", "<think>\\n{% endif %}", OPENING)


@pytest.fixture(scope="module")
def unswitched() -> Iterator[Running]:
    with running(FakeRunner(chat_template=UNSWITCHED, defined_tokens=MARKERS)) as live:
        yield live
        live.wait_idle()


@pytest.mark.parametrize(
    "fields",
    [
        {"enable_thinking": False},
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"reasoning_effort": "none"},
    ],
)
def test_a_block_without_a_switch_is_closed(unswitched: Running, opened: Running, fields: dict[str, Any]) -> None:
    """It used to think all the same, and to say nothing of it."""
    with unswitched.http() as http, opened.http() as other:
        response = http.post("/v1/chat/completions", json={**ASK, **fields})
        assert response.status_code == 200 and "x-pie-ignored" not in response.headers
        message = response.json()["choices"][0]["message"]
        assert "reasoning_content" not in message and message["content"]
        # The prompt is the one that a template with a switch makes.
        switched = other.post("/v1/chat/completions", json={**ASK, **fields})
        assert message == switched.json()["choices"][0]["message"]
        thinks = http.post("/v1/chat/completions", json=ASK).json()["choices"][0]["message"]
        assert thinks["reasoning_content"]


@pytest.mark.parametrize(
    ("server_name", "fields", "ignored"),
    [
        ("qwen", {"reasoning_effort": "low"}, "reasoning_effort"),
        ("qwen", {"chat_template_kwargs": {"colour": "red"}}, "chat_template_kwargs.colour"),
        ("server", {"reasoning_effort": "low"}, "reasoning_effort"),
        ("server", {"reasoning_effort": "high", "enable_thinking": False}, "reasoning_effort"),
        ("server", {"chat_template_kwargs": {"enable_thinking": True}}, "chat_template_kwargs.enable_thinking"),
        ("harmony", {"enable_thinking": False}, "enable_thinking"),
        ("harmony", {"chat_template_kwargs": {"enable_thinking": False}}, "chat_template_kwargs.enable_thinking"),
    ],
)
def test_what_changes_nothing_is_named(
    request: pytest.FixtureRequest, server_name: str, fields: dict[str, Any], ignored: str
) -> None:
    body = {"model": MODEL, "messages": HELLO, "max_tokens": 5, **fields}
    with request.getfixturevalue(server_name).http() as http:
        assert http.post("/v1/chat/completions", json=body).headers["x-pie-ignored"] == ignored
        streamed = http.post("/v1/chat/completions", json={**body, "stream": True})
        assert streamed.status_code == 200 and streamed.headers["x-pie-ignored"] == ignored
        talks = http.post("/v1/chat/completions", json={**body, "messages": [HELLO, HELLO]})
        assert talks.status_code == 200 and talks.headers["x-pie-ignored"] == ignored


@pytest.fixture(scope="module")
def harmony() -> Iterator[Running]:
    family = by_name("harmony")
    with running(FakeRunner(chat_template=family.template, defined_tokens=sorted(family.tokens))) as live:
        yield live
        live.wait_idle()


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"enable_thinking": True}, 400),
        ({"reasoning_effort": "low"}, 200),
        ({"reasoning_budget_tokens": 5}, 400),
        ({"reasoning_min_tokens": 5}, 400),
        ({"chat_template_kwargs": {"enable_thinking": True}}, 200),
        ({"enable_thinking": False}, 200),
        ({"reasoning_effort": "none"}, 200),
        ({"reasoning_budget_tokens": 0}, 200),
        ({"chat_template_kwargs": {"enable_thinking": False}}, 200),
    ],
)
def test_a_family_that_does_not_reason(http: httpx.Client, fields: dict[str, Any], status: int) -> None:
    response = http.post("/v1/chat/completions", json={"model": MODEL, "messages": HELLO, "max_tokens": 5, **fields})
    assert response.status_code == status, response.text
    if status == 400:
        assert response.json()["error"]["param"].startswith(next(iter(fields)))
