"""What was promised, and whether a run kept it. Knows numbers only, not how they were measured."""

import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.report.results import Memory, Run, ServerResult
from benchmarks.report.samples import FIGURES, median, round_medians

OURS = "pie"
SAME_FILE = ("llama-server", "xllamacpp")
CONVERTED = ("llama-server-q8", "xllamacpp-q8")
_MAX_OVERHEAD = 0.05
_SPARE_BYTES = 250_000_000

# figure → how many times better than llama.cpp's server on the same file, and on the file our server converts it to
_FACTORS = {
    "decode": (1.0, 1.0),
    "cold_ttft": (1.5, 1.0),
    "wide": (1.5, 1.15),
    "chat_ttft_p50": (2.0, 1.0),
    "turns_ttft_p50": (2.0, 1.0),
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """One target: what was wanted, what came out."""

    title: str
    against: str
    wanted: str
    got: str
    is_reached: bool | None  # None: not measured


def verdicts(run: Run) -> list[Verdict]:
    return [*_speed(run), *_overhead(run), *_memory(run.memory)]


def times_better(run: Run, key: str, peer: ServerResult) -> tuple[float, list[float]] | None:
    """Our figure against a peer's: the ratio of the medians, and of each round's. Above 1 ours is better."""
    figure = next(figure for figure in FIGURES if figure.key == key)
    ours = run.server(OURS)
    if ours is None:
        return None
    mine, theirs = median(ours.rounds, key), median(peer.rounds, key)
    if not mine or not theirs:
        return None
    pairs = zip(round_medians(ours.rounds, key), round_medians(peer.rounds, key), strict=False)
    if figure.is_more_better:
        return mine / theirs, [a / b for a, b in pairs]
    return theirs / mine, [b / a for a, b in pairs]


def _speed(run: Run) -> Iterator[Verdict]:
    titles = {figure.key: figure.title for figure in FIGURES}
    for index, keys in enumerate((SAME_FILE, CONVERTED)):
        for peer_key in keys:
            peer = run.server(peer_key)
            for key, factors in _FACTORS.items():
                wanted = factors[index]
                ratio = times_better(run, key, peer) if peer else None
                yield Verdict(
                    titles[key],
                    peer.title if peer else peer_key,
                    f"{wanted:g}× better",
                    f"{ratio[0]:.2f}× ({min(ratio[1]):.2f}–{max(ratio[1]):.2f})" if ratio else "not measured",
                    round(ratio[0], 2) >= wanted if ratio else None,
                )


def _overhead(run: Run) -> Iterator[Verdict]:
    for sampling, title in (("greedy", "greedy"), ("sampled", "temperature 1, top_p 0.9")):
        for num_streams in (1, 16):
            found = [o for o in run.overheads if o.sampling == sampling and o.num_streams == num_streams]
            share = statistics.median(o.step_share for o in found) if found else None
            whole = statistics.median(o.loop_share for o in found) if found else 0.0
            yield Verdict(
                f"time of a step outside the forward pass, {title}, batch {num_streams}",
                "itself",
                f"at most {_MAX_OVERHEAD:.0%}",
                "not measured" if share is None else f"{share:.1%} ({whole:.1%} with all between steps)",
                None if share is None else share <= _MAX_OVERHEAD,
            )


def _memory(measured: list[Memory]) -> Iterator[Verdict]:
    title = "resident memory beyond weights + KV + cache budget"
    wanted = f"at most {_SPARE_BYTES / 1e6:.0f} MB"
    if not measured or measured[-1].kv_bytes is None:
        yield Verdict(title, "itself", wanted, "not measured: the server does not say how much KV it has", None)
        return
    most = max(measured, key=lambda memory: memory.resident_bytes)
    assert most.kv_bytes is not None
    base = most.resident_bytes - most.weight_bytes - most.kv_bytes
    rest, strict = base - most.max_cache_bytes, base - most.cache_bytes
    got = f"{rest / 1e6:,.0f} MB ({strict / 1e6:,.0f} MB beyond what the cache really held)"
    yield Verdict(title, "itself", wanted, got, rest <= _SPARE_BYTES)
