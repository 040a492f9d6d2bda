"""Compaction: what the model sees before and after, and what it was that it wrote."""

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from proxy_inference_engine.config import ApiKey, Config
from tests.api.running import MODEL, Running, running
from tests.api.writing import Writer

SUMMARY = "They spoke of tea and of rivers."
EARLIER: list[Any] = [
    {"role": "user", "content": "Which tea is green? " + "Think of leaves. " * 10},
    {"role": "assistant", "content": "Sencha. " + "It has small leaves. " * 10},
    {"role": "user", "content": "Which river is long? " + "Think of water. " * 10},
    {"role": "assistant", "content": "The Nile. " + "It has much water. " * 10},
]
LAST: Any = {"role": "user", "content": "And a mountain?"}
QUIET: dict[str, Any] = {"model": MODEL, "reasoning": {"effort": "none"}}


@pytest.fixture
def writer() -> Writer:
    """The summary is the third turn of the assistant, after the two that are summed up."""
    return Writer(["Go on, then.", "Etna.", SUMMARY])


@pytest.fixture
def live(writer: Writer) -> Iterator[Running]:
    with running(writer) as server:
        yield server


def test_the_older_turns_become_what_the_model_wrote_of_them(live: Running, writer: Writer) -> None:
    with live.openai() as client:
        compacted = client.responses.compact(model=MODEL, input=[*EARLIER, LAST])
        (asked,) = writer.prompts
        assert "Sencha" in asked and "Nile" in asked and "mountain" not in asked, "only what goes is summed up"
        (item,) = compacted.output
        assert item.type == "compaction" and SUMMARY not in item.encrypted_content
        assert compacted.usage.output_tokens >= len(SUMMARY)

        go_on: list[Any] = [item, {"role": "assistant", "content": "Etna."}, {"role": "user", "content": "Higher?"}]
        answer = client.responses.create(**QUIET, input=go_on)
        prompt = writer.prompts[-1]
        assert answer.output_text and prompt.index(SUMMARY) < prompt.index("And a mountain?") < prompt.index("Higher?")
        assert "Sencha" not in prompt and "Nile" not in prompt

        again = client.responses.compact(model=MODEL, previous_response_id=answer.id)
        assert again.output[0].type == "compaction" and SUMMARY in writer.prompts[-1]


def test_only_the_server_that_made_it_opens_it(live: Running) -> None:
    with running(Writer([SUMMARY] * 3)) as other, other.openai() as client:
        (foreign,) = client.responses.compact(model=MODEL, input=[*EARLIER, LAST]).output
    items: list[Any] = [foreign, LAST]
    with live.openai() as client:
        for use in (client.responses.create, client.responses.compact, client.responses.input_tokens.count):
            with pytest.raises(openai.BadRequestError) as caught:
                use(model=MODEL, input=items)
            assert caught.value.param == "input[0].encrypted_content"


def test_a_limit_is_honoured_and_a_stream_refused(live: Running) -> None:
    with live.http() as http:
        body = {"model": MODEL, "input": [*EARLIER, LAST]}
        short = http.post("/v1/responses/compact", json={**body, "max_output_tokens": 16})
        assert short.status_code == 200 and short.json()["usage"]["output_tokens"] == 16
        streamed = http.post("/v1/responses/compact", json={**body, "stream": True})
        assert (streamed.status_code, streamed.json()["error"]["param"]) == (400, "stream")


def test_only_the_key_it_was_made_for_opens_it() -> None:
    keys = (ApiKey("anna", "key-of-anna"), ApiKey("ben", "key-of-ben"))
    with (
        running(Writer([SUMMARY] * 3), config=Config(api_keys=keys, drain_seconds=0.2)) as live,
        live.http(headers={"x-api-key": "key-of-anna"}) as anna,
        live.http(headers={"x-api-key": "key-of-ben"}) as ben,
    ):
        made = anna.post("/v1/responses/compact", json={"model": MODEL, "input": [*EARLIER, LAST]}).json()["output"][0]
        asked = {**QUIET, "input": [made, LAST]}
        assert anna.post("/v1/responses", json=asked).status_code == 200
        for path, body, param in (
            ("/v1/responses", asked, "input[0].encrypted_content"),
            ("/v1/responses/compact", {"model": MODEL, "input": [made, LAST]}, "input[0].encrypted_content"),
            ("/v1/conversations", {"items": [made]}, "items[0].encrypted_content"),
        ):
            refused = ben.post(path, json=body)
            assert (refused.status_code, refused.json()["error"]["param"]) == (400, param)
