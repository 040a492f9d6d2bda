"""Prometheus metrics of one app, in its own registry. No label takes a value that a client chose.

What the engine measures is listed in `engine/stats.py`; what belongs to HTTP is added here.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import NamedTuple, Protocol

from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from proxy_inference_engine.engine.stats import METRICS, Stats
from proxy_inference_engine.log import num_dropped
from proxy_inference_engine.served.stream import Counts
from proxy_inference_engine.server.durations import Durations, Latency
from proxy_inference_engine.store import KeyUsage

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_TTFT_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
_GAP_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 1.0, 2.5, 10.0)

StatsByModel = Callable[[], Mapping[str, Stats]]  # under each model's own name, which is the operator's


class _EngineCollector(Collector):
    def __init__(self, stats: StatsByModel) -> None:
        self._stats = stats

    def collect(self) -> Iterable[Metric]:
        by_model = self._stats()
        for metric in METRICS:
            kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            family = kind(metric.name, metric.help, labels=("model",))
            for model, stats in by_model.items():
                family.add_metric((model,), getattr(stats, metric.field))
            yield family


class _LogCollector(Collector):
    def collect(self) -> Iterable[Metric]:
        yield CounterMetricFamily("pie_log_lines_dropped", "Log lines that nobody read in time.", value=num_dropped())


class KeyedUsage(Protocol):
    """Whoever counts what each key uses."""

    @property
    def by_key(self) -> Mapping[str, KeyUsage]: ...

    def observe_end(self, tenant: str, counts: Counts, num_tokens: int) -> None: ...


_USED = {
    "num_requests": ("pie_key_requests", "Requests to a model by key."),
    "num_prompt_tokens": ("pie_key_prompt_tokens", "Tokens of prompts by key."),
    "num_cached_tokens": ("pie_key_cached_tokens", "Those of them that were in the prefix cache."),
    "num_tokens": ("pie_key_completion_tokens", "Tokens of answers by key."),
}


class _UsageCollector(Collector):
    """The names of keys are the operator's: the one label whose values are not ours."""

    def __init__(self, usage: KeyedUsage) -> None:
        self._usage = usage

    def collect(self) -> Iterable[Metric]:
        used = {key: asdict(each) for key, each in list(self._usage.by_key.items())}
        for field, (name, text) in _USED.items():
            family = CounterMetricFamily(name, text, labels=("key",))
            for key, counts in used.items():
                family.add_metric((key,), counts[field])
            yield family


class AnswerMetrics(NamedTuple):
    """An `Observer`."""

    observe_first: Callable[[float], None]
    observe_gap: Callable[[float], None]
    observe_end: Callable[[str, Counts, int], None]


class Metrics:
    def __init__(self, stats: StatsByModel, usage: KeyedUsage) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_EngineCollector(stats))
        self._registry.register(_LogCollector())
        self._registry.register(_UsageCollector(usage))
        self.requests = Counter(
            "pie_http_requests", "Requests by route and status.", ("route", "status"), registry=self._registry
        )
        self._ttft = Durations(
            "pie_time_to_first_token_seconds", "From handing a request to the engine to its first text.", _TTFT_BUCKETS
        )
        self._gap = Durations(
            "pie_inter_token_seconds", "Time between two steps of a request that brought text.", _GAP_BUCKETS
        )
        self._registry.register(self._ttft)
        self._registry.register(self._gap)
        self._usage = usage
        self.models: dict[str, AnswerMetrics] = {}
        for model in stats():
            self.of(model)

    def of(self, model: str) -> "AnswerMetrics":
        """What measures the answers of a model, by its own name."""
        if model not in self.models:
            self.models[model] = AnswerMetrics(self._ttft.of(model), self._gap.of(model), self._usage.observe_end)
        return self.models[model]

    def latencies(self) -> dict[str, Latency]:
        """What the histograms have counted since the start."""
        return {
            "first_token": self._ttft.latency(),
            "inter_token": self._gap.latency(),
        }

    def render(self) -> bytes:
        return generate_latest(self._registry)
