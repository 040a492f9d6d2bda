"""Anthropic's API through its official client, every answer validated against its types, over the fake model."""

import json
import re
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx
import pytest
from anthropic import Anthropic
from anthropic.types import Message

from proxy_inference_engine.config import ApiKey, Config
from proxy_inference_engine.engine.queue import Admission
from proxy_inference_engine.formats import by_name
from proxy_inference_engine.runners.base import Lane
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.server.http.sse import Patience
from tests.api import running as api
from tests.api.running import MODEL, Running, on_every_runner, running
from tests.api.writing import MARKERS
from tests.clock import Clock
from tests.unit.engine.threads import Gate

HELLO: Any = api.HELLO
ASK: dict[str, Any] = {"model": MODEL, "max_tokens": 40, "messages": HELLO}
GREEDY = {"temperature": 0}  # the client has no such parameter any more; the format has
WEATHER: dict[str, Any] = {
    "name": "get_weather",
    "description": "The weather of a city.",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"enum": ["Paris", "Rome"]}, "days": {"enum": [1, 2, 3]}},
        "required": ["city", "days"],
        "additionalProperties": False,
    },
}
PING: dict[str, Any] = {"name": "ping", "input_schema": {"type": "object", "additionalProperties": False}}


def claude(live: Running, key: str | None = "none", token: str | None = None) -> Anthropic:
    return Anthropic(
        base_url=live.url,
        api_key=key,
        auth_token=token,
        max_retries=0,
        timeout=60,
        _strict_response_validation=True,
    )


@pytest.fixture
def talker(server: Running) -> Iterator[Anthropic]:
    with claude(server) as client:
        yield client


@pytest.fixture(scope="module")
def thinking() -> Iterator[Running]:
    with running(FakeRunner(chat_template=by_name("qwen3").template, defined_tokens=MARKERS)) as live:
        yield live
        live.wait_idle()


def ask(client: Anthropic, **fields: Any) -> Message:
    extra = {**GREEDY, **fields.pop("extra", {})}
    answer: Message = client.messages.create(**{**ASK, **fields}, extra_body=extra)
    return answer


def stream(client: Anthropic, **fields: Any) -> Message:
    """The client's own fold; checks that the events are in order."""
    extra = {**GREEDY, **fields.pop("extra", {})}
    with client.messages.stream(**{**ASK, **fields}, extra_body=extra) as events:
        for event in events:
            assert event.type
        return events.get_final_message()


def said(message: Message) -> list[dict[str, Any]]:
    """The blocks without what is new in every answer."""
    return [
        block.model_dump(exclude={"id", "signature", "parsed_output"}, exclude_none=True) for block in message.content
    ]


def total_input(message: Message) -> int:
    return message.usage.input_tokens + (message.usage.cache_read_input_tokens or 0)


@on_every_runner
def test_an_answer(talker: Anthropic) -> None:
    answer = ask(talker)
    assert re.fullmatch(r"msg_[0-9a-f]{32}", answer.id) and answer.model == MODEL
    (block,) = answer.content
    assert block.type == "text" and block.text
    assert answer.stop_reason == "max_tokens" and answer.usage.output_tokens == 40
    assert answer.usage.cache_creation_input_tokens == 0
    assert answer._request_id is not None and answer._request_id.startswith("req-")


@on_every_runner
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"system": "Be kind."},
        {"stop_sequences": ["e"]},
        {"tools": [WEATHER, PING], "tool_choice": {"type": "any"}, "max_tokens": 400},
        {"tools": [WEATHER, PING], "tool_choice": {"type": "any"}, "max_tokens": 45},
        {"tools": [WEATHER], "tool_choice": {"type": "tool", "name": "get_weather"}, "max_tokens": 400},
        {"tools": [WEATHER, PING], "tool_choice": {"type": "none"}},
        {"output_config": {"format": {"type": "json_schema", "schema": WEATHER["input_schema"]}}, "max_tokens": 400},
    ],
)
def test_streamed_equals_whole(talker: Anthropic, fields: dict[str, Any]) -> None:
    whole, folded = ask(talker, **fields), stream(talker, **fields)
    assert said(folded) == said(whole)
    assert (folded.stop_reason, folded.stop_sequence) == (whole.stop_reason, whole.stop_sequence)
    assert folded.usage.output_tokens == whole.usage.output_tokens
    assert total_input(folded) == total_input(whole)


@on_every_runner
def test_a_prompt_that_comes_again_is_read_from_the_cache(talker: Anthropic) -> None:
    ask(talker)
    assert (stream(talker).usage.cache_read_input_tokens or 0) > 0


@on_every_runner
def test_the_bytes_of_a_stream(http: httpx.Client) -> None:
    response = http.post("/v1/messages", json={**ASK, **GREEDY, "stream": True, "max_tokens": 3})
    *frames, rest = response.text.split("\n\n")
    assert rest == "" and response.headers["request-id"] == response.headers["x-request-id"]
    names = []
    for each in frames:
        name, data = each.split("\n")
        assert json.loads(data.removeprefix("data: "))["type"] == name.removeprefix("event: ")
        names.append(name.removeprefix("event: "))
    block = ["content_block_start", *["content_block_delta"] * 3, "content_block_stop"]
    assert names == ["message_start", *block, "message_delta", "message_stop"]


@on_every_runner
def test_stop_sequences(talker: Anthropic) -> None:
    text = "".join(block.get("text", "") for block in said(ask(talker)))
    stop = text[5:7]
    answer = ask(talker, stop_sequences=["never", stop])
    assert (answer.stop_reason, answer.stop_sequence) == ("stop_sequence", stop)
    assert "".join(block["text"] for block in said(answer)) == text[: text.index(stop)]


@on_every_runner
@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ({"type": "any"}, {"get_weather", "ping"}),
        ({"type": "tool", "name": "ping"}, {"ping"}),
        ({"type": "any", "disable_parallel_tool_use": True}, {"get_weather", "ping"}),
    ],
)
def test_calls_that_must_come(talker: Anthropic, choice: Any, names: set[str]) -> None:
    answer = ask(talker, tools=[WEATHER, PING], tool_choice=choice, max_tokens=600)
    assert answer.stop_reason == "tool_use" and answer.content
    ids = set()
    for block in answer.content:
        assert block.type == "tool_use" and block.name in names
        assert re.fullmatch(r"toolu_[0-9a-f]{32}", block.id)
        ids.add(block.id)
        if block.name == "get_weather":
            assert block.input["city"] in ("Paris", "Rome") and block.input["days"] in (1, 2, 3)
        else:
            assert block.input == {}
    assert len(ids) == len(answer.content)
    if choice.get("disable_parallel_tool_use") or choice["type"] == "tool":
        assert len(answer.content) == 1


@on_every_runner
@pytest.mark.parametrize("is_early", [False, True])
def test_parsed_output(talker: Anthropic, is_early: bool) -> None:
    format = {"type": "json_schema", "schema": WEATHER["input_schema"]}
    # What SDKs sent before there was an `output_config`.
    fields: dict[str, Any] = {"extra": {"output_format": format}} if is_early else {"output_config": {"format": format}}
    (block,) = ask(talker, **fields, max_tokens=200).content
    assert block.type == "text" and set(json.loads(block.text)) == {"city", "days"}


@on_every_runner
def test_a_beginning_is_continued(talker: Anthropic, server: Running) -> None:
    begun = [*HELLO, {"role": "assistant", "content": "The answer is ("}]
    answer = ask(talker, messages=begun)
    plain = ask(talker, messages=[*HELLO, {"role": "assistant", "content": ""}])
    assert said(plain) == said(ask(talker)) != said(answer)
    # The template closes no turn and opens none.
    counts = [talker.messages.count_tokens(model=MODEL, messages=messages).input_tokens for messages in (HELLO, begun)]
    assert counts[1] - counts[0] == len(server.ids("The answer is ("))


# Counting

TOOL_LOOP: list[Any] = [
    *HELLO,
    {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "ping", "input": {}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "pong"}]},
]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"system": [{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}]},
        {"tools": [WEATHER, PING], "messages": TOOL_LOOP},
        {"tools": [WEATHER], "tool_choice": {"type": "none"}},
        {"thinking": {"type": "enabled", "budget_tokens": 1024}},
        {"thinking": {"type": "disabled"}},
    ],
)
@pytest.mark.parametrize("which", ["fake", "mlx", "thinking"])
def test_the_count_is_the_usage(request: pytest.FixtureRequest, which: str, fields: dict[str, Any]) -> None:
    live = request.getfixturevalue("thinking") if which == "thinking" else request.getfixturevalue("servers")[which]
    with claude(live) as client:
        count = client.messages.count_tokens(**{"model": MODEL, "messages": HELLO, **fields})
        assert count.input_tokens == total_input(ask(client, **fields, extra={"max_tokens": 1}))


@on_every_runner
def test_counting_goes_beyond_the_context(talker: Anthropic) -> None:
    long: Any = [{"role": "user", "content": "x" * 10_000}]
    assert talker.messages.count_tokens(model=MODEL, messages=long).input_tokens > 10_000
    with pytest.raises(anthropic.BadRequestError, match="prompt is too long") as caught:
        ask(talker, messages=long)
    assert caught.value.body["error"]["type"] == "invalid_request_error"  # type: ignore[index]


def test_the_end_of_the_context_is_told() -> None:
    with running(FakeRunner(lanes=(Lane(2, 64),), end_bias=-100)) as live, claude(live) as client:
        answer, streamed = ask(client, max_tokens=1000), stream(client, max_tokens=1000)
        assert answer.stop_reason == streamed.stop_reason == "model_context_window_exceeded"
        assert total_input(answer) + answer.usage.output_tokens == 64


# Errors

WRONG: list[tuple[str, dict[str, Any], int, str, str]] = [
    ("POST", {**ASK, "model": "no"}, 404, "not_found_error", "'no' does not exist"),
    ("POST", {"model": MODEL, "messages": HELLO}, 400, "invalid_request_error", "max_tokens"),
    ("POST", {**ASK, "max_tokens": -1}, 400, "invalid_request_error", "max_tokens"),
    ("POST", {**ASK, "messages": TOOL_LOOP[:2]}, 400, "invalid_request_error", "results"),
    (
        "POST",
        {**ASK, "system": [{"type": "document", "source": {}}]},
        400,
        "invalid_request_error",
        "'system[0]' is of type 'document'",
    ),
    (
        "POST",
        {**ASK, "tools": [{"name": "f", "strict": True, "input_schema": {"type": "object", "pattern": "("}}]},
        400,
        "invalid_request_error",
        "tools[0].input_schema",
    ),
    ("GET", {}, 405, "invalid_request_error", "method"),
]


@pytest.mark.parametrize(("method", "body", "status", "kind", "words"), WRONG)
def test_errors_have_their_shape(
    http: httpx.Client, method: str, body: dict[str, Any], status: int, kind: str, words: str
) -> None:
    response = http.request(method, "/v1/messages", json=body)
    assert response.status_code == status, response.text
    error = response.json()
    assert set(error) == {"type", "error", "request_id"} and set(error["error"]) == {"type", "message"}
    assert error["type"] == "error" and error["error"]["type"] == kind and words in error["error"]["message"]
    assert error["request_id"] == response.headers["request-id"] == response.headers["x-request-id"]
    assert int(response.headers["content-length"]) == len(response.content)


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
def test_bodies_that_are_none(http: httpx.Client, path: str) -> None:
    broken = http.post(path, content="{", headers={"content-type": "application/json"})
    assert broken.status_code == 400 and broken.json()["error"]["type"] == "invalid_request_error"
    form = http.post(path, content="{}", headers={"content-type": "text/plain"})
    assert form.status_code == 415 and form.json()["type"] == "error"
    huge = http.post(path, content=b" " * (33 << 20), headers={"content-type": "application/json"})
    assert huge.status_code == 413 and huge.json()["error"]["type"] == "request_too_large"


def test_other_routes_keep_their_shape(http: httpx.Client) -> None:
    for path in ("/v1/chat/completions", "/v1/messagesx"):
        error = http.post(path, json={}).json()
        assert set(error) == {"error"} and set(error["error"]) == {"message", "type", "param", "code"}


def test_what_lies_below_has_its_shape(http: httpx.Client) -> None:
    for path in ("/v1/messages/", "/v1/messages/x", "/v1/messages/batches"):
        assert http.post(path, json={}).json()["type"] == "error"


def test_keys() -> None:
    config = Config(api_keys=(ApiKey("a", "secret-key-of-a"),), drain_seconds=0.2)
    with running(config=config) as live:
        for key, token in (("secret-key-of-a", None), (None, "secret-key-of-a")):
            with claude(live, key, token) as client:
                assert ask(client).content
                assert client.messages.count_tokens(model=MODEL, messages=HELLO).input_tokens
        with claude(live, "wrong") as client, pytest.raises(anthropic.AuthenticationError) as caught:
            ask(client)
        assert caught.value.body["error"]["type"] == "authentication_error"  # type: ignore[index]
        assert caught.value.response.headers["www-authenticate"] == "Bearer"
        assert caught.value.request_id


def test_a_full_queue() -> None:
    with running(admission=Admission(max_waiting=-1000)) as live, claude(live) as client:
        with pytest.raises(anthropic.RateLimitError) as caught:
            ask(client)
        assert caught.value.body["error"]["type"] == "rate_limit_error"  # type: ignore[index]
        assert caught.value.response.headers["retry-after"]


class Trouble:
    """Fails every forward pass once it is told to."""

    def __init__(self) -> None:
        self.num_rows = 0

    def __call__(self, rows: Any) -> None:
        self.num_rows += len(rows)
        if self.num_rows > 5:
            raise RuntimeError("secret detail")


def test_a_stream_that_breaks_says_so() -> None:
    with running(FakeRunner(on_forward=Trouble(), end_bias=-100)) as live:
        with live.http() as http:
            text = http.post("/v1/messages", json={**ASK, "stream": True}).text
        name, data = text.removesuffix("\n\n").split("\n\n")[-1].split("\n")
        error = json.loads(data.removeprefix("data: "))
        assert name == "event: error" and error["error"]["type"] == "api_error" and error["request_id"]
        assert "secret" not in text and "message_stop" not in text and "[DONE]" not in text
        with claude(live) as client, pytest.raises(anthropic.APIStatusError):
            stream(client)
        with claude(live) as client, pytest.raises(anthropic.InternalServerError) as caught:
            ask(client)
        assert caught.value.body["error"]["type"] == "api_error"  # type: ignore[index]


def test_a_silent_model_pings_in_events() -> None:
    gate, patience = Gate(), Patience(first_ping_s=0.03, next_ping_s=0.05)
    with running(gate.runner(), patience=patience, clock=Clock()) as live:
        body, text = {**ASK, "stream": True, "max_tokens": 3}, ""
        with live.http() as http, http.stream("POST", "/v1/messages", json=body) as response:
            for chunk in response.iter_text():
                text += chunk
                if "event: ping" in text:
                    gate.open()
        assert 'event: ping\ndata: {"type":"ping"}\n\n' in text and ": ping\n" not in text.replace("event: ping\n", "")
        assert text.endswith('data: {"type":"message_stop"}\n\n')
        with claude(live) as client:
            assert stream(client, max_tokens=3).stop_reason == "max_tokens"


# What is not honoured


def test_what_is_ignored_is_named(http: httpx.Client) -> None:
    body = {
        **ASK,
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "high"},
        "context_management": {"edits": []},
        "tools": [{**PING, "eager_input_streaming": True}, {"type": "web_search_20250305", "name": "web_search"}],
    }
    names = ["context_management", "tools.eager_input_streaming", "tools.web_search_20250305", "thinking"]
    for path in ("/v1/messages", "/v1/messages/count_tokens"):
        ignored = http.post(path, json=body).headers["x-pie-ignored"].split(", ")
        assert [*names, "output_config.effort"] == [name for name in ignored if name != "max_tokens"]
    assert "x-pie-ignored" not in http.post("/v1/messages", json=ASK).headers
    relaxed = {**PING, "input_schema": {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}}
    assert http.post("/v1/messages", json={**ASK, "tools": [relaxed]}).headers["x-pie-relaxed"]
