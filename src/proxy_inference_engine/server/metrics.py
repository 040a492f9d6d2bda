"""Prometheus metrics of one app, in its own registry. No label takes a value that a client chose."""

from collections.abc import Callable, Iterable
from operator import attrgetter

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from proxy_inference_engine.engine.base import Stats

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_TTFT_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
_GAP_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 1.0, 2.5, 10.0)

# (field of Stats, name, help); counters are those whose own name starts with total_.
_ENGINE_METRICS = (
    ("num_running", "pie_running_sequences", "Sequences being computed."),
    ("num_waiting", "pie_waiting_requests", "Answers that wait for the engine."),
    ("num_slots", "pie_slots", "Sequences that can be computed at the same time."),
    ("num_cached_tokens", "pie_cached_tokens", "Tokens in the prefix cache."),
    ("cached_bytes", "pie_cached_bytes", "Bytes in the prefix cache."),
    ("max_cached_bytes", "pie_cached_bytes_limit", "Bytes the prefix cache may hold."),
    ("disk.num_bytes", "pie_disk_cached_bytes", "Bytes of the prefix cache on disk."),
    ("disk.max_bytes", "pie_disk_cached_bytes_limit", "Bytes the prefix cache may have on disk; 0: it has no disk."),
    ("disk.total_hits", "pie_disk_hits", "Prefixes brought back from disk."),
    ("disk.total_tokens", "pie_disk_tokens", "Tokens of the prefixes brought back from disk."),
    ("disk.total_written_bytes", "pie_disk_written_bytes", "Bytes of prefixes written to disk."),
    ("disk.total_failures", "pie_disk_failures", "Files of prefixes that could not be written or were no good."),
    ("disk.total_skipped", "pie_disk_skipped", "Prefixes not written because the disk was too slow."),
    ("heartbeat_age_s", "pie_heartbeat_age_seconds", "Time since the engine last went round its loop."),
    ("total_prompt_tokens", "pie_prompt_tokens", "Prompt tokens read, once for each choice."),
    ("total_prompt_tokens_cached", "pie_prompt_tokens_cached", "Prompt tokens taken from the prefix cache."),
    ("total_generated_tokens", "pie_generated_tokens", "Tokens generated."),
    ("total_draft_tokens", "pie_draft_tokens", "Tokens guessed ahead and computed."),
    ("total_draft_tokens_accepted", "pie_draft_tokens_accepted", "Tokens guessed ahead that were right."),
    ("total_model_draft_tokens", "pie_model_draft_tokens", "Of them, guessed by the draft model."),
    ("total_model_draft_tokens_accepted", "pie_model_draft_tokens_accepted", "Of these, those that were right."),
    ("num_embedding", "pie_embedding_requests", "Embedding and ranking requests that wait or are being computed."),
    ("total_embedded_tokens", "pie_embedded_tokens", "Tokens computed for embeddings and rankings."),
    ("total_steps", "pie_steps", "Steps of the engine."),
    ("total_step_seconds", "pie_step_seconds", "Time spent in steps."),
    ("total_forward_seconds", "pie_forward_seconds", "Time spent computing the model."),
    ("total_preemptions", "pie_preemptions", "Sequences put back into the queue."),
    ("total_failures", "pie_failures", "Requests that failed inside the engine."),
)


class _EngineCollector(Collector):
    def __init__(self, stats: Callable[[], Stats]) -> None:
        self._stats = stats

    def collect(self) -> Iterable[Metric]:
        stats = self._stats()
        for field, name, text in _ENGINE_METRICS:
            value = attrgetter(field)(stats)
            if field.rpartition(".")[2].startswith("total_"):
                yield CounterMetricFamily(name, text, value=value)
            else:
                yield GaugeMetricFamily(name, text, value=value)


class Metrics:
    def __init__(self, stats: Callable[[], Stats]) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_EngineCollector(stats))
        self._requests = Counter(
            "pie_http_requests", "Requests by route and status.", ("route", "status"), registry=self._registry
        )
        self._ttft = Histogram(
            "pie_time_to_first_token_seconds",
            "From handing a request to the engine to its first text.",
            buckets=_TTFT_BUCKETS,
            registry=self._registry,
        )
        self._gap = Histogram(
            "pie_inter_token_seconds",
            "Time between two steps of a request that brought text.",
            buckets=_GAP_BUCKETS,
            registry=self._registry,
        )
        self.observe_first: Callable[[float], None] = self._ttft.observe
        self.observe_gap: Callable[[float], None] = self._gap.observe

    def count_request(self, route: str, status: int) -> None:
        self._requests.labels(route, str(status)).inc()

    def render(self) -> bytes:
        return generate_latest(self._registry)
