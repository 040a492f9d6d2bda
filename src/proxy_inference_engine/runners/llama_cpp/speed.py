"""How fast a library computes here, and what was found of two of them: kept beside the compiled one.

`python -m proxy_inference_engine.runners.llama_cpp.speed ORIGIN LIBRARY WEIGHTS THREADS` prints the figures of one. A
process each: threads that one library leaves behind would slow the other down.
"""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np

from proxy_inference_engine.runners.base import Lane, Row
from proxy_inference_engine.runners.llama_cpp.library import Candidate, Origin, load
from proxy_inference_engine.runners.llama_cpp.model import Model
from proxy_inference_engine.runners.llama_cpp.runner import LlamaRunner, Settings

_FILE = "speed.json"
_NUM_STREAMS = 16
_PROMPT_TOKENS = 500
_NUM_STEPS = 24
_NUM_ROUNDS = 3


class Speed(NamedTuple):
    """Tokens a second."""

    prompt: float  # of 500 tokens
    stream: float
    streams: float  # 16 of them together


class Comparison(NamedTuple):
    prebuilt: Speed
    native: Speed
    day: str

    @classmethod
    def read(cls, native: Path) -> "Comparison | None":
        """What was found when this library was compiled; None where nothing was, or nobody can read it."""
        try:
            found = json.loads(native.with_name(_FILE).read_text())
            return cls(Speed(**found["prebuilt"]), Speed(**found["native"]), str(found["day"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, native: Path) -> None:
        """Raises OSError."""
        found = {"prebuilt": self.prebuilt._asdict(), "native": self.native._asdict(), "day": self.day}
        native.with_name(_FILE).write_text(json.dumps(found, indent=1) + "\n")

    def ratios(self) -> Speed:
        """How many times as fast the native one is."""
        return Speed(*(mine / other for mine, other in zip(self.native, self.prebuilt, strict=True)))


def measure(candidate: Candidate, weights: Path, threads: int) -> Speed:
    """Measure a library in a process of its own. Raises ValueError where it cannot be used."""
    words = [candidate.origin, str(candidate.path), str(weights), str(threads)]
    answer = subprocess.run([sys.executable, "-m", __name__, *words], capture_output=True, text=True)
    if answer.returncode != 0:
        raise ValueError((answer.stderr.strip().splitlines() or ["it ended without a word"])[-1])
    return Speed(**json.loads(answer.stdout))


def measure_here(candidate: Candidate, weights: Path, threads: int) -> Speed:
    settings = Settings(name=weights.stem, lanes=(Lane(_NUM_STREAMS, 1024),), threads=threads)
    runner = LlamaRunner(Model(weights, library=load(candidate)), settings)
    try:
        rounds = [Speed(_prompt(runner), _decode(runner, 1), _decode(runner, _NUM_STREAMS)) for _ in range(_NUM_ROUNDS)]
    finally:
        runner.close()
    return Speed(*(statistics.median(column) for column in zip(*rounds, strict=True)))


def _prompt(runner: LlamaRunner) -> float:
    ids = _ids(runner, _PROMPT_TOKENS)
    seconds = _timed(lambda: runner.forward([Row(0, 0, ids, 1)]))
    runner.release(0)
    return _PROMPT_TOKENS / seconds


def _decode(runner: LlamaRunner, num_streams: int) -> float:
    ids = _ids(runner, 64)
    for slot in range(num_streams):
        runner.forward([Row(slot, 0, ids, 1)])

    def steps() -> None:
        for step in range(_NUM_STEPS):
            runner.forward([Row(slot, len(ids) + step, ids[:1], 1) for slot in range(num_streams)])

    seconds = _timed(steps)
    for slot in range(num_streams):
        runner.release(slot)
    return num_streams * _NUM_STEPS / seconds


def _ids(runner: LlamaRunner, num_tokens: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """Any words: the middle of the vocabulary."""
    total = runner.tokenizer.num_tokens
    return np.random.default_rng(0).integers(total // 4, total // 2, num_tokens, dtype=np.int32)


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


if __name__ == "__main__":
    _, origin, path, weights, threads = sys.argv
    found = measure_here(Candidate(cast(Origin, origin), Path(path)), Path(weights), int(threads))
    print(json.dumps(found._asdict()))
