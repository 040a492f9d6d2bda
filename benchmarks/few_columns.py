"""`python -m benchmarks.few_columns`: from how many columns on our product should be used.

Steps of one, two, three and four streams of the bundled model, with the product from one, two and four columns on, and
without it, in turn: whatever else the machine does is in all of them. Milliseconds a step, the median, by the clock and
of the processor; on a quiet machine both say the same.
"""

import argparse
import statistics
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from proxy_inference_engine.config import Config, available_cores
from proxy_inference_engine.models.resolve import resolve
from proxy_inference_engine.runners.base import Lane, Row
from proxy_inference_engine.runners.llama_cpp.library import start
from proxy_inference_engine.runners.llama_cpp.model import Model
from proxy_inference_engine.runners.llama_cpp.product.hook import Product
from proxy_inference_engine.runners.llama_cpp.runner import LlamaRunner, Settings
from proxy_inference_engine.runners.llama_cpp.weights import fastest_weights

_STREAMS = (1, 2, 3, 4)
_NEVER = 1 << 40
_FIRST_COLUMNS = {"never": _NEVER, "4": 4, "2": 2, "1": 1}  # from how many on
_STEPS = 8  # of a try
_PROMPT_TOKENS, _SLOT_TOKENS = 64, 1024


class Try(NamedTuple):
    """Milliseconds a step."""

    clock: float
    processor: float


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.few_columns", description="Steps of few streams.")
    parser.add_argument("--threads", type=int, default=available_cores())
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--variant", help="of the product; the best unless given")
    parser.add_argument("--weights", type=Path, help="a GGUF file; the bundled model unless given")
    arguments = parser.parse_args()
    library = start()
    if library.product is None:
        parser.error("there is no product here: `pie doctor`")
    if arguments.variant is not None:
        library.product.choose(arguments.variant)
    weights = arguments.weights or _bundled(arguments.threads)
    settings = Settings(name="model", lanes=(Lane(max(_STREAMS), _SLOT_TOKENS),), threads=arguments.threads)
    runner = LlamaRunner(Model(weights, library=library), settings)
    print(f"{library.product.variant}, {library.origin} llama.cpp, {arguments.threads} threads, {weights.name}\n")
    print(f"| streams | {' | '.join(_FIRST_COLUMNS)} |\n|---|{'---|' * len(_FIRST_COLUMNS)}")
    for num_streams in _STREAMS:
        found = _measure(runner, library.product, num_streams, arguments.rounds)
        cells = (f"{each.clock:.1f} ({each.processor:.1f})" for each in found.values())
        print(f"| {num_streams} | {' | '.join(cells)} |", flush=True)
    runner.close()


def _bundled(threads: int) -> Path:
    config = Config()
    path = resolve(config.model, config.cache_dir).path
    return fastest_weights(path, cache_dir=config.cache_dir, threads=threads, report=print)


def _measure(runner: LlamaRunner, product: Product, num_streams: int, num_rounds: int) -> dict[str, Try]:
    tries: dict[str, list[Try]] = {name: [] for name in _FIRST_COLUMNS}
    total = runner.tokenizer.num_tokens
    ids = np.random.default_rng(0).integers(total // 4, total // 2, _PROMPT_TOKENS, dtype=np.int32)
    for _ in range(num_rounds):
        for name, first in _FIRST_COLUMNS.items():
            tries[name].append(_try(runner, product, first, ids, num_streams))
    return {name: Try(*map(statistics.median, zip(*found, strict=True))) for name, found in tries.items()}


def _try(runner: LlamaRunner, product: Product, first: int, ids: NDArray[np.int32], num_streams: int) -> Try:
    for slot in range(num_streams):
        runner.forward([Row(slot, 0, ids, 1)])
    product.use(False)
    product.use(True, first)  # a pass leaves it as it is
    clock, processor = time.perf_counter(), time.process_time()
    for step in range(_STEPS):
        runner.forward([Row(slot, len(ids) + step, ids[:1], 1) for slot in range(num_streams)])
    clock, processor = time.perf_counter() - clock, time.process_time() - processor
    for slot in range(num_streams):
        runner.release(slot)
    return Try(1e3 * clock / _STEPS, 1e3 * processor / _STEPS)


if __name__ == "__main__":
    main()
