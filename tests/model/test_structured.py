"""Structured output on real weights: whatever the model would rather say, what it says is valid for the schema."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import openai
import pytest
from openai import OpenAI
from pydantic import BaseModel

from proxy_inference_engine.runners.base import Lane
from tests.api.running import Running, running
from tests.model.conftest import make_runner
from tests.model.structured import EIGHT, Desk, Schema, is_valid, json_of, pool, said, shares
from tests.unit.state_machine.json_schema.test_cases import CASES

pytestmark = pytest.mark.model

Record = Callable[[str, object], None]
# Every fifth of the tables: all keywords are there, and most answers are short.
OWN = [case.schema for case in CASES if isinstance(case.schema, dict)][::5]


@pytest.fixture(scope="module")
def desk(weights: Path) -> Iterator[Desk]:
    runner = make_runner(weights, lanes=EIGHT)
    yield Desk(runner)
    runner.close()


def body(schema: Schema, seed: int, max_tokens: int) -> dict[str, Any]:
    wish = f"Write a short JSON value that is valid for this schema: {json.dumps(schema)[:600]}"
    format = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    fields: dict[str, Any] = {"temperature": 1, "seed": seed, "max_tokens": max_tokens, "response_format": format}
    return {"messages": said(wish), **fields}


def check(desk: Desk, schemas: Sequence[Schema], max_tokens: int) -> Counter[str]:
    """Ask for an answer to each; how they ended. One that is complete must be valid."""
    counts: Counter[str] = Counter()
    replies = desk.ask([body(schema, seed, max_tokens) for seed, schema in enumerate(schemas)])
    for schema, reply in zip(schemas, replies, strict=True):
        if reply.refusal is not None or reply.reason == "length":
            counts["refused" if reply.refusal is not None else "length"] += 1
            continue
        assert reply.relaxed == () and reply.answer.calls == []
        verdict = is_valid(json_of(reply.answer.text), schema)
        assert verdict is not False, f"{json.dumps(schema)[:2000]} allows no {reply.answer.text}"
        counts["unchecked" if verdict is None else "valid"] += 1
    return counts


def test_answers_are_valid(desk: Desk, record_property: Record) -> None:
    assert len(OWN) >= 40
    counts = check(desk, OWN, max_tokens=96)
    print(shares(counts))
    record_property("answers", shares(counts))
    assert counts["refused"] == counts["unchecked"] == 0
    assert counts["valid"] >= len(OWN) / 2  # the others were cut off


@pytest.mark.soak
def test_answers_are_valid_for_schemas_in_the_wild(desk: Desk, record_property: Record) -> None:
    """Two hundred and more answers at temperature 1; the share that the limit cut off is reported, not judged."""
    schemas = pool(240)
    counts = check(desk, schemas, max_tokens=512)
    print(shares(counts))
    record_property("answers", shares(counts))
    assert counts.total() - counts["refused"] >= 200
    assert counts["valid"] > counts["length"] and counts["unchecked"] < counts.total() / 20


# Over HTTP


class Address(BaseModel):
    city: Literal["Paris", "Rome", "Zürich"]
    is_home: bool


class Guest(BaseModel):
    age: int
    meal: Literal["fish", "meat", "neither"] | None
    addresses: list[Address]


class Party(BaseModel):
    guest: Guest
    other: Address | None
    mood: Literal["good", "bad"]


ASK: dict[str, Any] = {
    "model": "bundled",
    "messages": said("Tell me about a guest of twenty years who lives in Paris and Rome, and likes fish."),
    "temperature": 1,
    "seed": 4,
    "max_tokens": 300,
}


@pytest.fixture(scope="module")
def server(weights: Path) -> Iterator[Running]:
    with running(make_runner(weights, is_exact=True, lanes=(Lane(2, 1024),)), max_cache_bytes=64 << 20) as server:
        yield server


@pytest.fixture
def client(server: Running) -> Iterator[OpenAI]:
    with server.openai() as client:
        yield client


@pytest.mark.parametrize("kind", [Address, Guest, Party])
def test_parse_gives_the_model(client: OpenAI, kind: type[BaseModel]) -> None:
    choice = client.chat.completions.parse(**ASK, response_format=kind).choices[0]
    assert choice.finish_reason == "stop" and isinstance(choice.message.parsed, kind)
    assert kind.model_validate_json(choice.message.content or "", strict=True) == choice.message.parsed


def test_the_stream_helper_parses(client: OpenAI) -> None:
    whole = client.chat.completions.parse(**ASK, response_format=Party).choices[0]
    with client.chat.completions.stream(**ASK, response_format=Party) as events:
        seen = list(events)
        final = events.get_final_completion().choices[0]
    deltas = [event for event in seen if event.type == "content.delta"]
    done = [event for event in seen if event.type == "content.done"]
    assert "".join(event.delta for event in deltas) == whole.message.content == done[0].content
    assert len(done) == 1 and done[0].parsed == final.message.parsed == whole.message.parsed
    assert final.finish_reason == "stop"


def format_of(kind: type[BaseModel]) -> dict[str, Any]:
    schema = {"name": "answer", "schema": kind.model_json_schema(), "strict": True}
    return {"type": "json_schema", "json_schema": schema}


@pytest.mark.parametrize("format", [format_of(Address), format_of(Guest), {"type": "json_object"}])
def test_streamed_equals_whole(client: OpenAI, format: dict[str, Any]) -> None:
    fields = {**ASK, "response_format": format, "max_tokens": 96}
    client.chat.completions.create(**{**fields, "max_tokens": 1})  # both find the same prefix in the cache
    whole = client.chat.completions.create(**fields)
    chunks = list(client.chat.completions.create(**fields, stream=True, stream_options={"include_usage": True}))
    parts = [part for chunk in chunks for part in chunk.choices]
    assert "".join(part.delta.content or "" for part in parts) == whole.choices[0].message.content
    assert [part.finish_reason for part in parts if part.finish_reason] == [whole.choices[0].finish_reason]
    assert chunks[-1].usage == whole.usage


def test_any_object(client: OpenAI) -> None:
    answers = [
        client.chat.completions.create(**{**ASK, "seed": seed}, response_format={"type": "json_object"})
        for seed in range(4)
    ]
    ended = [answer.choices[0].message.content or "" for answer in answers if answer.choices[0].finish_reason == "stop"]
    assert ended and all(isinstance(json_of(text), dict) for text in ended)


def test_the_limit_is_told(client: OpenAI) -> None:
    answer = client.chat.completions.create(**{**ASK, "max_tokens": 9}, response_format={"type": "json_object"})
    assert answer.choices[0].finish_reason == "length" and (answer.choices[0].message.content or "").startswith("{")
    assert answer.usage is not None and answer.usage.completion_tokens == 9
    with pytest.raises(openai.LengthFinishReasonError):
        client.chat.completions.parse(**{**ASK, "max_tokens": 9}, response_format=Party)


def test_what_is_certain_costs_no_step(server: Running, client: OpenAI) -> None:
    """Keys, braces and the rest of a word that can be no other are appended, not asked for."""
    before = server.stats.total_steps
    answer = client.chat.completions.parse(**ASK, response_format=Party)
    server.wait_idle()
    assert answer.usage is not None and answer.choices[0].finish_reason == "stop"
    num_steps = server.stats.total_steps - before
    assert num_steps <= 0.7 * answer.usage.completion_tokens, (num_steps, answer.usage.completion_tokens)


def test_the_prompt_stays_in_the_cache(client: OpenAI) -> None:
    """A constraint changes what is sampled, not what is computed: another format finds the same prompt."""
    client.chat.completions.parse(**ASK, response_format=Address)
    again = client.chat.completions.parse(**{**ASK, "seed": 5}, response_format=Guest)
    assert again.usage is not None and again.usage.prompt_tokens_details is not None
    assert (again.usage.prompt_tokens_details.cached_tokens or 0) >= again.usage.prompt_tokens - 1
