"""Histograms of durations by model, without the locks that prometheus_client takes for threads we do not have."""

from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import NamedTuple

from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from proxy_inference_engine.served.stream import DurationCounts


class Latency(NamedTuple):
    """A histogram: how many were observed, their sum, and for each bound in seconds how many were within it."""

    num_observed: int
    sum_s: float
    buckets: list[tuple[float, int]]


class Durations(Collector):
    """Observed in the event loop only, and read from any thread. `bounds` rise."""

    def __init__(self, name: str, text: str, bounds: tuple[float, ...]) -> None:
        self._name = name
        self._text = text
        self._bounds = bounds
        self._by_model: dict[str, DurationCounts] = {}

    def of(self, model: str) -> Callable[[float], None]:
        """What observes for a model."""
        return self._by_model.setdefault(model, DurationCounts(self._bounds)).observe

    def latency(self) -> Latency:
        """The durations of all models together."""
        observed = list(self._by_model.values())
        within = list(accumulate(map(sum, zip(*(each.counts for each in observed), strict=True))))
        within = within or [0] * (len(self._bounds) + 1)
        buckets = list(zip(self._bounds, within[:-1], strict=True))
        return Latency(within[-1], sum(each.sum_s for each in observed), buckets)

    def collect(self) -> Iterable[Metric]:
        family = HistogramMetricFamily(self._name, self._text, labels=("model",))
        names = [*map(floatToGoString, self._bounds), "+Inf"]
        for model, observed in list(self._by_model.items()):
            within = accumulate(list(observed.counts))
            family.add_metric((model,), list(zip(names, within, strict=True)), observed.sum_s)
        yield family
