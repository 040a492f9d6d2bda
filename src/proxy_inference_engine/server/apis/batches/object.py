"""The object of a batch through its life, as functions from one record to the next."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from time import time
from typing import Any, Literal

from proxy_inference_engine.server.apis.batches.schema import BatchRequest, window_seconds
from proxy_inference_engine.store import ObjectKind, Record

BATCH: ObjectKind = "batch"
BatchEnd = Literal["completed", "failed", "cancelled", "expired"]
ENDS: tuple[BatchEnd, ...] = ("completed", "failed", "cancelled", "expired")
_OPEN = "in_progress"  # of a record whose batch is not over, whatever its own status is
_TIMES = (
    *("in_progress_at", "expires_at", "finalizing_at", "completed_at", "failed_at", "expired_at"),
    *("cancelling_at", "cancelled_at"),
)

RecordChange = Callable[[Record], Record]


class BatchCounts:
    """What has become of the lines so far."""

    def __init__(self) -> None:
        self.num_completed = self.num_failed = 0
        self.num_input = self.num_cached = self.num_output = self.num_reasoning = 0

    def add(self, status: int, usage: dict[str, Any]) -> None:
        """`usage` as any of the APIs writes it."""
        if status != 200:
            self.num_failed += 1
            return
        self.num_completed += 1
        inputs = usage.get("input_tokens_details") or usage.get("prompt_tokens_details") or {}
        outputs = usage.get("output_tokens_details") or usage.get("completion_tokens_details") or {}
        self.num_input += usage.get("input_tokens", usage.get("prompt_tokens", 0))
        self.num_output += usage.get("output_tokens", usage.get("completion_tokens", 0))
        self.num_cached += inputs.get("cached_tokens", 0)
        self.num_reasoning += outputs.get("reasoning_tokens", 0)

    def fields(self, num_lines: int) -> dict[str, Any]:
        return {
            "request_counts": {"total": num_lines, "completed": self.num_completed, "failed": self.num_failed},
            "usage": {
                "input_tokens": self.num_input,
                "input_tokens_details": {"cached_tokens": self.num_cached},
                "output_tokens": self.num_output,
                "output_tokens_details": {"reasoning_tokens": self.num_reasoning},
                "total_tokens": self.num_input + self.num_output,
            },
        }


def new_batch(owner: str, id_: str, request: BatchRequest) -> Record:
    created_at = int(time())
    body: dict[str, Any] = {
        "id": id_,
        "object": "batch",
        "endpoint": request.endpoint,
        "errors": None,
        "input_file_id": request.input_file_id,
        "completion_window": request.completion_window,
        "status": "validating",
        "output_file_id": None,
        "error_file_id": None,
        "created_at": created_at,
        **dict.fromkeys(_TIMES),
        "expires_at": created_at + window_seconds(request.completion_window),
        "metadata": request.metadata,
        "model": None,
        **BatchCounts().fields(0),
    }
    after = request.output_expires_after
    extra = {"expires_after_s": None if after is None else after.seconds, "output": None, "errors": None}
    return Record(BATCH, id_, owner, created_at, body, extra, status=_OPEN)


def begun(num_lines: int) -> RecordChange:
    """All lines are good: they are being answered."""

    def change(record: Record) -> Record:
        counts = {**record.body["request_counts"], "total": num_lines}
        return _at(record, "in_progress", request_counts=counts)

    return change


def refused(problems: Sequence[dict[str, Any]]) -> RecordChange:
    """Nothing was answered, for this is wrong with the input."""
    return lambda record: ended("failed", errors={"object": "list", "data": list(problems)})(record)


def counted(counts: BatchCounts) -> RecordChange:
    def change(record: Record) -> Record:
        return replace(record, body={**record.body, **counts.fields(record.body["request_counts"]["total"])})

    return change


def cancelling(record: Record) -> Record:
    return record if is_over(record) or record.body["status"] == "cancelling" else _at(record, "cancelling")


def finalizing(output_id: str, errors_id: str) -> RecordChange:
    """The change with which the files of results get their names, which they keep whatever happens."""

    def change(record: Record) -> Record:
        named = replace(record, extra={**record.extra, "output": output_id, "errors": errors_id})
        return named if record.body["status"] == "cancelling" else _at(named, "finalizing")

    return change


def ended(end: BatchEnd, **fields: Any) -> RecordChange:
    return lambda record: replace(_at(record, end, **fields), status="completed")


def is_over(record: Record) -> bool:
    return record.body["status"] in ENDS


def _at(record: Record, status: str, **fields: Any) -> Record:
    return replace(record, body={**record.body, "status": status, f"{status}_at": int(time()), **fields})
