"""Histograms of durations by model, for what is observed once a token: a search and two additions, without the locks
that prometheus_client takes for threads we do not have."""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import NamedTuple

from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString


class Latency(NamedTuple):
    """A histogram: how many were observed, their sum, and for each bound in seconds how many were within it."""

    num_observed: int
    sum_s: float
    buckets: list[tuple[float, int]]


class _Observed:
    """Of one model. `counts` has those up to each bound that were above the one before, and in the end all longer."""

    __slots__ = ("_bounds", "counts", "sum_s")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum_s = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(self._bounds, seconds)] += 1
        self.sum_s += seconds


class Durations(Collector):
    """Observed in the event loop only, and read from any thread. `bounds` rise."""

    def __init__(self, name: str, text: str, bounds: tuple[float, ...]) -> None:
        self._name = name
        self._text = text
        self._bounds = bounds
        self._by_model: dict[str, _Observed] = {}

    def of(self, model: str) -> Callable[[float], None]:
        """What observes for a model."""
        return self._by_model.setdefault(model, _Observed(self._bounds)).observe

    def latency(self) -> Latency:
        """Of all models together."""
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
