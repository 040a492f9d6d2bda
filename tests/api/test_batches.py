"""Batches, driven by OpenAI's own client: every object is checked against its types."""

import json
from typing import Any

import httpx
import pytest
from openai import NotFoundError, OpenAI

from tests.api.batch_files import BODIES, CHAT, begin, ended, jsonl, line, lines_of


@pytest.mark.parametrize("endpoint", BODIES)
def test_a_batch_is_answered_as_its_requests_would_be(client: OpenAI, http: httpx.Client, endpoint: str) -> None:
    batch = begin(client, jsonl(line("a", endpoint), line("b", endpoint)), endpoint, metadata={"topic": "tea"})
    assert batch.status == "validating" and batch.metadata == {"topic": "tea"}
    batch = ended(client, batch)
    assert batch.status == "completed" and batch.error_file_id is None
    assert batch.request_counts is not None and batch.usage is not None
    assert (batch.request_counts.total, batch.request_counts.completed, batch.request_counts.failed) == (2, 2, 0)
    output = lines_of(client, batch.output_file_id)
    assert output.keys() == {"a", "b"}
    plain = http.post(endpoint, json=BODIES[endpoint]).json()
    for each in output.values():
        assert each["error"] is None and each["response"]["status_code"] == 200
        assert said(each["response"]["body"]) == said(plain)
    usage = [each["response"]["body"]["usage"] for each in output.values()]
    assert batch.usage.total_tokens == sum(each["total_tokens"] for each in usage) > 0


def said(body: dict[str, Any]) -> object:
    """Without ids and times."""
    if "output" in body:
        return body["output"][0]["content"]
    return body.get("choices") or body["data"]


def test_what_a_route_refuses_is_in_the_file_of_errors(client: OpenAI, http: httpx.Client) -> None:
    wrong = line("bad", temperature=9)
    batch = ended(client, begin(client, jsonl(line("good"), wrong, line("gone", model="nobody"))))
    assert batch.status == "completed" and batch.request_counts is not None
    assert (batch.request_counts.completed, batch.request_counts.failed) == (1, 2)
    assert lines_of(client, batch.output_file_id).keys() == {"good"}
    errors = lines_of(client, batch.error_file_id)
    assert errors["gone"]["response"]["status_code"] == 404
    refused = http.post(CHAT, json=wrong["body"])
    assert errors["bad"]["response"]["status_code"] == refused.status_code == 400
    assert errors["bad"]["response"]["body"] == refused.json() and errors["bad"]["error"] is None


GOOD = line("a")
FAULTS: dict[str, tuple[bytes, str, int | None, str | None]] = {
    "not JSON": (jsonl(GOOD) + b"{nope}\n", "invalid_json_line", 2, None),
    "no object": (b"[1]\n", "invalid_json_line", 1, None),
    "not UTF-8": (b'{"custom_id": "\xff"}\n', "invalid_json_line", 1, None),
    "a key twice": (b'{"custom_id": "a", "custom_id": "b"}\n', "invalid_json_line", 1, "custom_id"),
    "no id": (jsonl({k: v for k, v in GOOD.items() if k != "custom_id"}), "missing_required_parameter", 1, "custom_id"),
    "an id twice": (jsonl(GOOD, line("b"), GOOD), "duplicate_custom_id", 3, "custom_id"),
    "an empty id": (jsonl({**GOOD, "custom_id": ""}), "invalid_value", 1, "custom_id"),
    "a number as id": (jsonl({**GOOD, "custom_id": 5}), "invalid_value", 1, "custom_id"),
    "GET": (jsonl({**GOOD, "method": "GET"}), "invalid_method", 1, "method"),
    "another endpoint": (jsonl(line("a", "/v1/embeddings")), "mismatched_url", 1, "url"),
    "an endpoint inside": (jsonl({**GOOD, "url": "/admin/usage"}), "mismatched_url", 1, "url"),
    "a list as body": (jsonl({**GOOD, "body": []}), "invalid_value", 1, "body"),
    "a stream": (jsonl(line("a", stream=True)), "invalid_value", 1, "body.stream"),
    "another field": (jsonl({**GOOD, "more": 1}), "unknown_parameter", 1, "more"),
    "nothing": (b"\n\n", "empty_file", None, None),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_batch_with_a_faulty_line_fails_and_names_it(client: OpenAI, fault: str) -> None:
    data, code, number, param = FAULTS[fault]
    batch = ended(client, begin(client, data))
    assert batch.status == "failed" and batch.failed_at is not None and batch.output_file_id is None
    assert batch.errors is not None and batch.errors.data is not None
    problem = batch.errors.data[0]
    assert (problem.code, problem.line, problem.param) == (code, number, param)


def test_blank_lines_and_a_missing_last_break_are_no_fault(client: OpenAI) -> None:
    data = b"\n" + jsonl(GOOD) + b"  \r\n" + jsonl(line("b")).rstrip()
    batch = ended(client, begin(client, data))
    assert lines_of(client, batch.output_file_id).keys() == {"a", "b"}


def test_lists_of_batches_come_in_pages_the_newest_first(client: OpenAI) -> None:
    batches = [begin(client, jsonl(GOOD)).id for _ in range(3)]
    assert [batch.id for batch in client.batches.list(limit=2).data] == batches[:0:-1]
    assert [batch.id for batch in client.batches.list(limit=2, after=batches[1]).data][:1] == batches[:1]
    listed = [batch.id for batch in client.batches.list(limit=1)]
    assert listed[:3] == batches[::-1], "the client goes through the pages"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"endpoint": "/v1/images/generations"}, "endpoint"),
        ({"completion_window": "soon"}, "completion_window"),
        ({"completion_window": "31d"}, "completion_window"),
        ({"completion_window": None}, "completion_window"),
        ({"metadata": {"a": 1}}, "metadata.a"),
        ({"output_expires_after": {"anchor": "now", "seconds": 4000}}, "output_expires_after.anchor"),
        ({"input_file_id": ""}, "input_file_id"),
        ({"input_file_id": "../../etc/passwd"}, "input_file_id"),
        ({"input_file_id": "file-" + "0" * 32}, "input_file_id"),
        ({"priority": 1}, "priority"),
    ],
)
def test_a_wrong_body_names_the_parameter(client: OpenAI, http: httpx.Client, fields: Any, param: str) -> None:
    file = client.files.create(file=("in.jsonl", jsonl(GOOD)), purpose="batch")
    body = {"input_file_id": file.id, "endpoint": CHAT, "completion_window": "24h", **fields}
    answer = http.post("/v1/batches", json=body)
    assert answer.status_code in (400, 404) and answer.json()["error"]["param"] == param


def test_a_file_for_something_else_is_no_input(client: OpenAI, http: httpx.Client) -> None:
    file = client.files.create(file=("in.jsonl", jsonl(GOOD)), purpose="user_data")
    answer = http.post("/v1/batches", json={"input_file_id": file.id, "endpoint": CHAT, "completion_window": "24h"})
    assert answer.status_code == 400 and answer.json()["error"]["param"] == "input_file_id"


def test_an_unknown_batch_is_not_found(client: OpenAI) -> None:
    with pytest.raises(NotFoundError):
        client.batches.retrieve("batch_" + "0" * 32)
    with pytest.raises(NotFoundError):
        client.batches.cancel("batch_" + "0" * 32)


def test_a_batch_that_is_over_stays_as_it_is_when_it_is_cancelled(client: OpenAI) -> None:
    batch = ended(client, begin(client, jsonl(GOOD)))
    assert client.batches.cancel(batch.id) == batch


def test_what_is_written_says_what_it_is(client: OpenAI) -> None:
    batch = ended(client, begin(client, jsonl(GOOD), output_expires_after={"anchor": "created_at", "seconds": 7200}))
    assert batch.output_file_id is not None
    file = client.files.retrieve(batch.output_file_id)
    assert file.purpose == "batch_output" and file.filename == f"{batch.id}_output.jsonl"
    assert file.expires_at == file.created_at + 7200
    content = client.files.content(file.id).read()
    assert file.bytes == len(content) and json.loads(content)["custom_id"] == "a"
    assert client.files.delete(file.id).deleted
    with pytest.raises(NotFoundError):
        client.files.content(file.id)
