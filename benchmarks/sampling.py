"""Microseconds to choose one token and to compute its log-probability: `python -m benchmarks.sampling`.

One thread, made-up logits: few steep ones over a long tail (a nucleus of 0.9 holds about thirty tokens), broad ones
(more than a thousand, as the bundled model has them at one step in six of a made-up prompt), and flat ones, the worst
case for top_p. Prints the median and the 99th percentile.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from proxy_inference_engine.runners.base import Logits
from proxy_inference_engine.sampling.logprobs import logprob_of
from proxy_inference_engine.sampling.sampler import Sampler
from proxy_inference_engine.types import Sampling

_VOCABULARIES = (49_152, 151_936)
_NUM_ROWS = 16  # different rows in turn, as in a batch: their sum does not fit the nearest caches
_NUM_CALLS = 1500
_NUM_PROMPT_TOKENS = 2000

_BASE = Sampling(seed=1)
_CASES = {
    "greedy": replace(_BASE, temperature=0.0),
    "greedy, all penalties": replace(
        _BASE, temperature=0.0, repetition_penalty=1.1, frequency_penalty=0.2, presence_penalty=0.2
    ),
    "greedy, DRY": replace(_BASE, temperature=0.0, dry_multiplier=0.8),
    "temperature 1": _BASE,
    "temperature 0.2, top_p 0.9": replace(_BASE, temperature=0.2, top_p=0.9),
    "temperature 1, top_p 0.9": replace(_BASE, top_p=0.9),
    "temperature 1, top_k 50": replace(_BASE, top_k=50),
    "temperature 1, min_p 0.05": replace(_BASE, min_p=0.05),
    "top_k 50, top_p 0.95, min_p 0.05, XTC": replace(_BASE, top_k=50, top_p=0.95, min_p=0.05, xtc_probability=0.5),
    "top_p 0.9, logit_bias, all penalties, DRY": replace(
        _BASE,
        top_p=0.9,
        logit_bias={7: -100.0, 9: 5.0},
        repetition_penalty=1.1,
        frequency_penalty=0.2,
        presence_penalty=0.2,
        dry_multiplier=0.8,
    ),
}


@dataclass(frozen=True, slots=True)
class Timing:
    name: str
    p50_us: float
    p99_us: float


def main() -> None:
    argparse.ArgumentParser(
        prog="python -m benchmarks.sampling", description="What choosing a token costs."
    ).parse_args()
    print(f"{'case':<44}" + "".join(f"{num:>12} p50    p99" for num in _VOCABULARIES) + "   (µs)")
    for timings in zip(*(measure(num_tokens) for num_tokens in _VOCABULARIES), strict=True):
        cells = "".join(f"{timing.p50_us:>16.1f} {timing.p99_us:>6.1f}" for timing in timings)
        print(f"{timings[0].name:<44}{cells}")


def measure(num_tokens: int) -> list[Timing]:
    steep = [_steep(num_tokens, row) for row in range(_NUM_ROWS)]
    flat = [np.random.default_rng(row).standard_normal(num_tokens, dtype=np.float32) for row in range(_NUM_ROWS)]
    timings = [_timing(name, _sampling_step(sampling, steep)) for name, sampling in _CASES.items()]
    broad = [_broad(num_tokens, row) for row in range(_NUM_ROWS)]
    timings.append(_timing("broad: top_p 0.9", _sampling_step(replace(_BASE, top_p=0.9), broad)))
    timings.append(_timing("flat: temperature 1", _sampling_step(_BASE, flat)))
    timings.append(_timing("flat: top_p 0.9", _sampling_step(replace(_BASE, top_p=0.9), flat)))
    timings.append(_timing("logprob", lambda call: logprob_of(steep[call % _NUM_ROWS], 5, 0)))
    timings.append(_timing("logprob, top 20", lambda call: logprob_of(steep[call % _NUM_ROWS], 5, 20)))
    return timings


def _steep(num_tokens: int, seed: int) -> Logits:
    """Logits that fall with the logarithm of the rank, as a language model's do, with noise, in random order."""
    random = np.random.default_rng(seed)
    falling = 12 - 1.6 * np.log1p(np.arange(num_tokens)) + random.normal(0, 0.5, num_tokens)
    return random.permutation(falling).astype(np.float32)


def _broad(num_tokens: int, seed: int) -> Logits:
    """Logits that fall so slowly that a nucleus of 0.9 ends where probabilities are below 1e-4."""
    falling = 12 - 1.4 * np.log(np.arange(num_tokens) + 10)
    return np.random.default_rng(seed).permutation(falling).astype(np.float32)


def _sampling_step(sampling: Sampling, rows: Sequence[Logits]) -> Callable[[int], None]:
    num_tokens = rows[0].size
    prompt_ids = np.random.default_rng(0).integers(0, num_tokens, _NUM_PROMPT_TOKENS).tolist()
    sampler = Sampler(sampling, choice=0, prompt_ids=prompt_ids, num_tokens=num_tokens)

    def step(call: int) -> None:
        sampler.accept(sampler.sample(rows[call % len(rows)], _NUM_PROMPT_TOKENS + call))

    return step


def _timing(name: str, step: Callable[[int], object]) -> Timing:
    times_ns = []
    for call in range(_NUM_CALLS):
        start_ns = time.perf_counter_ns()
        step(call)
        times_ns.append(time.perf_counter_ns() - start_ns)
    return Timing(name, float(np.percentile(times_ns, 50)) / 1e3, float(np.percentile(times_ns, 99)) / 1e3)


if __name__ == "__main__":
    main()
