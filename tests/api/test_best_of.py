"""`best_of`: the candidates are the choices that `n` would give, and the likeliest of them are answered."""

from statistics import fmean
from typing import Any

import httpx
import pytest

from tests.api.running import HELLO, MODEL, on_every_runner

# No end and no control tokens: every generated token then shows its log-probability.
OPEN: dict[str, Any] = {"seed": 5, "max_tokens": 12, "ignore_eos": True, "logit_bias": {"256": -100, "257": -100}}
CHAT: dict[str, Any] = {"model": MODEL, "messages": HELLO, **OPEN}
TEXT: dict[str, Any] = {"model": MODEL, "prompt": "Once", **OPEN}
SCHEMA = {"type": "object", "properties": {"age": {"enum": [1, 22, 333]}, "name": {"enum": ["Ann", "Bob"]}}}
FORMAT = {
    "type": "json_schema",
    "json_schema": {"name": "n", "schema": {**SCHEMA, "required": ["age", "name"], "additionalProperties": False}},
}
TOOL = {"type": "function", "function": {"name": "find", "parameters": FORMAT["json_schema"]["schema"]}}  # type: ignore[index]


def post(http: httpx.Client, path: str, body: dict[str, Any]) -> dict[str, Any]:
    response = http.post(path, json=body)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    assert [choice["index"] for choice in answer["choices"]] == list(range(len(answer["choices"])))
    return answer


def chat_means(answer: dict[str, Any]) -> list[tuple[float, str]]:
    """Mean and text of every choice, the likeliest first."""
    choices = (
        (fmean(entry["logprob"] for entry in choice["logprobs"]["content"]), choice["message"]["content"])
        for choice in answer["choices"]
    )
    return sorted(choices, reverse=True)


@on_every_runner
@pytest.mark.parametrize("num_choices", [1, 2, 6])
@pytest.mark.parametrize("fields", [{}, {"response_format": FORMAT}], ids=["free", "constrained"])
def test_chat_answers_the_likeliest(http: httpx.Client, num_choices: int, fields: dict[str, Any]) -> None:
    ranked = chat_means(post(http, "/v1/chat/completions", {**CHAT, **fields, "n": 6, "logprobs": True}))
    answer = post(http, "/v1/chat/completions", {**CHAT, **fields, "n": num_choices, "best_of": 6})
    assert [choice["message"]["content"] for choice in answer["choices"]] == [text for _, text in ranked[:num_choices]]
    assert all(choice["logprobs"] is None for choice in answer["choices"])


@on_every_runner
def test_usage_counts_every_candidate(http: httpx.Client) -> None:
    alone = post(http, "/v1/chat/completions", CHAT)["usage"]
    usage = post(http, "/v1/chat/completions", {**CHAT, "best_of": 20})["usage"]
    assert usage["prompt_tokens"] == alone["prompt_tokens"] and usage["completion_tokens"] == 20 * 12
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


def test_log_probabilities_are_shown_when_asked(http: httpx.Client) -> None:
    (choice,) = post(http, "/v1/chat/completions", {**CHAT, "best_of": 3, "logprobs": True, "top_logprobs": 2})[
        "choices"
    ]
    assert len(choice["logprobs"]["content"]) == 12
    assert all(len(entry["top_logprobs"]) == 2 for entry in choice["logprobs"]["content"])


def test_calls_are_candidates_too(http: httpx.Client) -> None:
    fields = {"tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 200}
    answer = post(http, "/v1/chat/completions", {**CHAT, **fields, "best_of": 4})
    (choice,) = answer["choices"]
    assert choice["finish_reason"] == "tool_calls" and choice["message"]["tool_calls"][0]["function"]["name"] == "find"
    alone = post(http, "/v1/chat/completions", {**CHAT, **fields})
    assert answer["usage"]["completion_tokens"] > 3 * alone["usage"]["completion_tokens"]


@on_every_runner
def test_completions_answer_the_likeliest_of_every_prompt(http: httpx.Client) -> None:
    prompts = ["Once", "upon a time"]
    shown = post(http, "/v1/completions", {**TEXT, "prompt": prompts, "n": 5, "logprobs": 0})["choices"]
    scored = [(fmean(choice["logprobs"]["token_logprobs"]), choice["text"]) for choice in shown]
    expected = [text for start in (0, 5) for _, text in sorted(scored[start : start + 5], reverse=True)[:2]]
    answer = post(http, "/v1/completions", {**TEXT, "prompt": prompts, "n": 2, "best_of": 5})
    assert [choice["text"] for choice in answer["choices"]] == expected
    assert all(choice["logprobs"] is None for choice in answer["choices"])
    assert answer["usage"]["completion_tokens"] == 2 * 5 * 12


def test_an_echo_is_not_scored(http: httpx.Client) -> None:
    plain = post(http, "/v1/completions", {**TEXT, "best_of": 5})["choices"][0]["text"]
    assert post(http, "/v1/completions", {**TEXT, "best_of": 5, "echo": True})["choices"][0]["text"] == "Once" + plain
    assert post(http, "/v1/completions", {**TEXT, "best_of": 5, "max_tokens": 0})["choices"][0]["text"] == ""


def test_one_of_one_may_be_streamed(http: httpx.Client) -> None:
    text = http.post("/v1/chat/completions", json={**CHAT, "best_of": 1, "stream": True}).text
    assert text.endswith("data: [DONE]\n\n") and '"error"' not in text
