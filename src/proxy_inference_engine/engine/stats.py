"""The one table of what an engine measures: the fields of Stats, in the order in which /metrics shows them."""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import Any, Literal, NamedTuple


class Metric(NamedTuple):
    """A field of Stats as /metrics shows it."""

    field: str
    name: str
    help: str
    kind: Literal["gauge", "counter"]


def _gauge(name: str, help: str, source: str | None = None) -> Any:
    return _field(name, help, "gauge", source)


def _counter(name: str, help: str, source: str | None = None) -> Any:
    return _field(name, help, "counter", source)


def _field(name: str, help: str, kind: str, source: str | None) -> Any:
    """`source` is a path that starts at one of the parts given to `Stats.read`; None: the engine counts here."""
    return field(default=0, metadata={"name": name, "help": help, "kind": kind, "source": source})


@dataclass(slots=True)
class Stats:
    """A new metric is one more line here and, where it has no source, a line that counts it up.

    An engine has one of these, which only its thread changes; everybody else gets a copy, made by `read`.
    """

    num_running: int = _gauge("pie_running_sequences", "Sequences being computed.", "scheduler.num_running")
    num_waiting: int = _gauge("pie_waiting_requests", "Answers that wait for the engine.", "worker.num_waiting")
    num_slots: int = _gauge(
        "pie_slots", "Sequences that can be computed at the same time.", "scheduler.slots.num_slots"
    )
    num_kv_tokens: int = _gauge("pie_kv_tokens", "Tokens in the slots of running sequences.", "engine.num_kv_tokens")
    max_kv_tokens: int = _gauge("pie_kv_tokens_limit", "Tokens that fit into all slots.", "engine.max_kv_tokens")
    num_cached_tokens: int = _gauge("pie_cached_tokens", "Tokens in the prefix cache.", "cache.num_tokens")
    cached_bytes: int = _gauge("pie_cached_bytes", "Bytes in the prefix cache.", "cache.num_bytes")
    max_cached_bytes: int = _gauge("pie_cached_bytes_limit", "Bytes the prefix cache may hold.", "cache.max_bytes")
    disk_bytes: int = _gauge("pie_disk_cached_bytes", "Bytes of the prefix cache on disk.", "disk.num_bytes")
    max_disk_bytes: int = _gauge(
        "pie_disk_cached_bytes_limit", "Bytes the prefix cache may have on disk; 0: it has no disk.", "disk.max_bytes"
    )
    total_disk_hits: int = _counter("pie_disk_hits", "Prefixes brought back from disk.", "disk.total_hits")
    total_disk_tokens: int = _counter(
        "pie_disk_tokens", "Tokens of the prefixes brought back from disk.", "disk.total_tokens"
    )
    total_disk_written_bytes: int = _counter(
        "pie_disk_written_bytes", "Bytes of prefixes written to disk.", "disk.total_written_bytes"
    )
    total_disk_failures: int = _counter(
        "pie_disk_failures", "Files of prefixes that could not be written or were no good.", "disk.total_failures"
    )
    total_disk_skipped: int = _counter(
        "pie_disk_skipped", "Prefixes not written because the disk was too slow.", "disk.total_skipped"
    )
    heartbeat_age_s: float = _gauge(
        "pie_heartbeat_age_seconds", "Time since the engine last went round its loop.", "worker.heartbeat_age_s"
    )
    total_prompt_tokens: int = _counter("pie_prompt_tokens", "Prompt tokens read, once for each choice.")
    total_prompt_tokens_cached: int = _counter("pie_prompt_tokens_cached", "Prompt tokens taken from the prefix cache.")
    total_generated_tokens: int = _counter("pie_generated_tokens", "Tokens generated.")
    total_draft_tokens: int = _counter("pie_draft_tokens", "Tokens guessed ahead and computed.")
    total_draft_tokens_accepted: int = _counter("pie_draft_tokens_accepted", "Tokens guessed ahead that were right.")
    total_model_draft_tokens: int = _counter("pie_model_draft_tokens", "Of them, guessed by the draft model.")
    total_model_draft_tokens_accepted: int = _counter(
        "pie_model_draft_tokens_accepted", "Of these, those that were right."
    )
    num_embedding: int = _gauge(
        "pie_embedding_requests",
        "Embedding and ranking requests that wait or are being computed.",
        "worker.num_embedding",
    )
    total_embedded_tokens: int = _counter(
        "pie_embedded_tokens", "Tokens computed for embeddings and rankings.", "embeddings.num_tokens"
    )
    total_steps: int = _counter("pie_steps", "Steps of the engine.")
    total_step_seconds: float = _counter("pie_step_seconds", "Time spent in steps.")
    total_forward_seconds: float = _counter("pie_forward_seconds", "Time spent computing the model.")
    total_preemptions: int = _counter(
        "pie_preemptions", "Sequences put back into the queue.", "scheduler.counters.num_preemptions"
    )
    total_failures: int = _counter("pie_failures", "Requests that failed inside the engine.")
    num_far_engines: int = _gauge("pie_far_engines", "Engines elsewhere that compute the model.")
    num_far_engines_up: int = _gauge("pie_far_engines_up", "Those of them that answer.")
    num_far_running: int = _gauge(
        "pie_far_running_requests", "Requests that they say they compute, for all their clients."
    )
    num_far_waiting: int = _gauge("pie_far_waiting_requests", "Requests that they say wait there.")

    def read(self, **parts: object) -> "Stats":
        """A copy, with all that has a source read from there.

        Without a lock: these are single numbers of another thread, good enough for a gauge.
        """
        return replace(self, **{name: attrgetter(path)(parts[part]) for name, part, path in _SOURCES})

    def counters(self) -> "Stats":
        """What is left of it when its engine has gone."""
        return Stats(**{metric.field: getattr(self, metric.field) for metric in METRICS if metric.kind == "counter"})


def total(stats: Iterable[Stats]) -> Stats:
    """The stats of several engines as one: what was counted adds up, and the oldest heartbeat counts."""
    parts = list(stats)
    if len(parts) == 1:
        return parts[0]
    sums = {metric.field: sum(getattr(one, metric.field) for one in parts) for metric in METRICS}
    return Stats(**{**sums, "heartbeat_age_s": max((one.heartbeat_age_s for one in parts), default=0.0)})


METRICS = tuple(
    Metric(each.name, each.metadata["name"], each.metadata["help"], each.metadata["kind"]) for each in fields(Stats)
)
_SOURCES = tuple(
    (each.name, *each.metadata["source"].split(".", 1)) for each in fields(Stats) if each.metadata["source"]
)
