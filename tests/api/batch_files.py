"""Inputs of batches, and what came of them."""

import json
from typing import Any

from openai import OpenAI
from openai.types import Batch

from tests.api.running import HELLO, MODEL
from tests.polling import wait_until

CHAT = "/v1/chat/completions"
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"model": MODEL, "messages": HELLO, "max_tokens": 4, "seed": 1},
    "/v1/completions": {"model": MODEL, "prompt": "Hello", "max_tokens": 4, "seed": 1},
    "/v1/responses": {"model": MODEL, "input": "Hello", "max_output_tokens": 16, "store": False, "seed": 1},
    "/v1/embeddings": {"model": MODEL, "input": "Hello"},
}
ENDS = ("completed", "failed", "cancelled", "expired")


def line(custom_id: str, endpoint: str = CHAT, **fields: Any) -> dict[str, Any]:
    return {"custom_id": custom_id, "method": "POST", "url": endpoint, "body": {**BODIES[endpoint], **fields}}


def jsonl(*lines: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(each).encode() + b"\n" for each in lines)


def begin(client: OpenAI, data: bytes, endpoint: str = CHAT, **fields: Any) -> Batch:
    file = client.files.create(file=("in.jsonl", data), purpose="batch")
    asked: dict[str, Any] = {"completion_window": "24h", **fields}
    return client.batches.create(input_file_id=file.id, endpoint=endpoint, **asked)  # type: ignore[arg-type]


def ended(client: OpenAI, batch: Batch) -> Batch:
    found = [batch]

    def is_over() -> bool:
        found[0] = client.batches.retrieve(batch.id)
        return found[0].status in ENDS

    wait_until(is_over)
    return found[0]


def lines_of(client: OpenAI, file_id: str | None) -> dict[str, dict[str, Any]]:
    """By custom id."""
    if file_id is None:
        return {}
    written = [json.loads(each) for each in client.files.content(file_id).text.splitlines()]
    found = {each["custom_id"]: each for each in written}
    assert len(found) == len(written), "a line came twice"
    return found
