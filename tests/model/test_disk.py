"""The disk tier on real weights: what comes back from disk computes what it did before, in exact mode to the bit."""

from pathlib import Path

import pytest

from proxy_inference_engine.cache.disk.drive import ThreadedDrive
from proxy_inference_engine.cache.disk.folder import Folder
from proxy_inference_engine.cache.disk.tier import DiskRoom, DiskTier
from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.runners.llama_cpp.runner import LlamaRunner
from proxy_inference_engine.types import Limits, Request, Sampling
from tests.model.answers import LONG, Answer, run
from tests.model.conftest import make_runner
from tests.polling import wait_until

pytestmark = pytest.mark.model

_MEMORY, _DISK = 200 << 20, 1 << 30


def make_request(runner: LlamaRunner, end: str) -> Request:
    ids = tuple(runner.tokenizer.encode(LONG * 5 + end))
    assert 400 < len(ids) < 1000
    return Request(
        id=end,
        tenant="test",
        prompt_ids=ids,
        sampling=Sampling(seed=3, temperature=0.8),
        limits=Limits(24, ignore_eos=True),
        num_top_logprobs=1,
    )


def live(runner: LlamaRunner, folder: Path, requests: list[Request]) -> dict[str, Answer]:
    """One process's life: an empty memory over what lies on disk."""
    engine = StepEngine(runner, max_cache_bytes=_MEMORY)
    drive = ThreadedDrive(Folder(folder))
    engine.scheduler.disk = tier = DiskTier(engine.cache, runner, drive, DiskRoom(_DISK))
    wait_until(drive._outcomes.qsize)  # it has looked what lies there
    answers = run(engine, requests)
    tier.check()
    tier.close()
    engine.cache.on_evict = None
    engine.cache.clear()
    assert tier.stats.total_failures == 0
    return answers


def test_a_restart_changes_no_bit(exact_runner: LlamaRunner, tmp_path: Path) -> None:
    """Also of a prompt that only begins the same, whose KV is then a chain of two files."""
    first, second = make_request(exact_runner, "The clock"), make_request(exact_runner, "In May " * 150)
    cold = run(StepEngine(exact_runner, max_cache_bytes=0), [first]) | run(
        StepEngine(exact_runner, max_cache_bytes=0), [second]
    )
    live(exact_runner, tmp_path, [first])
    live(exact_runner, tmp_path, [second])
    assert len(list(tmp_path.glob("*.kv"))) == 2
    again = live(exact_runner, tmp_path, [second, first])
    for request in (first, second):
        assert again[request.id].num_cached_tokens == len(request.prompt_ids) - 1
        assert again[request.id].token_ids == cold[request.id].token_ids
        assert again[request.id].logprobs == cold[request.id].logprobs


def test_kv_of_another_mode_is_not_taken(exact_runner: LlamaRunner, runner: LlamaRunner, tmp_path: Path) -> None:
    request = make_request(runner, "The clock")
    live(runner, tmp_path, [request])
    assert live(exact_runner, tmp_path, [request])[request.id].num_cached_tokens == 0
    assert live(runner, tmp_path, [request])[request.id].num_cached_tokens == len(request.prompt_ids) - 1


def test_whole_states_come_back_too(weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a model with a sliding window, whose KV is not cut. Exact: a busy machine cuts a prompt elsewhere."""
    monkeypatch.setattr(LlamaRunner, "_probe", lambda self: None)
    runner = make_runner(weights, is_exact=True)
    assert not runner.can_splice
    request = make_request(runner, "The clock")
    first = live(runner, tmp_path, [request])[request.id]
    again = live(runner, tmp_path, [request])[request.id]
    assert (first.num_cached_tokens, again.num_cached_tokens) == (0, len(request.prompt_ids) - 1)
    assert again.token_ids == first.token_ids
    runner.close()
