"""What /metrics shows of an engine: the names that dashboards know, each with a number that is read or counted."""

from dataclasses import fields

from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.engine.stats import METRICS, Stats
from proxy_inference_engine.engine.worker import Worker
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.server.http.access import UsageBook
from proxy_inference_engine.server.metrics import Metrics

SHOWN = """\
# HELP pie_running_sequences Sequences being computed.
# TYPE pie_running_sequences gauge
# HELP pie_waiting_requests Answers that wait for the engine.
# TYPE pie_waiting_requests gauge
# HELP pie_slots Sequences that can be computed at the same time.
# TYPE pie_slots gauge
# HELP pie_kv_tokens Tokens in the slots of running sequences.
# TYPE pie_kv_tokens gauge
# HELP pie_kv_tokens_limit Tokens that fit into all slots.
# TYPE pie_kv_tokens_limit gauge
# HELP pie_cached_tokens Tokens in the prefix cache.
# TYPE pie_cached_tokens gauge
# HELP pie_cached_bytes Bytes in the prefix cache.
# TYPE pie_cached_bytes gauge
# HELP pie_cached_bytes_limit Bytes the prefix cache may hold.
# TYPE pie_cached_bytes_limit gauge
# HELP pie_disk_cached_bytes Bytes of the prefix cache on disk.
# TYPE pie_disk_cached_bytes gauge
# HELP pie_disk_cached_bytes_limit Bytes the prefix cache may have on disk; 0: it has no disk.
# TYPE pie_disk_cached_bytes_limit gauge
# HELP pie_disk_hits_total Prefixes brought back from disk.
# TYPE pie_disk_hits_total counter
# HELP pie_disk_tokens_total Tokens of the prefixes brought back from disk.
# TYPE pie_disk_tokens_total counter
# HELP pie_disk_written_bytes_total Bytes of prefixes written to disk.
# TYPE pie_disk_written_bytes_total counter
# HELP pie_disk_failures_total Files of prefixes that could not be written or were no good.
# TYPE pie_disk_failures_total counter
# HELP pie_disk_skipped_total Prefixes not written because the disk was too slow.
# TYPE pie_disk_skipped_total counter
# HELP pie_heartbeat_age_seconds Time since the engine last went round its loop.
# TYPE pie_heartbeat_age_seconds gauge
# HELP pie_prompt_tokens_total Prompt tokens read, once for each choice.
# TYPE pie_prompt_tokens_total counter
# HELP pie_prompt_tokens_cached_total Prompt tokens taken from the prefix cache.
# TYPE pie_prompt_tokens_cached_total counter
# HELP pie_generated_tokens_total Tokens generated.
# TYPE pie_generated_tokens_total counter
# HELP pie_draft_tokens_total Tokens guessed ahead and computed.
# TYPE pie_draft_tokens_total counter
# HELP pie_draft_tokens_accepted_total Tokens guessed ahead that were right.
# TYPE pie_draft_tokens_accepted_total counter
# HELP pie_model_draft_tokens_total Of them, guessed by the draft model.
# TYPE pie_model_draft_tokens_total counter
# HELP pie_model_draft_tokens_accepted_total Of these, those that were right.
# TYPE pie_model_draft_tokens_accepted_total counter
# HELP pie_embedding_requests Embedding and ranking requests that wait or are being computed.
# TYPE pie_embedding_requests gauge
# HELP pie_embedded_tokens_total Tokens computed for embeddings and rankings.
# TYPE pie_embedded_tokens_total counter
# HELP pie_steps_total Steps of the engine.
# TYPE pie_steps_total counter
# HELP pie_step_seconds_total Time spent in steps.
# TYPE pie_step_seconds_total counter
# HELP pie_forward_seconds_total Time spent computing the model.
# TYPE pie_forward_seconds_total counter
# HELP pie_preemptions_total Sequences put back into the queue.
# TYPE pie_preemptions_total counter
# HELP pie_failures_total Requests that failed inside the engine.
# TYPE pie_failures_total counter
# HELP pie_far_engines Engines elsewhere that compute the model.
# TYPE pie_far_engines gauge
# HELP pie_far_engines_up Those of them that answer.
# TYPE pie_far_engines_up gauge
# HELP pie_far_running_requests Requests that they say they compute, for all their clients.
# TYPE pie_far_running_requests gauge
# HELP pie_far_waiting_requests Requests that they say wait there.
# TYPE pie_far_waiting_requests gauge
"""


def _rendered(stats: Stats) -> list[str]:
    text = Metrics(lambda: {"m": stats}, UsageBook()).render().decode()
    return text.partition("# HELP pie_log_lines_dropped")[0].splitlines()


def test_names_kinds_helps_and_their_order_stay() -> None:
    assert [line for line in _rendered(Stats()) if line.startswith("#")] == SHOWN.splitlines()


def test_each_field_is_shown_under_its_own_name() -> None:
    numbers = {each.name: number for number, each in enumerate(fields(Stats), 1)}
    lines = [line.partition(" ") for line in _rendered(Stats(**numbers)) if not line.startswith("#")]
    shown = {name.removesuffix('{model="m"}'): number for name, _, number in lines}
    assert len(shown) == len(METRICS) == len(numbers)
    for metric in METRICS:
        ending = "_total" if metric.kind == "counter" else ""
        assert float(shown[metric.name + ending]) == numbers[metric.field]


def test_what_has_a_source_is_read_there_and_the_rest_is_what_the_engine_counted() -> None:
    engine = StepEngine(FakeRunner(), max_cache_bytes=1 << 20)
    engine.stats.total_steps = 3
    engine.scheduler.counters.num_preemptions = 5
    stats = Worker(engine).stats()
    assert stats is not engine.stats
    assert (stats.total_steps, stats.total_preemptions) == (3, 5)
    assert (stats.num_slots, stats.max_cached_bytes, stats.max_disk_bytes) == (17, 1 << 20, 0)
    assert (engine.stats.num_slots, engine.stats.total_preemptions) == (0, 0), "the engine's own is left alone"
