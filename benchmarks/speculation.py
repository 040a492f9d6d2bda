"""Whether guessing ahead pays: `python -m benchmarks.speculation [--quick] [--exact] [--draft-model FILE]`.

An engine in this process on the bundled model. First what a pass costs by the number of guessed tokens in it;
then answers with drafts of known quality and, where one is given, from a draft model, for one stream and for several.
The ways take turns, so that a slow minute of the machine hits them all.
"""

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.servers.models import Models, find_models
from benchmarks.work.prompts import Prompts
from proxy_inference_engine.config import available_cores
from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.runners.base import Lane, Row
from proxy_inference_engine.runners.llama_cpp.model import Model
from proxy_inference_engine.runners.llama_cpp.runner import LlamaRunner, Settings
from proxy_inference_engine.types import Limits, Request, Sampling, Token

_BATCHES = (1, 4, 16)
_WIDTHS = (0, 1, 2, 4, 8, 16, 32)
_CONTEXT_TOKENS = 256
_COPIED_TOKENS = 128
_MAX_TOKENS = 128
_DRAFT_TOKENS = 8
_OPENINGS = (
    "The old lighthouse keeper had one rule for visitors, and it was",
    "To bake bread without an oven you first need",
    "Nobody in the village remembered who had built the bridge, but",
    "A short history of the bicycle begins with",
)


@dataclass(frozen=True, slots=True)
class Way:
    """One way to compute the same answers."""

    name: str
    wrong_every: int | None = None  # a draft of the answer in which one of so many tokens is wrong
    draft: LlamaRunner | None = None


@dataclass(frozen=True, slots=True)
class Run:
    seconds: float
    num_steps: int
    num_guessed: int
    num_accepted: int
    answers: dict[str, list[int]]


_WAYS = (
    Way("nothing"),
    Way("draft, all right", wrong_every=_MAX_TOKENS + 1),
    Way("draft, 1 in 20 wrong", wrong_every=20),
    Way("draft, 1 in 3 wrong", wrong_every=3),
)


def main() -> None:
    parser = argparse.ArgumentParser(description="Whether guessing ahead pays.")
    parser.add_argument("--quick", action="store_true", help="one round, one stream")
    parser.add_argument("--exact", action="store_true", help="in the mode in which no batch changes a token")
    parser.add_argument("--draft-model", type=Path, help="a GGUF file of the same vocabulary")
    options = parser.parse_args()
    num_rounds, batches = (1, _BATCHES[:1]) if options.quick else (5, _BATCHES)
    threads = available_cores()
    models = find_models(threads, print)
    runner = _load(models.converted, threads, is_exact=options.exact)
    ways: tuple[Way, ...] = _WAYS
    if options.draft_model is not None:
        draft = _load(options.draft_model, threads, is_exact=options.exact)
        ways = (*ways, Way(f"draft model, at most {_DRAFT_TOKENS}", draft=draft))
    _print_passes(runner, num_rounds)
    for kind in ("prose", "copy"):
        for num_streams in batches:
            print(f"\n{kind}, {num_streams} streams")
            _print_ways(runner, _requests(models, kind, num_streams), num_rounds, ways)


def _load(path: Path, threads: int, *, is_exact: bool) -> LlamaRunner:
    lanes = (Lane(max(_BATCHES), 1024),)
    return LlamaRunner(Model(path), Settings(path.stem, lanes, threads, is_exact=is_exact))


def _print_passes(runner: LlamaRunner, num_rounds: int) -> None:
    """A guess of k tokens pays when more of them are right than a pass with k costs in passes with none."""
    ids = np.random.default_rng(0).integers(1000, runner.tokenizer.num_tokens, _CONTEXT_TOKENS, dtype=np.int32)
    runner.forward([Row(0, 0, ids, 1)])
    seconds: dict[int, list[float]] = {width: [] for width in _WIDTHS}
    for _ in range(8 * num_rounds):
        for width in _WIDTHS:
            began = time.perf_counter()
            runner.forward([Row(0, _CONTEXT_TOKENS, ids[: 1 + width], 1 + width)])
            seconds[width].append(time.perf_counter() - began)
            runner.truncate(0, _CONTEXT_TOKENS)
    runner.release(0)
    single = statistics.median(seconds[0])
    print(f"\n{'guessed tokens':<16}{'pass, ms':>10}{'must be right':>15}")
    for width, times in seconds.items():
        cost = statistics.median(times)
        print(f"{width:<16}{1000 * cost:>10.2f}{cost / single - 1:>15.2f}")


def _requests(models: Models, kind: str, num_streams: int) -> list[Request]:
    """`prose` goes on freely, drawn at random; `copy` has a text in its prompt twice, begun a third time, greedy."""
    prompts = Prompts(models.vocabulary.encode)
    requests = []
    for number in range(num_streams):
        text, temperature = _OPENINGS[number % len(_OPENINGS)], 0.8
        if kind == "copy":
            whole = prompts.text(f"speculation {number}", _COPIED_TOKENS)
            text, temperature = f"{whole}.\n\n{whole}.\n\n" + " ".join(whole.split()[:4]), 0.0
        requests.append(
            Request(
                id=f"r{number}",
                tenant="t",
                prompt_ids=tuple(models.vocabulary.encode(text)),
                sampling=Sampling(seed=number, temperature=temperature),
                limits=Limits(_MAX_TOKENS, ignore_eos=True),
            )
        )
    return requests


def _print_ways(runner: LlamaRunner, requests: Sequence[Request], num_rounds: int, ways: Sequence[Way]) -> None:
    answers = _run(runner, requests, ways[0], {}).answers
    runs: dict[Way, list[Run]] = {way: [] for way in ways}
    for _ in range(num_rounds):
        for way in ways:
            runs[way].append(_run(runner, requests, way, answers))
    base = statistics.median(run.seconds for run in runs[ways[0]])
    print(f"{'guesses from':<24}{'tok/s':>9}{'speed':>8}{'steps':>8}{'guessed':>9}{'right':>8}{'same':>8}")
    for way, tries in runs.items():
        seconds, last = statistics.median(run.seconds for run in tries), tries[-1]
        right = last.num_accepted / last.num_guessed if last.num_guessed else 0.0
        same = sum(last.answers[name] == answer for name, answer in answers.items())
        speed = f"{len(requests) * _MAX_TOKENS / seconds:>9.1f}{base / seconds:>7.2f}×"
        counts = f"{last.num_steps:>8}{last.num_guessed:>9}{right:>8.0%}"
        print(f"{way.name:<24}{speed}{counts}{f'{same}/{len(answers)}':>8}")


def _run(runner: LlamaRunner, requests: Sequence[Request], way: Way, answers: dict[str, list[int]]) -> Run:
    """From the first step to the last, prompts included; nothing is cached between runs."""
    engine = StepEngine(runner, max_cache_bytes=0)
    if way.draft is not None:
        engine.draft_with(way.draft, _DRAFT_TOKENS)
    heard: dict[str, list[int]] = {request.id: [] for request in requests}
    for number, request in enumerate(requests):
        engine.add(replace(request, draft_ids=_draft(way, answers, number)))
    began = time.perf_counter()
    while engine.has_work:
        for request_id, _, output in engine.step():
            if isinstance(output, Token):
                heard[request_id].append(output.id)
    stats = engine.stats
    seconds = time.perf_counter() - began
    return Run(seconds, stats.total_steps, stats.total_draft_tokens, stats.total_draft_tokens_accepted, heard)


def _draft(way: Way, answers: dict[str, list[int]], number: int) -> tuple[int, ...]:
    """With one token in three wrong, every two right ones lead the engine to a wrong one: the worst a draft can do."""
    if way.wrong_every is None:
        return ()
    answer = answers[f"r{number}"]
    return tuple(id ^ (place % way.wrong_every == way.wrong_every - 1) for place, id in enumerate(answer))


if __name__ == "__main__":
    main()
