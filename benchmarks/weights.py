"""Tokens per second of our runner with the weights as given and as converted: `python -m benchmarks.weights`.

Justifies the conversion in `runners/llama_cpp/weights.py`. The files take turns, so that a slow minute of the machine
hits both. Engine and server are not involved.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from proxy_inference_engine.config import Config, available_cores
from proxy_inference_engine.models.resolve import resolve
from proxy_inference_engine.runners.base import Lane, Row
from proxy_inference_engine.runners.llama_cpp.model import Model
from proxy_inference_engine.runners.llama_cpp.runner import LlamaRunner, Settings
from proxy_inference_engine.runners.llama_cpp.weights import fastest_weights

_NUM_SLOTS = 16
_PREFILL_TOKENS = 512
_CONTEXT_TOKENS = 64  # what decode rows stand on
_NUM_STEPS = 24
_NUM_ROUNDS = 5
_CASES = {"prefill 512": 0, "decode, 1 row": 1, "decode, 8 rows": 8, "decode, 16 rows": 16}


def main() -> None:
    argparse.ArgumentParser(
        prog="python -m benchmarks.weights", description="Our runner with the weights as given and as converted."
    ).parse_args()
    threads = available_cores()
    file = resolve(None)
    converted = fastest_weights(file.path, cache_dir=Config().cache_dir, threads=threads, report=print)
    if converted == file.path:
        print(f"{file.path.name} is not converted on this machine")
        return
    runners = {"given": _load(file.path, threads), "converted": _load(converted, threads)}
    for name, path in (("given", file.path), ("converted", converted)):
        print(f"{name}: {runners[name].info.description}, {path.stat().st_size / 1e6:.0f} MB")
    print(f"\n{'tok/s':<18}{'given':>12}{'converted':>12}{'ratio':>9}")
    for case, num_rows in _CASES.items():
        speeds: dict[str, list[float]] = {name: [] for name in runners}
        for _ in range(_NUM_ROUNDS):
            for name, runner in runners.items():
                speeds[name].append(_decode(runner, num_rows) if num_rows else _prefill(runner))
        given, best = (statistics.median(speeds[name]) for name in runners)
        print(f"{case:<18}{given:>12.0f}{best:>12.0f}{best / given:>8.2f}×")


def _load(path: Path, threads: int) -> LlamaRunner:
    lanes = (Lane(_NUM_SLOTS, 1024),)
    return LlamaRunner(Model(path), Settings(name=path.stem, lanes=lanes, threads=threads))


def _prefill(runner: LlamaRunner) -> float:
    ids = _ids(runner, _PREFILL_TOKENS)
    seconds = _timed(lambda: runner.forward([Row(0, 0, ids, 1)]))
    runner.release(0)
    return _PREFILL_TOKENS / seconds


def _decode(runner: LlamaRunner, num_rows: int) -> float:
    ids = _ids(runner, _CONTEXT_TOKENS)
    for slot in range(num_rows):
        runner.forward([Row(slot, 0, ids, 1)])

    def steps() -> None:
        for step in range(_NUM_STEPS):
            runner.forward([Row(slot, _CONTEXT_TOKENS + step, ids[:1], 1) for slot in range(num_rows)])

    seconds = _timed(steps)
    for slot in range(num_rows):
        runner.release(slot)
    return num_rows * _NUM_STEPS / seconds


def _ids(runner: LlamaRunner, num_tokens: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.random.default_rng(0).integers(1000, runner.tokenizer.num_tokens, num_tokens, dtype=np.int32)


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
