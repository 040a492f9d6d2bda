"""Tool calls on real weights: what must be called is called, with arguments that are valid, and nothing leaks."""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import openai
import pytest
from openai import OpenAI
from pydantic import BaseModel

from proxy_inference_engine.runners.base import Lane
from tests.api.running import Running, running
from tests.model.conftest import make_runner
from tests.model.structured import EIGHT, SAMPLE, Desk, Reply, Schema, is_valid, json_of, pool, said, shares
from tests.unit.state_machine.json_schema.cases import obj

pytestmark = pytest.mark.model

Record = Callable[[str, object], None]


def closed(properties: dict[str, Any]) -> Schema:
    return obj(properties, required=list(properties), additionalProperties=False)


PARAMETERS: list[Schema] = [
    closed({"city": {"enum": ["Paris", "Rome", "Zürich"]}, "days": {"type": "integer", "minimum": 1, "maximum": 14}}),
    closed({"is_open": {"type": "boolean"}}),
    obj({"note": {"type": "string", "maxLength": 20}, "level": {"type": "number"}}),
    closed({"tags": {"type": "array", "items": {"enum": ["a", "b", 3, None]}, "maxItems": 3}}),
    closed({"code": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3}$"}}),
    closed({"who": {"$ref": "#/$defs/who"}})
    | {"$defs": {"who": closed({"name": {"type": "string", "maxLength": 12}})}},
    closed({"value": {"anyOf": [{"type": "null"}, {"type": "integer", "minimum": 0, "maximum": 99}]}}),
    closed({"day": {"type": "string", "format": "date"}}),
    obj({}, additionalProperties={"type": "boolean"}, maxProperties=2),
    closed({"by": {"oneOf": [{"const": "row"}, {"const": "column"}]}, "é\n": {"const": 'a"\\b'}}),
    {"type": "object"},
]


class Wish(NamedTuple):
    """One question with tools, and which of them must be called; `names` empty: none has to be."""

    tools: list[dict[str, Any]]
    choice: Any
    is_parallel: bool
    names: frozenset[str]

    def body(self, seed: int, max_tokens: int) -> dict[str, Any]:
        return {
            "messages": said("Please use what you have: Paris and Rome for three days, and write AB-123."),
            "tools": self.tools,
            "tool_choice": self.choice,
            "parallel_tool_calls": self.is_parallel,
            "temperature": 1,
            "seed": seed,
            "max_tokens": max_tokens,
        }


def tool_sets(schemas: Sequence[Schema], count: int) -> list[list[dict[str, Any]]]:
    """Sets of one to four functions."""
    rng = random.Random(5)
    sets = []
    for number in range(count):
        chosen = rng.sample(schemas, min(1 + number % 4, len(schemas)))
        functions = [{"name": f"use_{letter}", "parameters": one} for letter, one in zip("abcd", chosen, strict=False)]
        sets.append([{"type": "function", "function": function} for function in functions])
    return sets


def wishes(tools: list[dict[str, Any]], number: int) -> list[Wish]:
    """What must be called, one that is named, and what may be called."""
    names = [tool["function"]["name"] for tool in tools]
    one = names[number % len(names)]
    named = {"type": "function", "function": {"name": one}}
    return [
        Wish(tools, "required", number % 2 == 0, frozenset(names)),
        Wish(tools, named, True, frozenset([one])),
        Wish(tools, "auto", number % 2 == 0, frozenset()),
    ]


def check_reply(wish: Wish, reply: Reply) -> str:
    """How it ended; raises where it must not have."""
    if reply.refusal is not None:
        return "refused"
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in wish.tools}
    answer = reply.answer
    assert "<tool_call>" not in answer.text and (not wish.names or not answer.text.strip()), answer.text
    for call in answer.calls:
        assert call.name in (wish.names or schemas)
        assert call.is_complete or (reply.reason == "length" and call is answer.calls[-1])
        if not call.is_complete:
            continue
        arguments = json_of(call.arguments)
        assert isinstance(arguments, dict)
        if not reply.relaxed:
            assert is_valid(arguments, schemas[call.name]) is not False, (schemas[call.name], call.arguments)
    assert len(answer.calls) <= 1 or (wish.is_parallel and wish.choice in ("auto", "required"))
    if reply.reason == "length":
        return "length"
    assert answer.calls or not wish.names, "no call"
    if reply.relaxed:
        return "relaxed"
    return "called" if answer.calls else "text"


def check(desk: Desk, sets: Sequence[list[dict[str, Any]]], max_tokens: int) -> Counter[str]:
    asked = [wish for number, tools in enumerate(sets) for wish in wishes(tools, number)]
    replies = desk.ask([wish.body(seed, max_tokens) for seed, wish in enumerate(asked)])
    kinds = [check_reply(wish, reply) for wish, reply in zip(asked, replies, strict=True)]
    return Counter(
        f"{wish.choice if isinstance(wish.choice, str) else 'named'} {kind}"
        for wish, kind in zip(asked, kinds, strict=True)
    )


@pytest.fixture(scope="module")
def desk(weights: Path) -> Iterator[Desk]:
    runner = make_runner(weights, lanes=(*EIGHT, Lane(2, 8192)))
    yield Desk(runner)
    runner.close()


def test_what_must_be_called_is_called(desk: Desk, record_property: Record) -> None:
    counts = check(desk, tool_sets(PARAMETERS, 16), max_tokens=64)
    print(shares(counts))
    record_property("answers", shares(counts))
    assert not any(kind.endswith(("refused", "relaxed")) for kind in counts)
    assert counts["required called"] >= 4 and counts["named called"] >= 8  # the others were cut off


@pytest.mark.soak
def test_calls_are_valid_for_schemas_in_the_wild(desk: Desk, record_property: Record) -> None:
    """Three hundred answers at temperature 1; the shares that are cut off, refused or relaxed are reported."""
    sets = tool_sets(pool(250, max_chars=2500, only_objects=True), 110)
    counts = check(desk, sets, max_tokens=512)
    print(shares(counts), "of the sample" if SAMPLE else "of our own")
    record_property("answers", shares(counts))
    enforced = [kind for kind in counts.elements() if not kind.endswith(("refused", "relaxed"))]
    assert len(enforced) >= 300  # three for each of a hundred sets
    assert counts["required called"] >= 25 and counts["named called"] >= 25


# Over HTTP


class Weather(BaseModel):
    city: Literal["Paris", "Rome", "Oslo"]
    unit: Literal["celsius", "fahrenheit"] | None


class Clock(BaseModel):
    zone: Literal["UTC", "CET"]
    is_precise: bool


TOOLS = [openai.pydantic_function_tool(Weather), openai.pydantic_function_tool(Clock)]
ASK: dict[str, Any] = {
    "model": "bundled",
    "messages": said("What is the weather in Paris, and what time is it there?"),
    "temperature": 1,
    "seed": 3,
    "max_tokens": 100,
    "tools": TOOLS,
}


@pytest.fixture(scope="module")
def server(weights: Path) -> Iterator[Running]:
    with running(make_runner(weights, is_exact=True, lanes=(Lane(2, 2048),)), max_cache_bytes=64 << 20) as server:
        yield server


@pytest.fixture
def client(server: Running) -> Iterator[OpenAI]:
    with server.openai() as client:
        yield client


def named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def test_parse_reads_arguments(client: OpenAI) -> None:
    for choice in ("required", named("Weather"), named("Clock")):
        answer = client.chat.completions.parse(**ASK, tool_choice=choice, parallel_tool_calls=False)  # type: ignore[arg-type]
        (call,) = list(answer.choices[0].message.tool_calls or ())
        assert isinstance(call.function.parsed_arguments, Weather | Clock)
        assert answer.choices[0].message.content is None
        assert answer.choices[0].finish_reason == ("tool_calls" if choice == "required" else "stop")
        assert isinstance(choice, str) or call.function.name == choice["function"]["name"]


def test_the_stream_helper_folds_calls(client: OpenAI) -> None:
    fields = {**ASK, "tool_choice": "required", "parallel_tool_calls": False}
    client.chat.completions.create(**{**fields, "max_tokens": 1})  # both find the same prefix in the cache
    (whole,) = list(client.chat.completions.parse(**fields).choices[0].message.tool_calls or ())
    with client.chat.completions.stream(**fields) as events:
        seen = list(events)
        final = events.get_final_completion().choices[0]
    deltas = [event for event in seen if event.type == "tool_calls.function.arguments.delta"]
    done = [event for event in seen if event.type == "tool_calls.function.arguments.done"]
    assert "".join(event.arguments_delta for event in deltas) == whole.function.arguments
    assert [event.parsed_arguments for event in done] == [whole.function.parsed_arguments]
    assert [event.name for event in done] == [whole.function.name]
    assert final.finish_reason == "tool_calls" and not final.message.content
    assert not any(event.delta for event in seen if event.type == "content.delta")


@pytest.mark.parametrize("choice", ["required", "auto"])
@pytest.mark.parametrize("seed", [1, 2])
def test_streamed_equals_whole(client: OpenAI, choice: str, seed: int) -> None:
    fields = {**ASK, "tool_choice": choice, "seed": seed}
    client.chat.completions.create(**{**fields, "max_tokens": 1})
    whole = client.chat.completions.create(**fields).choices[0]
    parts = [part for chunk in client.chat.completions.create(**fields, stream=True) for part in chunk.choices]
    calls: list[list[str]] = []
    for delta in (call for part in parts for call in part.delta.tool_calls or ()):
        assert delta.function is not None
        if delta.id is not None:
            calls.append([delta.function.name or "", ""])
        calls[delta.index][1] += delta.function.arguments or ""
    said_whole = [(call.function.name, call.function.arguments) for call in whole.message.tool_calls or ()]
    assert [tuple(call) for call in calls] == said_whole
    assert "".join(part.delta.content or "" for part in parts) == (whole.message.content or "")
    assert [part.finish_reason for part in parts if part.finish_reason] == [whole.finish_reason]


def test_a_loop_of_three_turns(client: OpenAI) -> None:
    """Two calls, their results, and an answer; every turn finds the ones before it in the cache."""
    messages: list[Any] = list(ASK["messages"])
    for name, result in (("Weather", "12 degrees, light rain"), ("Clock", "14:30")):
        answer = client.chat.completions.create(**{**ASK, "messages": messages, "tool_choice": named(name)})
        (call,) = list(answer.choices[0].message.tool_calls or ())
        assert call.function.name == name
        messages.append(answer.choices[0].message)
        messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    last = client.chat.completions.create(**{**ASK, "messages": messages, "tool_choice": "none", "temperature": 0})
    message = last.choices[0].message
    assert message.tool_calls is None and message.content and "tool_call" not in message.content
    assert last.usage is not None and last.usage.prompt_tokens_details is not None
    assert (last.usage.prompt_tokens_details.cached_tokens or 0) > last.usage.prompt_tokens / 2


def test_the_limit_inside_a_call_is_told(client: OpenAI) -> None:
    fields = {**ASK, "tool_choice": named("Weather")}
    whole = client.chat.completions.create(**fields)
    assert whole.usage is not None and whole.choices[0].finish_reason == "stop"
    (call,) = list(whole.choices[0].message.tool_calls or ())
    for max_tokens in (1, whole.usage.completion_tokens // 2, whole.usage.completion_tokens - 1):
        cut = client.chat.completions.create(**{**fields, "max_tokens": max_tokens}).choices[0]
        assert cut.finish_reason == "length", max_tokens
        for begun in cut.message.tool_calls or ():
            assert begun.function.name == "Weather" and call.function.arguments.startswith(begun.function.arguments)


def test_what_is_certain_costs_no_step(server: Running, client: OpenAI) -> None:
    server.wait_idle()
    before = server.stats.total_steps
    answer = client.chat.completions.create(**{**ASK, "tool_choice": named("Clock")})
    server.wait_idle()
    assert answer.usage is not None and answer.choices[0].finish_reason == "stop"
    num_steps = server.stats.total_steps - before
    assert num_steps <= 0.7 * answer.usage.completion_tokens, (num_steps, answer.usage.completion_tokens)
