"""Front ends on one port show each other's metrics: every kind of them, each with the number of its process."""

from collections.abc import Mapping
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from proxy_inference_engine.engine.stats import Stats
from proxy_inference_engine.server.http.access import UsageBook
from proxy_inference_engine.server.metrics import Metrics
from proxy_inference_engine.server.neighbours import Neighbours


def metrics(num_tokens: int, first_s: float) -> bytes:
    def stats() -> Mapping[str, Stats]:
        return {"m": Stats(total_generated_tokens=num_tokens)}

    made = Metrics(stats, UsageBook(None))
    made.of("m").observe_first(first_s)
    made.requests.labels("/v1/models", "200").inc(num_tokens)
    return made.render()


def read(text: bytes) -> dict[tuple[str, str, str], float]:
    return {
        (sample.name, sample.labels["process"], sample.labels.get("le", "")): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_all_are_shown_and_nothing_is_added_up(tmp_path: Path) -> None:
    one, two = (Neighbours(tmp_path, number, spread=lambda: None) for number in (1, 2))
    two.leave(metrics(7, 0.03))
    shown = one.together(metrics(5, 3.0))
    found = read(shown)
    assert [found["pie_generated_tokens_total", number, ""] for number in "12"] == [5, 7]
    assert [found["pie_http_requests_total", number, ""] for number in "12"] == [5, 7]
    assert [found["pie_time_to_first_token_seconds_bucket", number, "0.05"] for number in "12"] == [0, 1]
    assert [found["pie_time_to_first_token_seconds_count", number, ""] for number in "12"] == [1, 1]
    kinds = [line for line in shown.decode().splitlines() if line.startswith("# TYPE")]
    assert len(kinds) == len(set(kinds)), "a kind stands once, however many have it"


def test_what_is_being_written_or_gone_is_left_out(tmp_path: Path) -> None:
    one = Neighbours(tmp_path / "gone", 1, spread=lambda: None)
    one.leave(metrics(5, 1.0))
    (tmp_path / "2.new").write_bytes(b"half")
    here = Neighbours(tmp_path, 1, spread=lambda: None)
    for each in (one, here):
        assert {number for _, number, _ in read(each.together(metrics(5, 1.0)))} == {"1"}
