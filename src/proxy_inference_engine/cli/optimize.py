"""`pie optimize`: our product and llama.cpp compiled for this processor, then measured beside the prebuilt one."""

import importlib
import sys
from datetime import date
from pathlib import Path

from proxy_inference_engine.cli.build import check_tools, compile_library
from proxy_inference_engine.config import Config, available_cores
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models.resolve import resolve
from proxy_inference_engine.runners.llama_cpp.library import Candidate, Origin, candidates, load
from proxy_inference_engine.runners.llama_cpp.product import build as product
from proxy_inference_engine.runners.llama_cpp.speed import Comparison, measure
from proxy_inference_engine.runners.llama_cpp.weights import fastest_weights

_LOG = "optimize.log"
_ROWS = {"prompt": "a prompt of 500 tokens", "stream": "one stream", "streams": "16 streams together"}


def optimize(config: Config) -> int:
    """Raises StartupError. The next start uses what was compiled."""
    check_tools()
    product.main()
    compile_library(Path(sys.prefix) / _LOG)
    importlib.invalidate_caches()
    native, prebuilt = _find("native"), _find("prebuilt")
    if native is None:
        raise StartupError("llama.cpp was compiled, but its library is not where it should be")
    try:
        load(native)
    except (OSError, ValueError) as error:
        raise StartupError(f"llama.cpp was compiled, but cannot be used: {error}") from None
    if prebuilt is not None:
        _compare(config, prebuilt, native)
    print("The compiled llama.cpp is used from the next start on.")
    return 0


def _find(origin: Origin) -> Candidate | None:
    return next((each for each in candidates() if each.origin == origin), None)


def _compare(config: Config, prebuilt: Candidate, native: Candidate) -> None:
    """Measure both. A line says so where there is no model to measure with, or one of the two fails."""
    print("Measuring it, about half a minute: leave the machine alone.", flush=True)
    threads = config.threads or available_cores()
    try:
        path = resolve(config.model, config.cache_dir).path
        weights = fastest_weights(path, cache_dir=config.cache_dir, threads=threads, report=print)
        today = date.today().isoformat()
        comparison = Comparison(measure(prebuilt, weights, threads), measure(native, weights, threads), today)
        comparison.write(native.path)
    except (StartupError, OSError, ValueError) as error:
        print(f"It could not be measured: {error}")
        return
    print(table(comparison))


def table(comparison: Comparison) -> str:
    """Tokens a second of both."""
    lines = [f"{'tokens a second':<26}{'prebuilt':>10}{'compiled':>10}"]
    ratios = comparison.ratios()
    for name, title in _ROWS.items():
        prebuilt, native, ratio = (getattr(each, name) for each in (comparison.prebuilt, comparison.native, ratios))
        lines.append(f"{title:<26}{prebuilt:>10.0f}{native:>10.0f}  {ratio:.2f} times")
    return "\n".join(lines)
