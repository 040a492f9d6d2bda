"""Compaction: what the model sees before and after, and what it was that it wrote."""

from collections.abc import Iterator
from typing import Any

import openai
import pytest

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
