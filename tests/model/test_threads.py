"""However many threads compute, the bits are the same: so their number may follow what the cores have free."""

from pathlib import Path

import numpy as np
import pytest

from proxy_inference_engine.runners.base import Lane, Row
from proxy_inference_engine.runners.llama_cpp.library import Library
from proxy_inference_engine.runners.llama_cpp.model import Model
from proxy_inference_engine.runners.llama_cpp.runner import LlamaRunner, Settings

LENGTHS = (70, 9, 33, 1)


@pytest.mark.parametrize("is_exact", [False, True])
def test_the_bits_do_not_depend_on_the_threads(weights: Path, library: Library, is_exact: bool) -> None:
    settings = Settings("m", (Lane(4, 256),), threads=2, are_threads_fixed=True, is_exact=is_exact)
    runner = LlamaRunner(Model(weights, library=library), settings)
    try:
        one, two, again = (_logits(runner, num_threads) for num_threads in (1, 2, 1))
        assert np.array_equal(one, two) and np.array_equal(one, again)
    finally:
        runner.close()


def _logits(runner: LlamaRunner, num_threads: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """Of prompts, one after another, and then of a few tokens of all of them together."""
    runner._crew.num_threads = num_threads
    draw = np.random.default_rng(0)
    found = []
    for slot, length in enumerate(LENGTHS):
        runner.release(slot)
        found += [logits.copy() for logits in runner.forward([Row(slot, 0, _ids(draw, length), 1)])]
    for step in range(2):
        rows = [Row(slot, length + step, _ids(draw, 1), 1) for slot, length in enumerate(LENGTHS)]
        found += [logits.copy() for logits in runner.forward(rows)]
    return np.concatenate(found)


def _ids(draw: np.random.Generator, count: int) -> "np.ndarray[tuple[int, ...], np.dtype[np.int32]]":
    return draw.integers(10, 40_000, count).astype(np.int32)
