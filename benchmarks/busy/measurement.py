"""One runner beside busy loops, its threads now following the free cores and now fixed."""

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np

from benchmarks.busy.results import BUSY, WORK, Figure
from proxy_inference_engine.runners.base import Row
from proxy_inference_engine.runners.llama_cpp.runner import LlamaRunner

_NUM_STREAMS = dict(zip(WORK, (1, 16, 0), strict=True))
_PROMPT_TOKENS, _MOST_TOKENS = 500, 512
_SETTLE_S = 1.0
_BUSY_S, _LOOK_S, _PATIENCE_S = 4.0, 0.2, 10.0
_FULL = 0.95  # of the quiet speed


def figures(runner: LlamaRunner, seconds: float, rounds: int) -> Iterator[Figure]:
    crew, num_threads = runner._crew, runner._crew.num_threads
    for _ in range(rounds):
        for num_busy in BUSY:
            with busy(num_busy):
                for is_following in (True, False):
                    for work in WORK:
                        crew.is_fixed, crew.num_threads = not is_following, num_threads
                        measure(runner, _NUM_STREAMS[work], _SETTLE_S if is_following else 0.1)
                        speed = measure(runner, _NUM_STREAMS[work], seconds)
                        yield Figure(work, num_busy, is_following, round(speed, 1))


def recovery_s(runner: LlamaRunner, work: str, quiet_speed: float) -> float:
    """Seconds from the end of a busy loop until the speed is what it was without, to a fifth of a second."""
    runner._crew.is_fixed = False
    with busy(1):
        measure(runner, _NUM_STREAMS[work], _BUSY_S)
    began = time.perf_counter()
    while measure(runner, _NUM_STREAMS[work], _LOOK_S) < _FULL * quiet_speed:
        if time.perf_counter() - began > _PATIENCE_S:
            break
    return time.perf_counter() - began


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
    num_tokens, length, began = 0, 0, time.perf_counter()
    slots = range(max(1, num_streams))
    while time.perf_counter() - began < seconds:
        if num_streams == 0 or length == _MOST_TOKENS:
            length = 0
            for slot in slots:
                runner.release(slot)
        if num_streams:
            runner.forward([Row(slot, length, ids[:1], 1) for slot in slots])
            num_tokens, length = num_tokens + num_streams, length + 1
        else:
            runner.forward([Row(0, 0, ids, 1)])
            num_tokens += _PROMPT_TOKENS
    speed = num_tokens / (time.perf_counter() - began)
    for slot in slots:
        runner.release(slot)
    return speed
