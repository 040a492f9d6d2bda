"""`python -m benchmarks.product`: our product of weights and columns beside ggml's own and the processor's peak.

Thousand million multiplications a second, the best of many tries, both in turn, many products in one graph, as in a
pass of a model; each variant that this processor can
run, or those that are named. The peak is a loop over registers with the variant's own instructions, in as many threads
at once; the two cores of some machines share their arithmetic. Nothing else should run.
"""

import argparse
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from proxy_inference_engine.config import available_cores
from proxy_inference_engine.runners.llama_cpp.library import Library, start
from proxy_inference_engine.runners.llama_cpp.product.build import missing_features
from proxy_inference_engine.runners.llama_cpp.product.hook import Product
from proxy_inference_engine.runners.llama_cpp.product.multiplication import Multiplication

_FORMATS = {8: "Q8_0", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K"}
_SHAPES = ((1536, 576), (576, 1536), (2048, 2048), (8192, 2048))  # rows, width; of models with 135M and 1B parameters
_COLUMNS = (1, 2, 3, 4, 8, 16, 64, 500)
_K_WIDTH = 256
_PEAK_TIMES = 200_000
_MIN_S = 0.3  # of tries for one figure
_MULTIPLICATIONS = 100_000_000  # of one graph, or starting it would be measured too


class Figure(NamedTuple):
    ggml: float
    ours: float


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.product", description="Our product beside ggml's own.")
    parser.add_argument("--threads", type=int, default=available_cores())
    parser.add_argument("--variant", action="append", help="one of those that this processor can run; all unless given")
    arguments = parser.parse_args()
    library = start()
    if library.product is None:
        missing = missing_features()
        parser.error(f"this machine lacks {', '.join(missing)}" if missing else "it is not compiled: `pie optimize`")
    known = library.product.variants
    for variant in arguments.variant or known:
        if variant not in known:
            parser.error(f"no variant {variant!r} here, only {', '.join(known)}")
        library.product.choose(variant)
        _print_table(library, library.product, arguments.threads)


def _print_table(library: Library, product: Product, threads: int) -> None:
    peak = _peak(product, threads)
    print(f"\n{product.variant}: {library.origin} llama.cpp, {threads} threads, peak {peak:.0f} GMAC/s\n")
    print("| format | rows × width | columns | ggml | ours | times | of the peak |\n|---|---|---|---|---|---|---|")
    for number, name in _FORMATS.items():
        for rows, width in _SHAPES:
            if number != 8 and width % _K_WIDTH:
                continue
            for columns in _COLUMNS:
                found = _measure(library, number, (rows, width, columns), threads)
                share = f"{found.ours / found.ggml:.2f} | {100 * found.ours / peak:.0f} %"
                what = f"{name} | {rows} × {width} | {columns}"
                print(f"| {what} | {found.ggml:.0f} | {found.ours:.0f} | {share} |", flush=True)


def _measure(library: Library, number: int, shape: tuple[int, int, int], threads: int) -> Figure:
    rows, width, columns = shape
    assert library.product is not None
    generator = np.random.default_rng(0)
    values, given = (generator.standard_normal((count, width), np.float32) for count in (rows, columns))
    best = [1e9, 1e9]
    times = max(1, _MULTIPLICATIONS // (rows * width * columns))
    with Multiplication(library.binding, number, values, given, times) as multiplication:
        start_s = time.perf_counter()
        while time.perf_counter() - start_s < _MIN_S:
            for is_ours in (False, True):
                library.product.use(is_ours, min_columns=1)
                best[is_ours] = min(best[is_ours], _timed(lambda: multiplication.run(threads)))
    library.product.use(False)
    return Figure(*(times * rows * width * columns / seconds / 1e9 for seconds in best))


def _peak(product: Product, threads: int) -> float:
    times = [_PEAK_TIMES] * threads
    with ThreadPoolExecutor(threads) as pool:  # ctypes lets go of the interpreter
        num_multiplications = sum(pool.map(product.multiply_in_registers, times))
        seconds = min(_timed(lambda: list(pool.map(product.multiply_in_registers, times))) for _ in range(5))
    return num_multiplications / seconds / 1e9


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
