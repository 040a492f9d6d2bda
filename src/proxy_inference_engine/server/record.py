"""What is noted about one HTTP request while it runs: for the log line, the metrics and the error body. No content."""

from dataclasses import dataclass

from starlette.types import Scope

_KEY = "proxy_inference_engine.record"


@dataclass(slots=True)
class Record:
    request_id: str
    tenant: str = ""
    status: int = 499  # until an answer starts, the client may still leave
    is_body_read: bool = False
    num_prompt_tokens: int | None = None
    num_completion_tokens: int | None = None
    error_code: str | None = None


def attach_record(scope: Scope, record: Record) -> None:
    scope[_KEY] = record


def record_of(scope: Scope) -> Record:
    record = scope[_KEY]
    assert isinstance(record, Record)
    return record
