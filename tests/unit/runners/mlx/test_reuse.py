"""Prefixes on MLX through the engine: what is found, that it stays on the device, and that windows and recurrent states
are reused where that is sound.
"""

from collections.abc import Iterator
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.runners.base import Lane
from proxy_inference_engine.runners.mlx.memory.layer_cache import arrays
from proxy_inference_engine.runners.mlx.memory.segment import KvSegment
from proxy_inference_engine.runners.mlx.memory.snapshots import SnapshotSegment
from proxy_inference_engine.runners.mlx.runner import MlxRunner
from proxy_inference_engine.types import Limits, Request, Sampling
from tests.model.answers import Answer, run, run_alone
from tests.tiny.runners import WRITERS, make_runner

CACHE = 64 << 20
SYSTEM = tuple(np.random.default_rng(7).integers(10, 500, 200).tolist())


@pytest.fixture(params=WRITERS)
def runner(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlxRunner]:
    base: Path = tmp_path_factory.getbasetemp()
    runner = make_runner(request.param, base, lanes=[Lane(4, 512)], defers=request.param in ("qwen3", "lfm2"))
    yield runner
    runner.close()


def ask(name: str, *tail: int, num_choices: int = 1) -> Request:
    limits = Limits(5, ignore_eos=True)
    sampling = Sampling(seed=3, temperature=0.8)
    return Request(name, "t", (*SYSTEM, *tail), sampling, limits, num_choices=num_choices)


def hear(engine: StepEngine, runner: MlxRunner, request: Request) -> Answer:
    """What it hears alone, without a cache."""
    answer = run(engine, [request])[request.id]
    assert answer.token_ids == run_alone(runner, request).token_ids
    return answer


def test_the_second_identical_request_computes_one_token(runner: MlxRunner) -> None:
    engine = StepEngine(runner, max_cache_bytes=CACHE)
    cached = [hear(engine, runner, ask(name, *range(30, 60))).num_cached_tokens for name in "abc"]
    assert cached == [0, 229, 229]


def test_prompts_that_begin_the_same_share_what_they_share(runner: MlxRunner) -> None:
    """At once where memory can be cut; else from the third on, for nobody knew before where they part."""
    engine = StepEngine(runner, max_cache_bytes=CACHE)
    tails = [range(first, first + 30) for first in (20, 60, 100, 140)]
    cached = [hear(engine, runner, ask(f"r{place}", *tail)).num_cached_tokens for place, tail in enumerate(tails)]
    assert cached[2:] == [200, 200] and cached[1] == (200 if runner.can_splice else cached[1])


def test_choices_share_their_prompt(runner: MlxRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[int] = []
    forward = runner.forward

    def watched(rows: list[object]) -> object:
        lengths.extend(len(row.ids) for row in rows)  # type: ignore[attr-defined]
        return forward(rows)  # type: ignore[arg-type]

    monkeypatch.setattr(runner, "forward", watched)
    engine = StepEngine(runner, max_cache_bytes=CACHE)
    engine.add(ask("r", 30, 31, 32, num_choices=3))
    while engine.has_work:
        engine.step()
    # The prompt once, but for its last token; five tokens are said, and a device orders one pass too many. Where a slow
    # step leaves less than 16 tokens of the prompt, nobody waits for those.
    assert sum(lengths) <= 202 + 3 * 6 + 2 * 15


def test_what_is_cached_stays_on_the_device(runner: MlxRunner) -> None:
    engine = StepEngine(runner, max_cache_bytes=CACHE)
    run(engine, [ask("a", 30, 31), ask("b", 40, 41)])
    segments = [node.segment for node in engine.cache._recency if node.segment is not None]
    assert segments
    for segment in segments:
        assert isinstance(segment, KvSegment | SnapshotSegment)
        held = segment.arrays if isinstance(segment, KvSegment) else arrays(segment.caches)
        assert held and all(type(array) is mx.array for array in held)
        assert sum(array.nbytes for array in held) == segment.num_bytes
