"""A budget for reasoning at an engine that cannot count it: the answer is that of a near model, in two requests."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from openai import OpenAI

from proxy_inference_engine.config import Config
from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.engine.worker import Worker
from proxy_inference_engine.formats import by_name
from proxy_inference_engine.runners.base import Lane
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.served.model import ServedModel
from tests.api.running import listening
from tests.api.test_far_model import CONFIG, FAR, FORMAT, HELLO, NEAR, WEATHER
from tests.api.test_reasoning import CLOSE_ID, OPEN_ID, QUIET
from tests.api.writing import MARKERS, OPENING
from tests.far import CONTEXT, FarSide, far_model, far_side
from tests.polling import wait_until

ENDLESS = {**QUIET, CLOSE_ID: -100}  # it would reason for ever


class Pair:
    """One template opens the block, or the model does."""

    def __init__(self, stack: ExitStack, template: str) -> None:
        self.is_eager = template != OPENING

        def runner() -> FakeRunner:
            return FakeRunner(lanes=[Lane(1, CONTEXT)], chat_template=template, defined_tokens=MARKERS)

        self.far: FarSide = stack.enter_context(far_side(defined_tokens=MARKERS))
        self.model = stack.enter_context(far_model(self.far.url, like=runner()))
        worker = Worker(StepEngine(runner(), max_cache_bytes=0))
        worker.start()
        stack.callback(worker.stop)
        models = [ServedModel.of(self.model, CONFIG), ServedModel.of(worker, CONFIG, name=NEAR)]
        self.live = stack.enter_context(listening(models, Config(drain_seconds=0.2)))
        self.client: OpenAI = stack.enter_context(self.live.openai())

    def ask(self, name: str, budget: int, **fields: Any) -> Any:
        extra = {"reasoning_budget_tokens": budget, **fields.pop("extra", {})}
        bias = {**ENDLESS, OPEN_ID: 12} if self.is_eager else ENDLESS
        asked: dict[str, Any] = {"seed": 1, "max_tokens": 200, "logit_bias": bias, **fields}
        return self.client.chat.completions.create(model=name, messages=HELLO, extra_body=extra, **asked)

    def parts(self) -> list[dict[str, Any]]:
        """What the far side was asked since the last time."""
        asked, self.far.asked = self.far.asked, []
        return asked


@pytest.fixture(scope="module", params=[OPENING, by_name("qwen3").template], ids=["opened", "opening"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    with ExitStack() as stack:
        yield Pair(stack, request.param)


@pytest.mark.parametrize("budget", [1, 5, 30])
@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": 0.8, "max_tokens": 40},  # later the fake model writes bytes that are no text
        {"n": 2, "max_tokens": 40},
        {"response_format": FORMAT},
        {"tools": [WEATHER], "tool_choice": "required", "parallel_tool_calls": False},
        {"max_tokens": 31},
        {"logprobs": True, "top_logprobs": 2, "max_tokens": 50},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_the_answer_is_that_of_a_near_model(pair: Pair, budget: int, fields: dict[str, Any]) -> None:
    far, near = (pair.ask(name, budget, **fields) for name in (FAR, NEAR))
    if pair.is_eager and not {"response_format", "tools"} & fields.keys():
        # A near model opens block after block; here nothing follows the end of the first but text.
        assert 0 < far.usage.completion_tokens_details.reasoning_tokens <= (budget + 2) * len(far.choices)
        assert all("<think>" not in (choice.message.content or "") for choice in far.choices)
        return
    for ours, its in zip(far.choices, near.choices, strict=True):
        assert said(ours.message) == said(its.message) and ours.finish_reason == its.finish_reason
    assert far.usage.completion_tokens_details == near.usage.completion_tokens_details


def said(message: Any) -> dict[str, Any]:
    """All but the random ids of calls."""
    calls = [call.function.to_dict() for call in message.tool_calls or ()]
    return {**message.to_dict(), "tool_calls": calls}


def test_it_is_asked_for_in_two_parts(pair: Pair) -> None:
    pair.parts()
    pair.ask(FAR, 7)
    wait_until(lambda: pair.far.num_running == 0)
    first, rest = pair.parts()
    assert rest["token_ids"][: len(first["token_ids"])] == first["token_ids"]
    num_said = len(rest["token_ids"]) - len(first["token_ids"])
    assert num_said in (7, 8)  # and the marker where the model writes it
    assert rest["sampling_params"]["max_tokens"] == first["sampling_params"]["max_tokens"] - num_said
    assert "structured_outputs" in rest["sampling_params"] and "structured_outputs" not in first["sampling_params"]
    assert rest["request_id"] != first["request_id"] and rest["cache_salt"] == first["cache_salt"]


def test_a_stream_says_the_same(pair: Pair) -> None:
    whole = pair.ask(FAR, 9).choices[0].message
    chunks = [chunk.choices[0].delta for chunk in pair.ask(FAR, 9, stream=True)]
    assert "".join(delta.content or "" for delta in chunks) == whole.content
    assert "".join((delta.model_extra or {}).get("reasoning_content") or "" for delta in chunks) == (
        whole.model_extra or {}
    ).get("reasoning_content")


def test_reasoning_that_ends_by_itself_is_one_request(pair: Pair) -> None:
    pair.parts()
    pair.ask(FAR, 150, logit_bias={**QUIET, CLOSE_ID: 100, OPEN_ID: 90})
    assert len(pair.parts()) == 1


def test_a_least_number_is_refused_by_name(pair: Pair) -> None:
    with pair.live.http() as http:
        body = {"model": FAR, "messages": HELLO, "reasoning_min_tokens": 3}
        error = http.post("/v1/chat/completions", json=body).json()["error"]
    assert (error["param"], error["code"]) == ("reasoning_min_tokens", "unsupported_parameter")
