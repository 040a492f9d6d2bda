"""POST /v1/chat/completions through the official client, answers strictly validated."""

from itertools import chain
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from proxy_inference_engine.runners.base import Lane
from proxy_inference_engine.runners.fake import FakeRunner
from tests.api.running import HELLO, MODEL, Running, on_every_runner, running

ASK: dict[str, Any] = {"model": MODEL, "messages": HELLO, "seed": 1, "max_tokens": 40}


def ask(client: OpenAI, **fields: Any) -> ChatCompletion:
    extra = fields.pop("extra", {})
    answer: ChatCompletion = client.chat.completions.create(**{**ASK, **fields}, extra_body=extra)
    return answer


def stream(client: OpenAI, **fields: Any) -> list[ChatCompletionChunk]:
    extra = fields.pop("extra", {})
    options = {"stream": True, "stream_options": {"include_usage": True}}
    return list(client.chat.completions.create(**{**ASK, **options, **fields}, extra_body=extra))


def content(chunks: list[ChatCompletionChunk], index: int = 0) -> str:
    return "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices if choice.index == index)


@on_every_runner
def test_an_answer_is_complete(client: OpenAI, server: Running) -> None:
    answer = ask(client)
    choice = answer.choices[0]
    assert answer.id.startswith("chatcmpl-") and answer.object == "chat.completion" and answer.model == MODEL
    assert answer.system_fingerprint == server.runner.info.fingerprint
    assert choice.message.role == "assistant" and choice.message.content
    assert choice.finish_reason in ("stop", "length") and choice.logprobs is None
    assert answer.usage is not None and answer.usage.completion_tokens <= 40
    assert answer.usage.prompt_tokens + answer.usage.completion_tokens == answer.usage.total_tokens
    timings = answer.model_extra["timings"] if answer.model_extra else {}
    assert set(timings) == {"prompt_ms", "prompt_per_second", "predicted_ms", "predicted_per_second"}
    assert timings["predicted_ms"] > 0


@on_every_runner
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"n": 3},
        {"logprobs": True, "top_logprobs": 3},
        {"stop": ["e", " a"]},
        {"n": 2, "stop": "o", "logprobs": True},
        {"temperature": 0},
        {"max_tokens": 1},
        {"extra": {"top_k": 5, "min_p": 0.01, "repetition_penalty": 1.2, "ignore_eos": True}},
        {"extra": {"dry_multiplier": 0.8, "xtc_probability": 0.5}, "frequency_penalty": 0.5},
    ],
)
def test_streamed_equals_whole(client: OpenAI, fields: dict[str, Any]) -> None:
    answer, chunks = ask(client, **fields), stream(client, **fields)
    for choice in answer.choices:
        own = [part for chunk in chunks for part in chunk.choices if part.index == choice.index]
        assert content(chunks, choice.index) == choice.message.content
        assert [part.finish_reason for part in own if part.finish_reason] == [choice.finish_reason]
        assert own[-1].finish_reason and (own[-1].model_extra or {}) == (choice.model_extra or {})
        if choice.logprobs is not None:
            entries = chain(*(part.logprobs.content or [] for part in own if part.logprobs))
            assert list(entries) == choice.logprobs.content
    assert answer.usage and chunks[-1].usage
    assert chunks[-1].usage.completion_tokens == answer.usage.completion_tokens
    assert chunks[-1].usage.prompt_tokens == answer.usage.prompt_tokens


@on_every_runner
def test_a_stream_has_the_recorded_order(client: OpenAI) -> None:
    chunks = stream(client, n=4)
    first = [chunk.choices[0] for chunk in chunks[:4]]
    assert [choice.index for choice in first] == [0, 1, 2, 3]
    assert all(choice.delta.role == "assistant" and choice.delta.content == "" for choice in first)
    assert not any(choice.delta.role for chunk in chunks[4:] for choice in chunk.choices)
    assert chunks[-1].choices == [] and all(chunk.choices for chunk in chunks[:-1])
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert len({(chunk.id, chunk.created, chunk.model) for chunk in chunks}) == 1


@on_every_runner
def test_the_stream_helper_folds(client: OpenAI) -> None:
    with client.chat.completions.stream(**ASK, n=2, logprobs=True) as events:
        for _ in events:
            pass
        final = events.current_completion_snapshot
    assert [choice.message.content for choice in final.choices] == [
        choice.message.content for choice in ask(client, n=2).choices
    ]


@on_every_runner
def test_usage_comes_only_when_asked(http: httpx.Client) -> None:
    text = http.post("/v1/chat/completions", json={**ASK, "stream": True}).text
    assert '"usage"' not in text and text.endswith("data: [DONE]\n\n")
    assert text.count('"timings"') == 1


@on_every_runner
def test_choices_differ_and_repeat_with_the_seed(client: OpenAI) -> None:
    texts = [choice.message.content for choice in ask(client, n=8).choices]
    assert len(set(texts)) == 8
    assert [choice.message.content for choice in ask(client, n=8).choices] == texts
    assert ask(client).choices[0].message.content == texts[0]


@on_every_runner
def test_without_a_seed_answers_differ(client: OpenAI) -> None:
    assert len({ask(client, seed=None).choices[0].message.content for _ in range(5)}) == 5


@on_every_runner
def test_logprobs_carry_the_text(client: OpenAI) -> None:
    choice = ask(client, logprobs=True, top_logprobs=20, extra={"ignore_eos": True}).choices[0]
    assert choice.logprobs is not None and choice.logprobs.content is not None
    data = b"".join(bytes(entry.bytes or []) for entry in choice.logprobs.content)
    assert data.decode("utf-8", "replace") == choice.message.content
    assert all(len(entry.top_logprobs) == 20 and entry.logprob <= 0 for entry in choice.logprobs.content)
    none = ask(client, logprobs=True, top_logprobs=0).choices[0].logprobs
    assert none is not None and all(entry.top_logprobs == [] for entry in none.content or [])


@on_every_runner
def test_a_stop_string_cuts_and_is_reported(client: OpenAI) -> None:
    text = ask(client, extra={"ignore_eos": True}).choices[0].message.content or ""
    stop = text[5:8]
    choice = ask(client, stop=stop, extra={"ignore_eos": True}).choices[0]
    assert choice.message.content == text[: text.index(stop)]
    assert choice.finish_reason == "stop" and (choice.model_extra or {})["stop_str"] == stop


@on_every_runner
def test_limits_hold(client: OpenAI) -> None:
    free = {"ignore_eos": True}
    for name in ("max_tokens", "max_completion_tokens"):
        answer = ask(client, **{"max_tokens": None, name: 7}, extra=free)
        assert answer.usage and answer.usage.completion_tokens == 7
        assert answer.choices[0].finish_reason == "length"
    answer = ask(client, max_tokens=12, extra={"min_tokens": 12})
    assert answer.usage and answer.usage.completion_tokens == 12
    eager = ask(client, extra={"stop_token_ids": list(range(97, 123))}, max_tokens=100)
    assert eager.usage and eager.usage.completion_tokens < 100 and eager.choices[0].finish_reason == "stop"


@on_every_runner
def test_logit_bias_decides(client: OpenAI, server: Running) -> None:
    answer = ask(client, logit_bias=server.bias({"x": 100}), extra={"ignore_eos": True}, max_tokens=5)
    assert answer.choices[0].message.content == "xxxxx"


def test_no_limit_means_the_rest_of_the_context() -> None:
    with running(FakeRunner(lanes=(Lane(2, 128),))) as small, small.openai() as client:
        answer = ask(client, max_tokens=None, extra={"ignore_eos": True})
        assert answer.usage and answer.usage.total_tokens == 128
        assert answer.choices[0].finish_reason == "length"
        clamped = ask(client, max_tokens=10_000, extra={"ignore_eos": True})
        assert clamped.usage and clamped.usage.total_tokens == 128


@on_every_runner
@pytest.mark.parametrize("is_stream", [False, True])
def test_a_long_prompt_is_refused_before_any_header(client: OpenAI, is_stream: bool) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, messages=[{"role": "user", "content": "x" * 9000}], stream=is_stream)
    assert caught.value.code == "context_length_exceeded" and caught.value.param == "messages"
    assert "8192" in caught.value.message and "90" in caught.value.message


@on_every_runner
def test_a_repeated_prompt_is_cached(client: OpenAI) -> None:
    messages = [{"role": "user", "content": "Tell me of caches. " * 20}]
    answers = [ask(client, messages=messages) for _ in range(2)]
    details = [answer.usage.prompt_tokens_details for answer in answers if answer.usage]
    num_tokens = answers[1].usage.prompt_tokens if answers[1].usage else 0
    assert details[1] is not None and details[1].cached_tokens and details[1].cached_tokens > 0.8 * num_tokens > 80
    assert answers[0].choices[0].message.content == answers[1].choices[0].message.content


@on_every_runner
def test_the_last_message_can_be_continued(client: OpenAI, http: httpx.Client) -> None:
    messages = [*HELLO, {"role": "assistant", "content": "I say"}]
    body = {"messages": messages, "continue_final_message": True}
    prompt = http.post("/apply-template", json=body).json()["prompt"]
    assert prompt.endswith("I say")
    answer = ask(client, messages=messages, extra={"continue_final_message": True})
    assert answer.usage and answer.usage.prompt_tokens == http.post("/tokenize", json=body).json()["count"]


@on_every_runner
def test_the_generation_prompt_can_be_left_out(http: httpx.Client) -> None:
    with_it, without = (
        http.post("/apply-template", json={"messages": HELLO, "add_generation_prompt": adds}).json()["prompt"]
        for adds in (True, False)
    )
    assert with_it == without + "<|im_start|>assistant\n"
    body = {**ASK, "add_generation_prompt": False}
    usage = http.post("/v1/chat/completions", json=body).json()["usage"]
    assert usage["prompt_tokens"] == len(
        http.post("/tokenize", json={"messages": HELLO, "add_generation_prompt": False}).json()["tokens"]
    )


def test_fields_without_effect_are_echoed_where_the_format_does(client: OpenAI) -> None:
    plain = ask(client)
    answer = ask(client, metadata={"a": "b"}, service_tier="flex", user="me", prompt_cache_key="k", verbosity="low")
    assert answer.metadata == {"a": "b"} and answer.service_tier == "flex"
    assert plain.metadata is None and plain.service_tier is None
    assert answer.choices[0].message.content == plain.choices[0].message.content


@on_every_runner
def test_an_answer_can_be_sent_back(client: OpenAI) -> None:
    message = ask(client).choices[0].message
    follow_up = [*HELLO, message.model_dump(), {"role": "user", "content": [{"type": "text", "text": "More"}]}]
    assert ask(client, messages=follow_up).choices


def test_the_alias_default_is_the_model(client: OpenAI) -> None:
    assert ask(client, model="default").model == MODEL


@on_every_runner
def test_unicode_arrives_whole(client: OpenAI, server: Running) -> None:
    text = "".join(chr(code) for code in (0x1F600, 0x2028, 0x85, 0, 0xE9))
    answer = ask(client, messages=[{"role": "user", "content": text}])
    assert answer.usage and answer.usage.prompt_tokens > len(text.encode())
