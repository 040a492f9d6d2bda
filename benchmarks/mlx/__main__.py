"""`python -m benchmarks.mlx`: the MLX engine on a GPU, beside the card's own copy bandwidth and a bare mlx-lm loop.

The model has the shape of an 8B Llama and random weights in bf16: speed does not depend on what they say. Everything
of ours goes through the engine: scheduler, cache, choosing; only the server is left out.
"""

import argparse
import importlib
import importlib.util
import json
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten
from mlx_lm.models.cache import make_prompt_cache

from benchmarks.mlx.random_model import Shape, make_model
from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.runners.base import Lane
from proxy_inference_engine.runners.mlx import library
from proxy_inference_engine.runners.mlx.model import MlxModel
from proxy_inference_engine.runners.mlx.runner import MlxRunner, Settings
from proxy_inference_engine.types import Failed, Limits, Prefilled, Request, Sampling, Token

_PROMPT, _BATCH, _BATCH_CONTEXT, _PREFIX = 2048, 64, 128, 4000
_WARM_STEPS = 40
_ANSWER = 800  # tokens: so long that all streams run for as long as it takes
_LIMITS = """\
What limits each figure, as seen on an H200 (kernel times by ncu):

- alone: the bandwidth. Of a step's 4.5 ms the products take 3.9 (2.9 to 4.5 TB/s, the small ones least), attention
  0.35.
- 64 streams: kernels take about 5.6 ms of a step's 6.6, the products 4.2 of them, attention 0.8. The host needs nearly
  as long to launch them: MLX records each product in a graph first.
- prefill: matrix products. One by one the kernels of a prompt take 41 ms, all together 49: a card under full load
  runs slower.
- the engine's own share: Python, about 4.5 µs for every row. On a GPU it runs while the device computes.
- prefix hit: one pass over all weights for the tokens that are new, and its preparation.
"""
_TARGETS = {"alone": 0.78, "batch": 8000.0, "prefill": 38000.0, "share": 0.05, "prefix": 0.1}


@dataclass(slots=True)
class Figures:
    """What was measured; speeds in tokens a second, bandwidths in bytes a second."""

    device: str
    versions: str
    copy_bandwidth: float
    copied_by: str
    alone: float = 0.0
    alone_bandwidth: float = 0.0
    alone_share: float = 0.0  # of the copy bandwidth
    batch: float = 0.0
    prefill: float = 0.0
    own_share: dict[str, float] | None = None  # time of a step outside the runner
    cold_s: float = 0.0  # to the first token of a prompt of _PREFIX tokens
    hit_s: float = 0.0  # the same with all but its last tokens cached
    loop_alone: float = 0.0  # mlx-lm's own loop
    loop_batch: float = 0.0
    loop_prefill: float = 0.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mlx", description=__doc__)
    parser.add_argument("--out", type=Path, help="folder for mlx.json and mlx.md")
    parser.add_argument("--tiny", action="store_true", help="a small model, to see that it runs")
    parser.add_argument("--steps", type=int, default=200, help="steps that count")
    parser.add_argument("--no-loop", action="store_true", help="leave the bare mlx-lm loop out")
    options = parser.parse_args()
    figures = measure(Shape.tiny() if options.tiny else Shape(), options.steps, has_loop=not options.no_loop)
    text = render(figures)
    print(text)
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "mlx.json").write_text(json.dumps(asdict(figures), indent=1) + "\n")
        (options.out / "mlx.md").write_text(text)


def measure(shape: Shape, num_steps: int, *, has_loop: bool) -> Figures:
    bandwidth, copied_by = copy_bandwidth()
    name = str(mx.device_info().get("device_name", platform.machine()))
    figures = Figures(name, library.version(), bandwidth, copied_by)
    loaded = make_model(shape)
    if has_loop:
        _measure_loop(loaded, figures, num_steps)
    bench = Bench(loaded)
    figures.own_share = {}
    figures.prefill = bench.prefill(figures)
    figures.alone = bench.decode(1, _PROMPT, num_steps, figures)
    figures.alone_bandwidth = figures.alone * bench.bytes_per_step(_PROMPT + num_steps // 2)
    figures.alone_share = figures.alone_bandwidth / bandwidth
    figures.batch = bench.decode(_BATCH, _BATCH_CONTEXT, num_steps, figures)
    figures.cold_s, figures.hit_s = bench.prefix()
    return figures


def copy_bandwidth() -> tuple[float, str]:
    """Bytes read and written a second by a plain copy on the device."""
    num_bytes = (1 << 32) if mx.default_device().type == mx.DeviceType.gpu else 1 << 26
    return _copied_by_torch(num_bytes) or _copied_by_mlx(num_bytes)


def _copied_by_mlx(num_bytes: int) -> tuple[float, str]:
    source = mx.zeros((num_bytes // 4,), mx.float32)
    return 2 * num_bytes / _best(lambda: mx.eval(source + 0), 5), "mlx"


def _copied_by_torch(num_bytes: int) -> tuple[float, str] | None:
    """Bandwidth of a copy by torch, which copies faster than MLX; None without torch or a GPU for it."""
    if importlib.util.find_spec("torch") is None:
        return None
    torch: Any = importlib.import_module("torch")
    if not torch.cuda.is_available():
        return None
    source, target = (torch.empty(num_bytes, dtype=torch.uint8, device="cuda") for _ in range(2))

    def copy() -> None:
        target.copy_(source)
        torch.cuda.synchronize()

    return 2 * num_bytes / _best(copy, 10), f"torch {torch.__version__}"


def _best(work: Callable[[], object], count: int) -> float:
    """The shortest of several times, after one that does not count."""
    times = []
    for _ in range(count + 1):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times[1:])


class Bench:
    """Our engine over one model."""

    def __init__(self, loaded: MlxModel) -> None:
        self._loaded = loaded
        weights = dict(tree_flatten(loaded.model.parameters()))
        self._weight_bytes: int = sum(each.nbytes for name, each in weights.items() if "embed_tokens" not in name)
        lanes = (Lane(_BATCH, 1024), Lane(4, 8192))
        self._runner = MlxRunner(loaded, Settings(lanes=lanes, cache_bytes=4 << 30))
        self._engine = StepEngine(self._runner, max_cache_bytes=self._runner.cache_bytes)
        self._random = np.random.default_rng(5)
        self._num_requests = 0

    def bytes_per_step(self, num_tokens: int) -> float:
        """What has to be read for one token: all weights but the embedding's other rows, and the sequence's KV."""
        return self._weight_bytes + num_tokens * self._loaded.info.kv_bytes_per_token

    def prefill(self, figures: Figures) -> float:
        """Prompts one after another, each answered with one token, several waiting: as a busy server has it."""
        for _ in range(4):  # kernels are compiled, and the pace learns what a token costs
            self._run(self._prompt(_PROMPT), 1)
        began = time.perf_counter()
        for _ in range(8):
            self._add(self._prompt(_PROMPT), 1)
        self._finish()
        return 8 * _PROMPT / (time.perf_counter() - began)

    def decode(self, num_streams: int, num_prompt: int, num_steps: int, figures: Figures) -> float:
        """Steps in which all streams decode; what is asked for lasts until then."""
        for _ in range(num_streams):
            self._add(self._prompt(num_prompt), _ANSWER)
        num_started = 0
        while num_started < num_streams:
            num_started += sum(isinstance(each.output, Prefilled) for each in self._step())
        for _ in range(_WARM_STEPS):
            self._step()
        stats = self._engine.stats
        before = (stats.total_step_seconds, stats.total_forward_seconds)
        began, num_tokens = time.perf_counter(), 0
        for _ in range(num_steps):
            num_tokens += sum(isinstance(each.output, Token) for each in self._step())
        seconds = time.perf_counter() - began
        if num_tokens != num_streams * num_steps:
            raise RuntimeError(f"{num_tokens} tokens in {num_steps} steps of {num_streams} streams")
        share = 1 - (stats.total_forward_seconds - before[1]) / (stats.total_step_seconds - before[0])
        assert figures.own_share is not None
        figures.own_share[str(num_streams)] = share
        self._finish()
        return num_tokens / seconds

    def prefix(self) -> tuple[float, float]:
        """Seconds to the first token of a long prompt, computed and then found."""
        ids = self._prompt(_PREFIX)
        self._run(self._prompt(_PREFIX), 1)
        cold = self._run(ids, 1)
        hits = [self._run((*ids[:-8], *self._prompt(8)), 1) for _ in range(4)]
        return cold, min(hits)

    def _prompt(self, num_tokens: int) -> tuple[int, ...]:
        return tuple(self._random.integers(0, self._loaded.vocabulary.num_tokens, num_tokens).tolist())

    def _add(self, prompt_ids: Sequence[int], max_tokens: int) -> None:
        self._num_requests += 1
        sampling, limits = Sampling(seed=1, temperature=0.0), Limits(max_tokens, ignore_eos=True)
        self._engine.add(Request(str(self._num_requests), "", tuple(prompt_ids), sampling, limits))

    def _run(self, prompt_ids: Sequence[int], max_tokens: int) -> float:
        began = time.perf_counter()
        self._add(prompt_ids, max_tokens)
        self._finish()
        return time.perf_counter() - began

    def _finish(self) -> None:
        while self._engine.has_work:
            self._step()

    def _step(self) -> list[Any]:
        delivered = self._engine.step()
        failed = [each.output.error for each in delivered if isinstance(each.output, Failed)]
        if failed:
            raise RuntimeError(f"a request failed: {failed[0]}")
        return delivered


def _measure_loop(loaded: MlxModel, figures: Figures, num_steps: int) -> None:
    """The same work in a loop of mlx-lm's parts: one prompt in one pass, tokens read one step late."""
    model = loaded.model
    ids = mx.random.randint(0, 1000, (1, _PROMPT))

    def prefill() -> None:
        caches = make_prompt_cache(model)
        hidden = model.model(ids, cache=caches)[:, -1:]
        mx.eval(model.lm_head(hidden))

    figures.loop_prefill = _PROMPT / _best(prefill, 5)
    figures.loop_alone = _loop(model, 1, _PROMPT, num_steps)
    figures.loop_batch = _loop(model, _BATCH, _BATCH_CONTEXT, num_steps)
    mx.clear_cache()


def _loop(model: Any, num_rows: int, num_prompt: int, num_steps: int) -> float:
    caches = make_prompt_cache(model)
    mx.eval(model.model(mx.random.randint(0, 1000, (num_rows, num_prompt)), cache=caches))
    ids = mx.zeros((num_rows,), mx.int32)
    began = 0.0
    for step in range(num_steps):
        following = mx.argmax(model(ids[:, None], cache=caches)[:, -1], axis=-1)
        mx.async_eval(following)
        ids.tolist()
        ids = following
        if step == _WARM_STEPS:
            began = time.perf_counter()
    mx.eval(ids)
    return num_rows * (num_steps - _WARM_STEPS - 1) / (time.perf_counter() - began)


def render(figures: Figures) -> str:
    shares = figures.own_share or {}
    rows = [
        ("copy bandwidth", f"{figures.copy_bandwidth / 1e12:.2f} TB/s ({figures.copied_by})", "", ""),
        (
            f"decode alone after {_PROMPT} tokens",
            f"{figures.alone:.0f} tok/s, {figures.alone_share:.0%} of the bandwidth",
            f"{_TARGETS['alone']:.0%}",
            f"{figures.loop_alone:.0f} tok/s",
        ),
        (
            f"{_BATCH} streams, context {_BATCH_CONTEXT}",
            f"{figures.batch:.0f} tok/s",
            f"{_TARGETS['batch']:.0f}",
            f"{figures.loop_batch:.0f} tok/s",
        ),
        (
            f"prefill, prompts of {_PROMPT}",
            f"{figures.prefill:.0f} tok/s",
            f"{_TARGETS['prefill']:.0f}",
            f"{figures.loop_prefill:.0f} tok/s",
        ),
        *(
            (f"the engine's own share of a step, {n} streams", f"{share:.1%}", f"{_TARGETS['share']:.0%}", "")
            for n, share in shares.items()
        ),
        (
            f"prefix hit of {_PREFIX} tokens",
            f"{figures.hit_s * 1e3:.1f} ms against {figures.cold_s * 1e3:.1f} ms, {figures.hit_s / figures.cold_s:.1%}",
            f"{_TARGETS['prefix']:.0%}",
            "",
        ),
    ]
    head = (
        f"{figures.device}, {figures.versions}\n\n| what | measured | wanted | bare mlx-lm loop |\n|---|---|---|---|\n"
    )
    return head + "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n\n" + _LIMITS


if __name__ == "__main__":
    main()
