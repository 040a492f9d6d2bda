"""Histograms of ours say to Prometheus what those of its own library say."""

import random

from prometheus_client import CollectorRegistry, Histogram, generate_latest

from proxy_inference_engine.server.durations import Durations

BOUNDS = (0.001, 0.5, 1.0, 10.0)
OBSERVED = {"a": [0.0005, 0.001, 0.2, 0.5, 0.75, 2.0, 11.0, 500.0], "b": [random.Random(1).random() for _ in range(50)]}


def test_they_are_written_as_the_library_writes_them() -> None:
    ours, its = CollectorRegistry(), CollectorRegistry()
    durations = Durations("waiting_seconds", "How long.", BOUNDS)
    ours.register(durations)
    histogram = Histogram("waiting_seconds", "How long.", ("model",), buckets=BOUNDS, registry=its)
    for model, values in OBSERVED.items():
        observe, child = durations.of(model), histogram.labels(model)
        for value in values:
            observe(value)
            child.observe(value)
    written = generate_latest(its).decode()
    family, _, _ = written.partition("# HELP waiting_seconds_created")  # when it was made, which nobody asks for
    assert generate_latest(ours).decode() == family


def test_a_model_that_was_asked_for_twice_keeps_what_was_observed() -> None:
    durations = Durations("waiting_seconds", "How long.", BOUNDS)
    durations.of("a")(0.2)
    durations.of("a")(20.0)
    durations.of("b")(0.7)
    latency = durations.latency()
    assert (latency.num_observed, latency.sum_s) == (3, 20.9)
    assert latency.buckets == [(0.001, 0), (0.5, 1), (1.0, 2), (10.0, 2)]


def test_nothing_was_observed() -> None:
    latency = Durations("waiting_seconds", "How long.", BOUNDS).latency()
    assert latency.num_observed == 0 and latency.buckets == [(bound, 0) for bound in BOUNDS]
