"""A model that another machine computes, behind the same server: it answers as one in this process does.

Nothing between the socket and `submit` knows the difference.
"""

import json
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import jsonschema
import pytest
from openai import OpenAI

from proxy_inference_engine.config import Config
from proxy_inference_engine.engine.base import Answerer
from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.engine.worker import Worker
from proxy_inference_engine.far.failures import BROKE_OFF
from proxy_inference_engine.far.model import FarModel
from proxy_inference_engine.far.wire import COMPLETIONS, GENERATE
from proxy_inference_engine.runners.base import Lane
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.served.model import ServedModel
from tests.api.running import Listening, listening
from tests.far import CONTEXT, NAME, NUM_CACHED, FarSide, far_model, far_side
from tests.polling import HANG_S, wait_until

FAR, NEAR = "far", "near"
HELLO: list[Any] = [{"role": "user", "content": "Hello"}]
CONFIG = Config(drain_seconds=0.2)
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"enum": ["Paris", "Rome"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 30},
        "notes": {"type": "array", "items": {"type": "string", "maxLength": 8}, "minItems": 1, "maxItems": 3},
    },
    "required": ["city", "days", "notes"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "trip", "schema": SCHEMA, "strict": True}}
WEATHER: dict[str, Any] = {"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}


@dataclass(frozen=True)
class Pair:
    """A server over one model that is far and one that is near, and whatever is behind the far one."""

    live: Listening
    far: FarSide
    model: FarModel
    worker: Worker

    @property
    def openai(self) -> OpenAI:
        return self.live.openai()

    def wait_idle(self) -> None:
        wait_until(lambda: self.model.stats().num_running == self.model.stats().num_waiting == 0)


def start(stack: ExitStack) -> Pair:
    far = stack.enter_context(far_side())
    worker = Worker(StepEngine(FakeRunner(lanes=[Lane(1, CONTEXT)]), max_cache_bytes=0))
    worker.start()
    stack.callback(worker.stop)
    model = stack.enter_context(far_model(far.url))
    models = [ServedModel.of(model, CONFIG), ServedModel.of(worker, CONFIG, name=NEAR)]
    return Pair(stack.enter_context(listening(models, CONFIG)), far, model, worker)


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with ExitStack() as stack:
        yield start(stack)


@pytest.fixture
def own_pair() -> Iterator[Pair]:
    """For tests that make the far side misbehave."""
    with ExitStack() as stack:
        yield start(stack)


@pytest.fixture
def client(pair: Pair) -> Iterator[OpenAI]:
    with pair.openai as client:
        yield client


def test_it_is_an_engine(pair: Pair) -> None:
    engine: Answerer = pair.model
    assert engine.info.name == FAR and engine.is_ready and engine.context_tokens == CONTEXT


# What it answers


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": 0},
        {"seed": 5, "temperature": 1.3, "top_p": 0.9},
        {"seed": 5, "n": 3, "presence_penalty": 1.0},
        {"seed": 5, "logit_bias": {"97": 5}, "stop": ["e"]},
        {"seed": 5, "max_tokens": 5},
    ],
)
def test_a_plain_chat_is_that_of_a_near_model(client: OpenAI, fields: dict[str, Any]) -> None:
    asked = {"messages": HELLO, "max_tokens": 60, **fields}
    far, near = (client.chat.completions.create(model=name, **asked) for name in (FAR, NEAR))
    assert (far.model, near.model) == (FAR, NEAR)
    assert [choice.to_dict() for choice in far.choices] == [choice.to_dict() for choice in near.choices]
    assert far.usage is not None and near.usage is not None
    assert far.usage.completion_tokens == near.usage.completion_tokens > 0
    assert far.usage.prompt_tokens_details is not None
    assert far.usage.prompt_tokens_details.cached_tokens == (0 if "stop" in fields else NUM_CACHED)


def test_a_stream_says_the_same(pair: Pair, client: OpenAI) -> None:
    asked: dict[str, Any] = {"messages": HELLO, "max_tokens": 60, "seed": 7}
    whole = client.chat.completions.create(model=FAR, **asked)
    stream = client.chat.completions.create(model=FAR, stream=True, **asked)
    chunks = [chunk.choices[0] for chunk in stream]
    assert len(chunks) > 3
    assert "".join(chunk.delta.content or "" for chunk in chunks) == whole.choices[0].message.content
    assert chunks[-1].finish_reason == whole.choices[0].finish_reason
    assert pair.far.asked[-1]["model"] == NAME


def test_completions_and_other_apis_find_it_too(client: OpenAI, pair: Pair) -> None:
    far, near = (client.completions.create(model=name, prompt=[1, 2, 3], max_tokens=9, seed=1) for name in (FAR, NEAR))
    assert far.choices[0].text == near.choices[0].text
    assert pair.far.asked[-1]["token_ids"] == [1, 2, 3]
    answered = client.responses.create(model=FAR, input="Hello", max_output_tokens=9)
    assert answered.model == FAR and answered.output_text
    with pair.live.http() as http:
        body = {"model": FAR, "messages": HELLO, "max_tokens": 9}
        assert http.post("/v1/messages", json=body).json()["content"][0]["text"]


def streamed_text(client: OpenAI, asked: dict[str, Any]) -> str:
    stream = client.chat.completions.create(stream=True, **asked)
    return "".join(chunk.choices[0].delta.content or "" for chunk in stream)


@pytest.mark.parametrize("seed", range(4))
def test_a_schema_binds_what_it_writes(client: OpenAI, pair: Pair, seed: int) -> None:
    asked: dict[str, Any] = {"model": FAR, "messages": HELLO, "seed": seed, "response_format": FORMAT}
    whole = client.chat.completions.create(**asked)
    text = whole.choices[0].message.content or ""
    jsonschema.validate(json.loads(text), SCHEMA)
    assert whole.choices[0].finish_reason == "stop" and "structured_outputs" in pair.far.asked[-1]["sampling_params"]
    assert streamed_text(client, asked) == text
    assert streamed_text(client, {**asked, "model": NEAR}) == text


@pytest.mark.parametrize("seed", range(2))
def test_a_call_that_is_required_is_made(client: OpenAI, seed: int) -> None:
    tools: dict[str, Any] = {"tools": [WEATHER], "tool_choice": "required", "parallel_tool_calls": False}
    asked: dict[str, Any] = {"model": FAR, "messages": HELLO, "seed": seed, **tools}
    whole = client.chat.completions.create(**asked).choices[0]
    (call,) = whole.message.tool_calls or []
    assert call.type == "function" and call.function.name == "get_weather" and whole.finish_reason == "tool_calls"
    jsonschema.validate(json.loads(call.function.arguments), SCHEMA)
    arguments = name = ""
    for chunk in client.chat.completions.create(stream=True, **asked):
        for delta in chunk.choices[0].delta.tool_calls or ():
            assert delta.function is not None
            arguments += delta.function.arguments or ""
            name += delta.function.name or ""
    assert (name, arguments) == ("get_weather", call.function.arguments)
    (near,) = client.chat.completions.create(**{**asked, "model": NEAR}).choices[0].message.tool_calls or []
    assert near.type == "function" and near.function == call.function


def test_it_counts_and_is_listed(client: OpenAI, pair: Pair) -> None:
    assert [model.id for model in client.models.list()] == [FAR, NEAR]
    before = pair.model.stats()
    made = client.chat.completions.create(model=FAR, messages=HELLO, max_tokens=9, seed=1)
    pair.wait_idle()
    after = pair.model.stats()
    assert after.total_generated_tokens > before.total_generated_tokens
    assert made.usage is not None
    assert after.total_prompt_tokens == before.total_prompt_tokens + made.usage.prompt_tokens
    assert after.total_prompt_tokens_cached == before.total_prompt_tokens_cached + NUM_CACHED
    with pair.live.http() as http:
        assert http.get("/ready").status_code == 200
        shown = re.findall(
            r'^pie_generated_tokens_total\{model="(.*)"\} (\S+)$', http.get("/metrics").text, re.MULTILINE
        )
        assert {name: float(number) for name, number in shown} == {
            FAR: pair.model.stats().total_generated_tokens,
            NEAR: pair.worker.stats().total_generated_tokens,
        }


def test_only_a_seed_that_was_asked_for_goes_there(own_pair: Pair) -> None:
    with own_pair.openai as client:
        for fields in ({}, {"seed": 7}, {"seed": 7, "n": 2}):
            client.chat.completions.create(model=FAR, messages=HELLO, max_tokens=2, **fields)  # type: ignore[call-overload]
    assert [asked["sampling_params"].get("seed") for asked in own_pair.far.asked[:2]] == [None, 7]
    assert {asked["sampling_params"]["seed"] for asked in own_pair.far.asked[2:]} == {7, 8}


def test_log_probabilities_are_those_of_a_near_model(client: OpenAI) -> None:
    asked: dict[str, Any] = {"messages": HELLO, "max_tokens": 20, "seed": 3, "logprobs": True, "top_logprobs": 3}
    far, near = (client.chat.completions.create(model=name, **asked).choices[0].logprobs for name in (FAR, NEAR))
    assert far is not None and near is not None and far.content and near.content
    assert [each.token for each in far.content] == [each.token for each in near.content]
    for here, there in zip(near.content, far.content, strict=True):
        assert there.logprob == pytest.approx(here.logprob, abs=1e-4)
        assert [top.token for top in there.top_logprobs] == [top.token for top in here.top_logprobs]


def test_texts_are_embedded_there(client: OpenAI) -> None:
    made = client.embeddings.create(model=FAR, input=[[1, 2], [3]], encoding_format="float").data
    assert [each.embedding[0] > 0 for each in made] == [True, True] and len(made[0].embedding) == 4


def test_tenants_have_prefix_caches_of_their_own(pair: Pair) -> None:
    assert len(pair.far.asked[-1]["cache_salt"]) == 64


def test_connections_are_kept(own_pair: Pair) -> None:
    with own_pair.openai as client:
        client.chat.completions.create(model=FAR, messages=HELLO, max_tokens=3, seed=1)
        before = len({id(each) for each in own_pair.model.engines.all[0].connections._all})
        for _ in range(3):
            client.chat.completions.create(model=FAR, messages=HELLO, max_tokens=3, seed=1)
    assert before == own_pair.model.engines.all[0].connections.num_open == 1


def test_a_server_that_lacks_the_endpoint_is_asked_for_completions() -> None:
    with ExitStack() as stack:
        far = stack.enter_context(far_side())
        far.has_generate = False
        model = stack.enter_context(far_model(far.url))
        live = stack.enter_context(listening([ServedModel.of(model, CONFIG)], CONFIG))
        assert model.engines.all[0].endpoint == COMPLETIONS
        answer = ask(live)
        facts = model.engines.all[0].facts
        assert facts is not None
        model.engines.all[0].facts = facts._replace(endpoint=GENERATE)  # as if it had been started anew without
        assert ask(live)["choices"][0]["message"] == answer["choices"][0]["message"]
        assert "prompt" in far.asked[-1] and model.engines.all[0].endpoint == COMPLETIONS


def ask(live: Listening, **fields: Any) -> dict[str, Any]:
    with live.http() as http:
        body = {"messages": HELLO, "seed": 1, "max_tokens": 9, **fields}
        answer = http.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"dry_multiplier": 0.5}, "dry_multiplier"),
        ({"xtc_probability": 0.5}, "xtc_probability"),
        ({"typical_p": 0.5}, "typical_p"),
        ({"top_n_sigma": 1}, "top_n_sigma"),
        ({"dynatemp_range": 0.5}, "dynatemp_range"),
        ({"mirostat": 2}, "mirostat"),
        ({"repetition_penalty": 1.2, "repetition_window": 64}, "repetition_window"),
        ({"min_tokens": 3, "response_format": FORMAT}, "min_tokens"),
    ],
)
def test_what_vllm_lacks_is_refused_by_name(pair: Pair, fields: dict[str, Any], param: str) -> None:
    with pair.live.http() as http:
        refused = http.post("/v1/chat/completions", json={"model": FAR, "messages": HELLO, **fields})
    error = refused.json()["error"]
    assert (refused.status_code, error["param"], error["code"]) == (400, param, "unsupported_parameter")


def test_a_prompt_is_scored(pair: Pair) -> None:
    client = pair.live.openai(is_strict=False)  # whose types have no None for the first token
    for max_tokens in (0, 3):
        asked: dict[str, Any] = {"prompt": "abc", "echo": True, "logprobs": 2, "max_tokens": max_tokens, "seed": 1}
        far, near = (client.completions.create(model=name, **asked).choices[0] for name in (FAR, NEAR))
        assert far.text == near.text and far.logprobs is not None and near.logprobs is not None
        assert far.logprobs.tokens == near.logprobs.tokens and far.logprobs.token_logprobs is not None
        assert near.logprobs.token_logprobs is not None and far.logprobs.token_logprobs[0] is None
        assert far.logprobs.token_logprobs[1:] == pytest.approx(near.logprobs.token_logprobs[1:], abs=1e-4)


def test_images_are_refused_by_name(pair: Pair) -> None:
    with pair.live.http() as http:
        part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
        body: dict[str, Any] = {"model": FAR, "messages": [{"role": "user", "content": [part]}]}
        num_asked = len(pair.far.asked)
        refused = http.post("/v1/chat/completions", json=body)
        error = refused.json()["error"]
        assert (refused.status_code, error["param"]) == (400, "messages[0].content[0]"), error
        assert "takes no images" in error["message"] and len(pair.far.asked) == num_asked


# Who leaves, and who dies


def test_a_stop_string_closes_the_connection(own_pair: Pair) -> None:
    own_pair.far.holds_after = 30
    with own_pair.openai as client:
        near = client.chat.completions.create(model=NEAR, messages=HELLO, seed=1, max_tokens=20)
        text = near.choices[0].message.content or ""
        stop = text[5:8]
        asked: dict[str, Any] = {"messages": HELLO, "seed": 1, "stop": stop}
        stopped = client.chat.completions.create(model=FAR, **asked)
    assert stopped.choices[0].message.content == text[: text.index(stop)]
    own_pair.wait_idle()


def test_a_client_that_leaves_a_stream_is_felt_far_away(own_pair: Pair) -> None:
    own_pair.far.holds_after = 6
    with own_pair.openai as client:
        stream = client.chat.completions.create(model=FAR, messages=HELLO, seed=1, stream=True)
        assert next(iter(stream)).model == FAR
        assert own_pair.far.is_holding.wait(HANG_S) and not own_pair.far.has_left.is_set()
        stream.close()
    assert own_pair.far.has_left.wait(HANG_S)
    own_pair.wait_idle()


def test_so_is_one_that_leaves_without_a_stream(own_pair: Pair) -> None:
    own_pair.far.holds_after = 6
    body = json.dumps({"model": FAR, "messages": HELLO, "seed": 1}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n"
    with socket.create_connection(own_pair.live.address) as sock:
        sock.sendall(head.encode() + b"content-type: application/json\r\n\r\n" + body)
        assert own_pair.far.is_holding.wait(HANG_S) and not own_pair.far.has_left.is_set()
    assert own_pair.far.has_left.wait(HANG_S)
    own_pair.wait_idle()


def error_of(own_pair: Pair, **fields: Any) -> tuple[int, dict[str, Any]]:
    with own_pair.live.http() as http:
        answer = http.post("/v1/chat/completions", json={"model": FAR, "messages": HELLO, "seed": 1, **fields})
    if fields.get("stream"):
        *_, last, done, rest = answer.text.split("\n\n")
        assert (done, rest) == ("data: [DONE]", "")
        return answer.status_code, json.loads(last.removeprefix("data: "))["error"]
    return answer.status_code, answer.json()["error"]


@pytest.mark.parametrize("num_choices", [1, 2])
def test_a_far_side_that_dies_ends_the_request_with_an_error(own_pair: Pair, num_choices: int) -> None:
    own_pair.far.breaks_after = 7
    status, error = error_of(own_pair, n=num_choices)
    assert (status, error["code"], error["message"]) == (500, "engine_failure", BROKE_OFF)
    wait_until(lambda: own_pair.model.is_ready)
    status, error = error_of(own_pair, n=num_choices, stream=True)
    assert (status, error["code"], error["message"]) == (200, "engine_failure", BROKE_OFF)
    own_pair.wait_idle()
    own_pair.far.breaks_after = None
    wait_until(lambda: own_pair.model.is_ready)
    with own_pair.openai as client:
        answer = client.chat.completions.create(model=FAR, messages=HELLO, seed=1, max_tokens=9)
    assert answer.choices[0].finish_reason, "the next one is answered"


def test_one_that_ends_too_early_is_an_error_too(own_pair: Pair) -> None:
    own_pair.far.ends_after = 7
    status, error = error_of(own_pair)
    assert (status, error["code"]) == (500, "engine_failure")


def test_what_it_refuses_is_refused(own_pair: Pair) -> None:
    own_pair.far.fails = {"message": "no such grammar", "code": 400}
    status, error = error_of(own_pair)
    assert status == 400 and "no such grammar" in error["message"] and own_pair.model.is_ready


def test_one_that_is_gone_is_unavailable_until_it_is_back() -> None:
    with ExitStack() as stack:
        with far_side() as far:
            url, port = far.url, far.server_port
            model = stack.enter_context(far_model(url))
            live = stack.enter_context(listening([ServedModel.of(model, CONFIG)], CONFIG))
            assert ask(live)["choices"]
        with live.http() as http:
            wait_until(lambda: not model.is_ready)
            refused = http.post("/v1/chat/completions", json={"messages": HELLO})
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "engine_unavailable")
            assert int(refused.headers["retry-after"]) > 0
            assert http.get("/ready").status_code == 503 and http.get("/health").status_code == 200
            assert http.get("/v1/models").json()["data"][0]["state"] == "unavailable"
            assert 'pie_far_engines_up{model="far"} 0.0' in http.get("/metrics").text
        stack.enter_context(far_side(port=port))
        wait_until(lambda: model.is_ready)
        assert ask(live)["choices"]


def test_a_server_starts_before_its_engine() -> None:
    with ExitStack() as stack:
        with far_side() as far:
            url, port = far.url, far.server_port
        model = stack.enter_context(far_model(url))
        live = stack.enter_context(listening([ServedModel.of(model, CONFIG)], CONFIG))
        assert not model.is_ready
        stack.enter_context(far_side(port=port))
        wait_until(lambda: model.is_ready)
        assert ask(live)["choices"]


def test_one_that_falls_silent_ends_nobodys_wait() -> None:
    with ExitStack() as stack:
        far = stack.enter_context(far_side())
        model = stack.enter_context(far_model(far.url, silence_s=0.2))
        live = stack.enter_context(listening([ServedModel.of(model, CONFIG)], CONFIG))
        far.holds_after = 3
        with live.http() as http:
            answer = http.post("/v1/chat/completions", json={"messages": HELLO, "seed": 1})
        assert (answer.status_code, answer.json()["error"]["message"]) == (500, BROKE_OFF)
        assert far.has_left.wait(HANG_S)


def test_a_key_goes_with_every_request() -> None:
    with ExitStack() as stack:
        far = stack.enter_context(far_side())
        far.key = "secret"
        assert not stack.enter_context(far_model(far.url)).is_ready
        assert stack.enter_context(far_model(far.url, key="secret")).is_ready


# Several of them


def test_before_the_first_token_another_one_is_asked() -> None:
    with ExitStack() as stack:
        bad, good = (stack.enter_context(far_side()) for _ in range(2))
        model = stack.enter_context(far_model(bad.url, good.url))
        live = stack.enter_context(listening([ServedModel.of(model, CONFIG)], CONFIG))
        bad.breaks_after = 0
        first = ask(live)
        assert len(bad.asked) == len(good.asked) == 1
        while model.engines.all[0].is_up:  # once may be chance
            assert ask(live)["choices"][0]["message"] == first["choices"][0]["message"]
        assert len(bad.asked) == 3 and model.is_ready
        bad.breaks_after = None
        wait_until(lambda: model.engines.all[0].is_up)


def test_after_it_none_is() -> None:
    with ExitStack() as stack:
        bad, good = (stack.enter_context(far_side()) for _ in range(2))
        model = stack.enter_context(far_model(bad.url, good.url))
        live = stack.enter_context(listening([ServedModel.of(model, CONFIG)], CONFIG))
        bad.breaks_after = 2
        with live.http() as http:
            answer = http.post("/v1/chat/completions", json={"messages": HELLO, "seed": 1})
        assert (answer.status_code, answer.json()["error"]["message"]) == (500, BROKE_OFF)
        assert not good.asked


def test_one_that_is_gone_leaves_the_work_to_the_other() -> None:
    with ExitStack() as stack:
        stays = stack.enter_context(far_side())
        with far_side() as leaves:
            model = stack.enter_context(far_model(leaves.url, stays.url))
            live = stack.enter_context(listening([ServedModel.of(model, CONFIG)], CONFIG))
            ask(live)
        wait_until(lambda: model.stats().num_far_engines_up == 1)  # what it kept open to the other may last longer
        for _ in range(3):
            assert ask(live)["choices"]
        assert len(stays.asked) >= 3 and model.stats().num_far_engines_up == 1


def test_a_conversation_goes_on_where_it_began() -> None:
    """Though that one has more to do; another conversation goes where there is less."""
    told: list[Any] = [{"role": "user", "content": "What is there to know of rivers? " * 8}]
    with ExitStack() as stack:
        sides = [stack.enter_context(far_side()) for _ in range(2)]
        model = stack.enter_context(far_model(*(side.url for side in sides)))
        live = stack.enter_context(listening([ServedModel.of(model, CONFIG)], CONFIG))
        for side in sides:
            side.pauses_after = 1
        http = stack.enter_context(live.http())
        body = {"messages": told, "max_tokens": 9, "seed": 1, "stream": True}
        running = stack.enter_context(http.stream("POST", "/v1/chat/completions", json=body))
        wait_until(lambda: any(side.num_paused for side in sides))
        busy, idle = sorted(sides, key=lambda side: -side.num_paused)
        for side in sides:
            side.pauses_after = None
        answer = {"role": "assistant", "content": "That they flow."}
        for question in ("Where?", "Why?"):
            ask(live, messages=[*told, answer, {"role": "user", "content": question}], max_tokens=3)
        assert (len(busy.asked), len(idle.asked)) == (3, 0)
        ask(live, messages=[{"role": "user", "content": "And of mountains, what is there to know? " * 8}], max_tokens=3)
        assert (len(busy.asked), len(idle.asked)) == (3, 1)
        busy.is_released.set()
        assert b"[DONE]" in running.read()
