"""`python -m benchmarks.busy`: how fast the bundled model is while other programs want the cores.

With none, one and two busy loops beside it: one stream, 16 streams, and prompts of 500 tokens. Each twice in the same
minutes: with threads that follow the free cores, and with a fixed number of them, as llama.cpp's own server has.
Nothing else should run.
"""

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from proxy_inference_engine.config import Config, available_cores
from proxy_inference_engine.models.resolve import resolve
from proxy_inference_engine.runners.base import Lane, Row
from proxy_inference_engine.runners.llama_cpp.model import Model
from proxy_inference_engine.runners.llama_cpp.runner import LlamaRunner, Settings
from proxy_inference_engine.runners.llama_cpp.weights import fastest_weights

_NUM_STREAMS, _PROMPT_TOKENS = 16, 500
_WORK = {"one stream, tok/s": 1, f"{_NUM_STREAMS} streams, tok/s": _NUM_STREAMS, "prompts, tok/s": 0}
_SETTLE_S = 1.0


class Figure(NamedTuple):
    work: str
    num_busy: int
    is_following: bool
    speed: float


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def measure(runner: LlamaRunner, num_streams: int, seconds: float) -> float:
    """Tokens per second; no streams: of prompts."""
    ids = np.arange(100, 100 + _PROMPT_TOKENS, dtype=np.int32)
    num_tokens, began = 0, time.perf_counter()
    lengths = [0] * max(1, num_streams)
    while time.perf_counter() - began < seconds:
        if num_streams == 0:
            runner.release(0)
            runner.forward([Row(0, 0, ids, 1)])
            num_tokens += _PROMPT_TOKENS
            continue
        if lengths[0] >= 512:
            lengths = [0] * num_streams
            for slot in range(num_streams):
                runner.release(slot)
        runner.forward([Row(slot, length, ids[:1], 1) for slot, length in enumerate(lengths)])
        lengths = [length + 1 for length in lengths]
        num_tokens += num_streams
    speed = num_tokens / (time.perf_counter() - began)
    for slot in range(_NUM_STREAMS):
        runner.release(slot)
    return speed


def figures(runner: LlamaRunner, seconds: float, rounds: int) -> Iterator[Figure]:
    crew, num_threads = runner._crew, runner._crew.num_threads
    for _ in range(rounds):
        for num_busy in (0, 1, 2):
            with busy(num_busy):
                for is_following in (True, False):
                    for work, num_streams in _WORK.items():
                        crew.is_fixed, crew.num_threads = not is_following, num_threads
                        measure(runner, num_streams, _SETTLE_S if is_following else 0.1)
                        yield Figure(work, num_busy, is_following, measure(runner, num_streams, seconds))


def table(found: list[Figure]) -> str:
    def speed(work: str, num_busy: int, is_following: bool) -> float:
        return statistics.median(each.speed for each in found if each[:3] == (work, num_busy, is_following))

    lines = ["| | threads | quiet | one busy loop | two |", "|---|---|---|---|---|"]
    for work in _WORK:
        for is_following in (True, False):
            values = [speed(work, num_busy, is_following) for num_busy in (0, 1, 2)]
            cells = [f"{value:,.0f} ({value / values[0]:.2f})" for value in values]
            lines.append(f"| {work} | {'follow' if is_following else 'fixed'} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.busy", description="Speed beside other programs.")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement (default 4)")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    threads = available_cores()
    path = fastest_weights(resolve(None).path, cache_dir=Config().cache_dir, threads=threads, report=print)
    runner = LlamaRunner(Model(path), Settings("busy", (Lane(_NUM_STREAMS, 1024),), threads))
    found = []
    for figure in figures(runner, options.seconds, options.rounds):
        found.append(figure)
        kind = "follow" if figure.is_following else "fixed"
        print(f"{figure.num_busy} busy, {kind}, {figure.work}: {figure.speed:,.0f}")
    runner.close()
    print(f"\n{threads} threads on {os.cpu_count()} processors; median of {options.rounds} rounds\n\n{table(found)}")


if __name__ == "__main__":
    main()
