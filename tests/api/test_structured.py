"""`response_format` through the official client: Pydantic models, streams, our own kinds, and what is refused."""

import json
import re
from itertools import chain, cycle
from typing import Any, Literal

import httpx
import jsonschema
import openai
import pytest
from openai import OpenAI
from pydantic import BaseModel

from proxy_inference_engine.config import Config
from proxy_inference_engine.runners.fake import FakeRunner
from tests.api.running import HELLO, MODEL, Running, on_every_runner, running

ASK: dict[str, Any] = {"model": MODEL, "messages": HELLO, "seed": 1, "max_tokens": 500}
CLOSING = {'"': 6, "]": 3, "}": 6}


class Place(BaseModel):
    city: Literal["Paris", "Rome", "Zürich"]
    people: int
    is_capital: bool
    note: str


class Trip(BaseModel):
    places: list[Place]
    mood: Literal["good", "bad"] | None


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "y"]}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
LARK = 'start: greeting " " NAME\ngreeting: "hello" | "good day"\nNAME: /[A-Z][a-z]{2,5}/'


def json_schema(schema: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, **fields}}


def text_grammar(syntax: str, definition: str) -> dict[str, Any]:
    return {"type": "grammar", "syntax": syntax, "definition": definition}


FORMATS: list[tuple[dict[str, Any], str | None]] = [
    ({"type": "json_object"}, None),
    (json_schema(SCHEMA), r'\{"a": ?-?\d+, ?"b": ?"[xy]"\}'),
    ({"type": "choice", "choices": ["yes", "no", "peut-être"]}, "yes|no|peut-être"),
    (text_grammar("regex", "[a-c]{3}-[0-9]{2,4}"), "[a-c]{3}-[0-9]{2,4}"),
    (text_grammar("lark", LARK), "(hello|good day) [A-Z][a-z]{2,5}"),
]


@on_every_runner
def test_parse_gives_the_model(client: OpenAI, server: Running) -> None:
    answer = client.chat.completions.parse(**ASK, response_format=Trip, logit_bias=server.bias(CLOSING))
    choice = answer.choices[0]
    assert choice.finish_reason == "stop" and isinstance(choice.message.parsed, Trip)
    assert Trip.model_validate_json(choice.message.content or "") == choice.message.parsed


@on_every_runner
def test_the_stream_helper_parses(client: OpenAI, server: Running) -> None:
    fields: dict[str, Any] = {**ASK, "response_format": Trip, "logit_bias": server.bias(CLOSING)}
    whole = client.chat.completions.parse(**fields)
    with client.chat.completions.stream(**fields) as events:
        kinds = [event.type for event in events]
        final = events.get_final_completion()
    assert final.choices[0].message.parsed == whole.choices[0].message.parsed
    assert kinds.count("content.done") == 1 and "content.delta" in kinds


@on_every_runner
@pytest.mark.parametrize(("format", "pattern"), FORMATS)
def test_every_format_binds_streamed_and_whole(
    client: OpenAI, server: Running, format: dict[str, Any], pattern: str | None
) -> None:
    fields = {**ASK, "n": 3, "logit_bias": server.bias(CLOSING), "logprobs": True}
    whole = client.chat.completions.create(**fields, extra_body={"response_format": format})
    chunks = list(client.chat.completions.create(**fields, stream=True, extra_body={"response_format": format}))
    for choice in whole.choices:
        text = choice.message.content or ""
        assert choice.finish_reason == "stop"
        assert isinstance(json.loads(text), dict) if pattern is None else re.fullmatch(pattern, text)
        own = [part for chunk in chunks for part in chunk.choices if part.index == choice.index]
        assert "".join(part.delta.content or "" for part in own) == text
        assert [part.finish_reason for part in own if part.finish_reason] == ["stop"]
        assert choice.logprobs is not None
        entries = list(chain(*(part.logprobs.content or [] for part in own if part.logprobs)))
        assert entries == choice.logprobs.content
        assert b"".join(bytes(entry.bytes or []) for entry in entries).decode() == text


@pytest.mark.parametrize(
    ("server", "seed"), [*(("fake", seed) for seed in range(8)), ("mlx", 0), ("mlx", 1)], indirect=["server"]
)
def test_answers_are_valid_for_their_schema(client: OpenAI, server: Running, seed: int) -> None:
    schema = {
        "type": "object",
        "properties": {
            "id": {"type": "string", "pattern": "^[A-Z]{2}[0-9]{3}$"},
            "level": {"type": "number", "minimum": 0, "maximum": 10},
            "tags": {"type": "array", "items": {"enum": ["a", "b", 3, None]}, "maxItems": 3},
            "inner": {"type": "object", "properties": {"deep": {"type": "boolean"}}, "required": ["deep"]},
        },
        "required": ["id", "level", "tags", "inner"],
    }
    fields = {**ASK, "seed": seed, "logit_bias": server.bias(CLOSING)}
    answer = client.chat.completions.create(**fields, extra_body={"response_format": json_schema(schema)})
    assert answer.choices[0].finish_reason == "stop"
    jsonschema.validate(json.loads(answer.choices[0].message.content or ""), schema)


def test_text_is_no_format(client: OpenAI) -> None:
    plain = client.chat.completions.create(**ASK)
    text = client.chat.completions.create(**ASK, response_format={"type": "text"})
    assert text.choices[0].message.content == plain.choices[0].message.content


@on_every_runner
def test_the_limit_is_told(client: OpenAI) -> None:
    fields = {**ASK, "max_tokens": 5}
    answer = client.chat.completions.create(**fields, response_format={"type": "json_object"})
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None and answer.usage.completion_tokens == 5
    with pytest.raises(openai.LengthFinishReasonError):
        client.chat.completions.parse(**fields, response_format=Trip)


@on_every_runner
def test_every_limit_gives_a_beginning(client: OpenAI) -> None:
    format = {"response_format": json_schema(SCHEMA)}
    whole = client.chat.completions.create(**ASK, extra_body=format)
    text, num_tokens = whole.choices[0].message.content or "", whole.usage.completion_tokens if whole.usage else 0
    for max_tokens in range(1, num_tokens + 2):
        answer = client.chat.completions.create(**{**ASK, "max_tokens": max_tokens}, extra_body=format)
        choice = answer.choices[0]
        assert text.startswith(choice.message.content or "")
        assert choice.finish_reason == ("length" if max_tokens < num_tokens else "stop"), max_tokens


UNIQUE = {"type": "array", "items": {"type": "number"}, "uniqueItems": True, "minItems": 2}
HALF_BOUND = {"type": "object", "properties": {"é,x": UNIQUE}, "required": ["é,x"], "additionalProperties": False}


@pytest.mark.parametrize("is_stream", [False, True])
def test_what_does_not_bind_is_listed(http: httpx.Client, server: Running, is_stream: bool) -> None:
    body = {**ASK, "stream": is_stream, "logit_bias": server.bias(CLOSING)}
    strict = http.post("/v1/chat/completions", json={**body, "response_format": json_schema(HALF_BOUND)})
    error = strict.json()["error"]
    assert strict.status_code == 400 and error["param"] == "response_format.json_schema.schema"
    assert "uniqueItems" in error["message"] and "x-pie-relaxed" not in strict.headers
    loose = http.post("/v1/chat/completions", json={**body, "response_format": json_schema(HALF_BOUND, strict=False)})
    assert loose.status_code == 200
    header = loose.headers["x-pie-relaxed"]
    assert header.endswith(":uniqueItems") and "%C3%A9%2Cx" in header and "," not in header
    bound = http.post("/v1/chat/completions", json={**body, "response_format": json_schema(SCHEMA, strict=False)})
    assert bound.status_code == 200 and "x-pie-relaxed" not in bound.headers


WRONG: list[tuple[dict[str, Any], str]] = [
    (json_schema({"type": "foo"}), "response_format.json_schema.schema"),
    (json_schema({"type": "string", "pattern": 123}), "response_format.json_schema.schema"),
    (json_schema({"$ref": "http://localhost/x"}), "response_format.json_schema.schema"),
    (json_schema({"$ref": "#/nowhere"}), "response_format.json_schema.schema"),
    (json_schema({"type": "integer", "minimum": 5, "maximum": 4}), "response_format.json_schema.schema"),
    (json_schema({"type": "object", "x-guidance": {"lenient": True}}), "response_format.json_schema.schema"),
    (json_schema({"type": "object", "x-guidance": {}}, strict=False), "response_format.json_schema.schema"),
    (json_schema({"type": "array", "contains": {}, "minContains": 300_000_000}), "response_format.json_schema.schema"),
    (json_schema({"type": "integer", "multipleOf": 2_147_483_648}), "response_format.json_schema.schema"),
    (json_schema({"type": "integer", "multipleOf": 999_983}), "response_format.json_schema.schema"),
    (text_grammar("regex", "("), "response_format.definition"),
    (text_grammar("regex", "(?=a)b"), "response_format.definition"),
    (text_grammar("regex", r"(a)\1"), "response_format.definition"),
    (text_grammar("lark", "start: nothing"), "response_format.definition"),
    (text_grammar("lark", "?!"), "response_format.definition"),
    (text_grammar("lark", "//x\nstart: @g0"), "response_format.definition"),
    (text_grammar("lark", "start: /a/{,30000}"), "response_format.definition"),
    (text_grammar("lark", "a: /x/"), "response_format.definition"),
    ({"type": "grammar", "definition": "a"}, "response_format.syntax"),
    ({"type": "choice", "choices": []}, "response_format.choices"),
    ({"type": "xml"}, "response_format"),
]


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize(("format", "param"), WRONG)
def test_bad_formats_are_refused_by_name(
    http: httpx.Client, format: dict[str, Any], param: str, is_stream: bool
) -> None:
    response = http.post("/v1/chat/completions", json={**ASK, "stream": is_stream, "response_format": format})
    assert response.status_code == 400, response.text[:300]
    error = response.json()["error"]
    assert error["param"] == param and error["type"] == "invalid_request_error"
    assert 0 < len(error["message"]) < 400 and "Traceback" not in error["message"]


@on_every_runner
def test_bad_formats_do_not_disturb_a_running_stream(client: OpenAI, http: httpx.Client) -> None:
    fields = {**ASK, "logprobs": True, "max_tokens": 3 * len(WRONG)}
    alone = [chunk.choices for chunk in client.chat.completions.create(**fields, stream=True)]
    disturbed = []
    wrong = cycle(WRONG)
    for chunk in client.chat.completions.create(**fields, stream=True):
        disturbed.append(chunk.choices)
        bad = http.post("/v1/chat/completions", json={**ASK, "response_format": next(wrong)[0]})
        assert bad.status_code == 400
    assert disturbed == alone and len(alone) > len(WRONG)


@on_every_runner
def test_after_bad_formats_the_server_answers(client: OpenAI) -> None:
    answer = client.chat.completions.create(**ASK, extra_body={"response_format": FORMATS[2][0]})
    assert answer.choices[0].message.content in ("yes", "no", "peut-être")


@pytest.mark.parametrize(
    ("config", "pattern"),
    [({}, r'\{"a":-?\d+,"b":"[xy]"\}'), ({"json_spacing": "spaced"}, r'\{"a": -?\d+, "b": "[xy]"\}')],
)
def test_json_is_one_line_spaced_as_configured(config: dict[str, Any], pattern: str) -> None:
    with running(config=Config.model_validate({"drain_seconds": 0.2, **config})) as live, live.openai() as spaced:
        answer = spaced.chat.completions.create(**ASK, extra_body={"response_format": json_schema(SCHEMA)})
    assert re.fullmatch(pattern, answer.choices[0].message.content or "")


def test_sampling_differs_by_state() -> None:
    wanted = {"response_format": text_grammar("regex", "[a-z]{20}")}

    def words(config: Config) -> set[str | None]:
        with running(config=config) as live, live.openai() as openai_client:
            answers = [
                openai_client.chat.completions.create(**{**ASK, "seed": seed}, extra_body=wanted) for seed in range(4)
            ]
        return {answer.choices[0].message.content for answer in answers}

    cold = Config.model_validate({"drain_seconds": 0.2, "state_sampling": {"structured": {"temperature": 0}}})
    assert len(words(cold)) == 1
    assert len(words(Config(drain_seconds=0.2))) == 4


def test_a_choice_that_looks_like_the_next_turn_is_answered_whole() -> None:
    """A template of no family used to get the stop strings of lines of `user: …`, which cut this one."""
    text = "services:\n  web:\nuser: root\nports: 80"
    template = "{% for message in messages %}<|start_of_role|>{{ message.role }}{{ message.content }}{% endfor %}"
    with running(FakeRunner(chat_template=template)) as live, live.openai() as client:
        options: dict[str, Any] = {"extra_body": {"response_format": {"type": "choice", "choices": [text]}}}
        choice = client.chat.completions.create(**ASK, **options).choices[0]
        assert (choice.message.content, choice.finish_reason) == (text, "stop")
        assert "stop_str" not in choice.to_dict()


def test_objects_that_do_not_say_so_have_no_other_keys(client: OpenAI, server: Running) -> None:
    schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}, "b": {"properties": {"c": {"enum": [3]}}}}}
    wandering = {"logit_bias": server.bias({",": 100, "{": 50, '"': 20})}

    def ask(**fields: Any) -> dict[str, Any]:
        options = {"response_format": json_schema({**schema, "required": ["a", "b"], **fields}), **wandering}
        choice = client.chat.completions.create(**{**ASK, "max_tokens": 100}, extra_body=options).choices[0]
        return {} if choice.finish_reason == "length" else json.loads(choice.message.content or "")

    assert ask() == {"a": ask()["a"], "b": {"c": 3}}
    assert ask(additionalProperties=True) == {}, "it wanders to the limit"
