"""`prediction`: a guess changes how fast an answer comes, never the answer; what of it was right is counted."""

from typing import Any

import httpx
import pytest
from openai import OpenAI

from proxy_inference_engine.config import Config
from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.engine.worker import Worker
from proxy_inference_engine.runners.base import Lane
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.served.model import ServedModel
from proxy_inference_engine.server.apis.chat.ask import Conversation, make_ask
from proxy_inference_engine.server.apis.chat.schema import ChatRequest
from proxy_inference_engine.server.apis.shared.fields import validate
from tests.api.running import HELLO, MODEL, on_every_runner, running

ASK: dict[str, Any] = {"model": MODEL, "messages": HELLO, "seed": 1, "max_tokens": 40}
PATH = "/v1/chat/completions"
FORMAT = {"type": "choice", "choices": ["a sentence that is always the same", "another one"]}
TOOL = {
    "type": "function",
    "function": {"name": "find", "parameters": {"type": "object", "properties": {"x": {"enum": [1, 2]}}}},
}


def guess(content: Any) -> dict[str, Any]:
    return {"prediction": {"type": "content", "content": content}}


def draft_ids(context_tokens: int, **fields: Any) -> tuple[int, ...]:
    worker = Worker(StepEngine(FakeRunner(lanes=(Lane(1, context_tokens),)), max_cache_bytes=0))
    model = ServedModel.of(worker, Config())
    ask = make_ask(Conversation(validate(ChatRequest, {**ASK, **fields})), model, "me", "id")
    return model.prepare(ask).request.draft_ids


def test_a_guess_arrives_as_tokens() -> None:
    assert draft_ids(256) == ()
    assert draft_ids(256, **guess("ab")) == tuple(b"ab")
    assert draft_ids(256, **guess([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])) == tuple(b"ab")
    assert draft_ids(256, **guess("<|im_end|>")) == tuple(b"<|im_end|>"), "what a client writes is never special"
    assert len(draft_ids(256, **guess("x" * 1000))) == 256


@on_every_runner
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"temperature": 0},
        {"n": 3},
        {"logprobs": True, "top_logprobs": 2},
        {"best_of": 3},
        {"response_format": FORMAT},
        {"tools": [TOOL], "tool_choice": "required", "max_tokens": 100},
        {"stop": "e", "ignore_eos": True},
        {"frequency_penalty": 1.0},
    ],
)
@pytest.mark.parametrize("kind", ["right", "wrong", "partly right"])
def test_a_guess_changes_no_answer(http: httpx.Client, fields: dict[str, Any], kind: str) -> None:
    plain = http.post(PATH, json={**ASK, **fields}).json()
    said = plain["choices"][0]["message"]["content"] or ""
    content = {"right": said, "wrong": "Nothing of this is true.", "partly right": "Well, " + said[3:]}[kind]
    answer = http.post(PATH, json={**ASK, **fields, **guess(content)}).json()
    for one, other in zip(answer["choices"], plain["choices"], strict=True):
        assert one["message"]["content"] == other["message"]["content"]
        assert (one["finish_reason"], one["logprobs"]) == (other["finish_reason"], other["logprobs"])
    assert answer["usage"]["completion_tokens"] == plain["usage"]["completion_tokens"]


def test_what_was_right_is_counted(client: OpenAI) -> None:
    plain = client.chat.completions.create(**ASK, extra_body={"ignore_eos": True})
    said = plain.choices[0].message.content or ""
    counts = []
    for content in (said, "zzzz" * 10):
        answer = client.chat.completions.create(
            **ASK, prediction={"type": "content", "content": content}, extra_body={"ignore_eos": True}
        )
        details = answer.usage.completion_tokens_details if answer.usage else None
        assert details is not None
        counts.append((details.accepted_prediction_tokens or 0, details.rejected_prediction_tokens or 0))
    assert counts[0][0] > 20 and counts[1][0] == 0


def test_a_stop_string_does_not_hide_what_was_right(client: OpenAI) -> None:
    extra = {"ignore_eos": True}
    said = client.chat.completions.create(**ASK, extra_body=extra).choices[0].message.content or ""
    stop = said[-6:-3]
    for content, is_right in ((said, True), (said[:10] + "z" * 20, False)):
        fields: dict[str, Any] = {**ASK, **guess(content), "stop": stop, "extra_body": extra}
        whole = client.chat.completions.create(**fields)
        *_, last = client.chat.completions.create(**fields, stream=True, stream_options={"include_usage": True})
        assert whole.choices[0].finish_reason == "stop"
        for usage in (whole.usage, last.usage):
            details = usage.completion_tokens_details if usage else None
            assert details is not None
            assert details.accepted_prediction_tokens
            assert (details.rejected_prediction_tokens == 0) == is_right


def test_every_guess_is_in_the_metrics() -> None:
    with running() as live, live.http() as http:
        said = http.post(PATH, json={**ASK, "ignore_eos": True}).json()["choices"][0]["message"]["content"]
        assert live.stats.total_draft_tokens == live.stats.total_draft_tokens_accepted == 0
        http.post(PATH, json={**ASK, "ignore_eos": True, **guess(said[:-2] + "zz")})
        stats, text = live.stats, http.get("/metrics").text
    assert 0 < stats.total_draft_tokens_accepted < stats.total_draft_tokens
    for name in ("draft_tokens", "draft_tokens_accepted"):
        assert f'pie_{name}_total{{model="fake"}} {float(getattr(stats, f"total_{name}"))}' in text


@on_every_runner
def test_without_a_guess_nothing_is_counted(client: OpenAI) -> None:
    usage = client.chat.completions.create(**ASK).usage
    assert usage and usage.completion_tokens_details
    assert usage.completion_tokens_details.accepted_prediction_tokens == 0
    assert usage.completion_tokens_details.rejected_prediction_tokens == 0


def test_each_conversation_may_have_its_own_guess(http: httpx.Client) -> None:
    talks = [HELLO, [{"role": "user", "content": "Hello again"}]]
    plain = http.post(PATH, json={**ASK, "messages": talks}).json()["choices"]
    own = [guess(choice["message"]["content"])["prediction"] for choice in plain]
    guessed = http.post(PATH, json={**ASK, "messages": talks, "prediction": own}).json()["choices"]
    assert guessed == plain


@pytest.mark.parametrize("can_splice", [True, False])
def test_a_guess_that_cannot_be_used_is_named(can_splice: bool) -> None:
    """A wrong guess has to be forgotten, which memory that cannot be cut does not do."""
    with running(FakeRunner(can_splice=can_splice)) as live, live.openai() as client, live.http() as http:
        text = client.chat.completions.create(**ASK).choices[0].message.content
        raw = client.chat.completions.with_raw_response.create(**ASK, prediction={"type": "content", "content": text})
        answer = raw.parse()
        assert raw.headers.get("x-pie-ignored") == (None if can_splice else "prediction")
        assert answer.choices[0].message.content == text
        details = answer.usage and answer.usage.completion_tokens_details
        assert details and bool(details.accepted_prediction_tokens) is can_splice
        guesses = [None, guess("a")["prediction"]]
        talks = http.post(PATH, json={**ASK, "messages": [HELLO, HELLO], "prediction": guesses})
        assert talks.headers.get("x-pie-ignored") == (None if can_splice else "prediction[1]")
