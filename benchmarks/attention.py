"""`python -m benchmarks.attention`: our attention beside ggml's flash attention.

Milliseconds for the heads of one layer of the bundled model (9 over 3, 64 wide) and of a model with 8B parameters (32
over 8, 128 wide), the best of many tries, both in turn. Nothing else should run.
"""

import argparse
import itertools
import time

from proxy_inference_engine.config import available_cores
from proxy_inference_engine.runners.llama_cpp.binding import Binding
from proxy_inference_engine.runners.llama_cpp.library import start
from proxy_inference_engine.runners.llama_cpp.product.attention import AttentionGraph, AttentionShape
from proxy_inference_engine.runners.llama_cpp.product.hook import Product

_HEADS = ((9, 3, 64), (32, 8, 128))
_DEPTHS = (512, 1280, 4096)
_TOKENS = (1, 4, 16, 36, 63, 64, 256)
_MIN_S = 0.3  # of tries for one figure


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attention", description="Our attention beside ggml's.")
    parser.add_argument("--threads", type=int, default=available_cores())
    parser.add_argument("--variant", help="one of those that this processor can run; the best unless given")
    arguments = parser.parse_args()
    library = start()
    if library.product is None:
        parser.error("it is not compiled, or not for this processor: `pie doctor` says more")
    product = library.product
    product.choose(arguments.variant or product.variants[0])
    print(f"{product.variant}, {arguments.threads} threads\n\n| heads | keys | tokens | ggml, ms | ours, ms | times |")
    print("|---|---|---|---|---|---|")
    for (heads, kv_heads, width), keys, tokens in itertools.product(_HEADS, _DEPTHS, _TOKENS):
        shape = AttentionShape(tokens, keys, heads, kv_heads, width)
        ggml, ours = _best_ms(library.binding, product, shape, arguments.threads)
        figures = f"{ggml:.2f} | {ours:.2f} | {ggml / ours:.1f}"
        print(f"| {heads}/{kv_heads} × {width} | {keys} | {tokens} | {figures} |", flush=True)


def _best_ms(binding: Binding, product: Product, shape: AttentionShape, threads: int) -> list[float]:
    """ggml's and ours."""
    best = [float("inf"), float("inf")]
    with AttentionGraph(binding, shape) as graph:
        until = time.perf_counter() + 2 * _MIN_S
        while time.perf_counter() < until:
            for which in (0, 1):
                product.use(bool(which))
                began = time.perf_counter()
                graph.run(threads)
                best[which] = min(best[which], 1e3 * (time.perf_counter() - began))
    product.use(False)
    return best


if __name__ == "__main__":
    main()
