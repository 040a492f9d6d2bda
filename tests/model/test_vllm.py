"""The real vLLM over the bundled model: the same text as our own engine, and what becomes of requests when it dies."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest

from proxy_inference_engine.config import Config
from proxy_inference_engine.engine.base import Answerer
from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.engine.worker import Worker
from proxy_inference_engine.far.wire import COMPLETIONS, GENERATE
from proxy_inference_engine.served.model import ServedModel
from proxy_inference_engine.types import Failed, Limits, Logprob, Request, Sampling, Token
from tests import vllm
from tests.api.running import Listening, listening
from tests.api.writing import OPENING
from tests.model.conftest import make_runner
from tests.model.reference import f32_weights
from tests.polling import until, wait_until

pytestmark = [pytest.mark.model, pytest.mark.vllm]

PROMPTS = (
    "The capital of France is",
    "Once upon a time there was a small cat that",
    "def fibonacci(n):\n    ",
    "1, 2, 3, 4,",
)
NEAR_TIE = 0.02  # between the two likeliest tokens, where rounding decides
NUM_TOKENS = 24
CONFIG = Config(drain_seconds=0.2)
PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "likes": {"type": "array", "items": {"enum": ["tea", "cats", "rain"]}, "maxItems": 2},
    },
    "required": ["name", "age", "likes"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "note", "parameters": PERSON}}


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not vllm.is_installed():
        pytest.skip(vllm.MISSING)
    return vllm.convert(tmp_path_factory.mktemp("vllm") / "smollm2-135m-instruct")


@pytest.fixture(scope="module")
def process(weights: Path) -> Iterator[vllm.VllmProcess]:
    with vllm.running(weights, weights.parent / "bundled.log") as process:
        yield process


@pytest.fixture
def live(process: vllm.VllmProcess, weights: Path) -> Iterator[Listening]:
    with (
        vllm.over(process.url, weights, weights.parent) as model,
        listening([ServedModel.of(model, CONFIG)], CONFIG) as live,
    ):
        yield live


async def chosen(engine: Answerer, prompt: str) -> list[Logprob]:
    limits = Limits(NUM_TOKENS, ignore_eos=True)
    ids = tuple(engine.tokenizer.encode(prompt))
    request = Request("r", "me", ids, Sampling(seed=1, temperature=0.0), limits, num_top_logprobs=2)
    outputs = [item.output async for items in engine.submit(request) for item in items]
    assert not [each for each in outputs if isinstance(each, Failed)]
    return [each.logprob for each in outputs if isinstance(each, Token) and each.logprob is not None]


@pytest.fixture
async def near(tmp_path: Path) -> AsyncIterator[Worker]:
    runner = make_runner(f32_weights(tmp_path / "f32.gguf"))
    worker = Worker(StepEngine(runner, max_cache_bytes=0))
    worker.start()
    yield worker
    await asyncio.to_thread(worker.stop)


async def test_greedy_text_is_that_of_our_engine(process: vllm.VllmProcess, weights: Path, near: Worker) -> None:
    num_same = 0
    with vllm.over(process.url, weights, weights.parent) as far:
        assert far.engines.all[0].endpoint == GENERATE
        for prompt in PROMPTS:
            here, there = await chosen(near, prompt), await chosen(far, prompt)
            assert len(here) == len(there) == NUM_TOKENS
            for ours, theirs in zip(here, there, strict=True):
                if ours.token_id != theirs.token_id:
                    (_, first), (_, second) = ours.top
                    assert first - second < NEAR_TIE, "vLLM says something else, and it was no near-tie"
                    break
                assert theirs.logprob == pytest.approx(ours.logprob, abs=0.05)
                num_same += 1
    assert num_same > len(PROMPTS) * NUM_TOKENS // 2


def ask(live: Listening, **fields: Any) -> dict[str, Any]:
    with live.http() as http:
        body = {"messages": [{"role": "user", "content": "Tell me about a person."}], "max_tokens": 100, **fields}
        answer = http.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


@pytest.mark.parametrize("seed", range(3))
def test_a_schema_binds(live: Listening, seed: int) -> None:
    format_ = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON, "strict": True}}
    choice = ask(live, response_format=format_, seed=seed, temperature=1.0)["choices"][0]
    assert choice["finish_reason"] == "stop"
    jsonschema.validate(json.loads(choice["message"]["content"]), PERSON)


@pytest.mark.parametrize("seed", range(2))
def test_a_required_call_is_made(live: Listening, seed: int) -> None:
    fields = {"tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False}
    choice = ask(live, seed=seed, temperature=1.0, **fields)["choices"][0]
    (call,) = choice["message"]["tool_calls"]
    jsonschema.validate(json.loads(call["function"]["arguments"]), PERSON)


def test_a_reasoning_budget_ends_the_block(process: vllm.VllmProcess, weights: Path, tmp_path: Path) -> None:
    """The model would go on: it has never learnt to think, and the marker is text to it."""
    (tmp_path / "template.jinja").write_text(OPENING)
    config = Config(drain_seconds=0.2, chat_template=str(tmp_path / "template.jinja"))
    format_ = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON, "strict": True}}
    with (
        vllm.over(process.url, weights, weights.parent) as model,
        listening([ServedModel.of(model, config)], config) as live,
    ):
        answer = ask(live, reasoning_budget_tokens=12, response_format=format_, seed=1)
        free = ask(live, reasoning_budget_tokens=5, max_tokens=30, seed=1)
    jsonschema.validate(json.loads(answer["choices"][0]["message"]["content"]), PERSON)
    assert 12 <= answer["usage"]["completion_tokens_details"]["reasoning_tokens"] <= 18  # and the marker
    assert 5 <= free["usage"]["completion_tokens_details"]["reasoning_tokens"] <= 11
    assert free["choices"][0]["message"]["content"]


KINDS: tuple[dict[str, Any], ...] = (
    {"response_format": {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON, "strict": True}}},
    {"tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False},
    {"tools": [TOOL], "tool_choice": "auto"},
    {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "note"}}},
    {"response_format": {"type": "choice", "choices": ["yes", "no", "perhaps"]}},
)
NUM_EACH = 8


async def test_of_a_crowd_every_structure_is_valid(live: Listening) -> None:
    """All at once, as vLLM batches them, hot, each with a seed of its own."""
    async with httpx.AsyncClient(base_url=live.url, timeout=300) as client:
        asked = [(kind, seed) for kind in KINDS for seed in range(NUM_EACH)]
        choices = await asyncio.gather(*(_structured(client, kind, seed) for kind, seed in asked))
    num_calls = 0
    for (kind, _), choice in zip(asked, choices, strict=True):
        message = choice["message"]
        calls = message.get("tool_calls") or []
        num_calls += len(calls)
        for call in calls:
            assert call["function"]["name"] == "note"
            jsonschema.validate(json.loads(call["function"]["arguments"]), PERSON)
        if kind is KINDS[0]:
            jsonschema.validate(json.loads(message["content"]), PERSON)
        elif kind is KINDS[4]:
            assert message["content"] in ("yes", "no", "perhaps")
        elif kind is not KINDS[2]:
            assert len(calls) == 1, choice
    assert num_calls >= 2 * NUM_EACH


async def _structured(client: httpx.AsyncClient, kind: dict[str, Any], seed: int) -> dict[str, Any]:
    body = {"messages": [_USER], "max_tokens": 120, "temperature": 1.0, "seed": seed, **kind}
    answer = await client.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()["choices"][0]
    return found


def test_a_stored_response_is_gone_on_with_and_found_again(live: Listening) -> None:
    asked = {"max_output_tokens": 12, "temperature": 0}
    with live.http() as http:
        first = http.post("/v1/responses", json={"input": "Name a colour.", **asked}).json()
        again = {"input": "Another.", "previous_response_id": first["id"], **asked}
        second = http.post("/v1/responses", json=again).json()
        assert second["usage"]["input_tokens"] > first["usage"]["total_tokens"], "it has read what was said"
        assert http.get(f"/v1/responses/{second['id']}").json() == second
        behind = http.post("/v1/responses", json={"input": "Count.", "background": True, "stream": True, **asked})
        created = json.loads(behind.text.partition("data: ")[2].partition("\n")[0])
        resumed = http.get(
            f"/v1/responses/{created['response']['id']}", params={"stream": True, "starting_after": 3}
        ).text
        assert resumed.startswith("event: ") and behind.text.endswith(resumed)


def test_a_clients_own_grammar_binds(live: Listening) -> None:
    lark = 'start: "yes" | "no" DIGIT\nDIGIT: /[0-9]{2}/'
    format_ = {"type": "grammar", "syntax": "lark", "definition": lark}
    text = ask(live, response_format=format_)["choices"][0]["message"]["content"]
    assert text == "yes" or (text.startswith("no") and text[2:].isdigit() and len(text) == 4)


def test_a_seed_repeats_and_choices_differ(live: Listening) -> None:
    fields = {"n": 3, "seed": 5, "temperature": 1.2, "max_tokens": 12}
    first, again = (
        [choice["message"]["content"] for choice in ask(live, **fields)["choices"]] for _ in range(2)
    )  # fmt: skip
    assert first == again and len(set(first)) == 3


def test_a_long_prompt_is_cached(live: Listening) -> None:
    messages = [{"role": "user", "content": "One two three four five six seven. " * 60}]
    ask(live, messages=messages, max_tokens=2)
    assert ask(live, messages=messages, max_tokens=2)["usage"]["prompt_tokens_details"]["cached_tokens"] >= 128


def test_who_leaves_stops_vllm(live: Listening, process: vllm.VllmProcess) -> None:
    body = {"messages": [{"role": "user", "content": "Count."}], "max_tokens": 1500, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", f"{live.url}/v1/chat/completions", json=body, timeout=60) as answer:
        next(answer.iter_bytes())
        wait_until(lambda: process.metric("num_requests_running") == 1)
    wait_until(lambda: process.metric("num_requests_running") == 0)


async def test_vllm_killed_under_load_ends_every_request_and_is_found_again(weights: Path) -> None:
    """Also one that lacks the endpoint for token ids."""
    process = vllm.VllmProcess(weights, weights.parent / "killed.log", options=("--max-num-seqs", "8"))
    process.start()
    try:
        await asyncio.to_thread(process.wait)
        with (
            vllm.over(process.url, weights, weights.parent) as model,
            listening([ServedModel.of(model, CONFIG)], CONFIG) as live,
        ):
            assert model.engines.all[0].endpoint == COMPLETIONS
            async with httpx.AsyncClient(base_url=live.url, timeout=60) as client:
                asked = [asyncio.ensure_future(_long(client, is_streamed=number % 2 == 0)) for number in range(16)]
                await until(lambda: model.stats().total_generated_tokens > 20)
                process.kill()
                ends = await asyncio.gather(*asked)
                assert all(status in (500, 503) or has_error for status, has_error in ends), ends
                await until(lambda: not model.is_ready)
                refused = await client.post("/v1/chat/completions", json={"messages": [_USER]})
                assert refused.status_code == 503 and "retry-after" in refused.headers
                process.start()
                await asyncio.to_thread(process.wait)
                await until(lambda: model.is_ready)
                answer = await client.post("/v1/chat/completions", json={"messages": [_USER], "max_tokens": 3})
                assert answer.status_code == 200
    finally:
        process.kill()


_USER = {"role": "user", "content": "Count."}


async def _long(client: httpx.AsyncClient, *, is_streamed: bool) -> tuple[int, bool]:
    """The status of a long answer, and whether it ended in an error."""
    body = {"messages": [_USER], "max_tokens": 1500, "ignore_eos": True, "stream": is_streamed}
    answer = await client.post("/v1/chat/completions", json=body)
    return answer.status_code, '"error"' in answer.text
