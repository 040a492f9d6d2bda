"""What a run of `python -m benchmarks.structured` found, and what was promised of it."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

from benchmarks.report.results import Run, ServerResult
from benchmarks.report.samples import median, round_medians
from benchmarks.report.targets import OURS, Verdict
from benchmarks.structured.masks import Costs
from benchmarks.structured.objects import Tally
from benchmarks.structured.shares import Share

PEER_KEYS = ("llama-server", "llama-server-q8")  # on the given file, and on the one our server converts it to
SERVERS = (OURS, *PEER_KEYS)
_OBJECT_FACTOR = 2.5
_TOGETHER_FACTOR = 2.0
_CALL_FACTOR = 1.1  # of an object's time for a token
_COMPILE_P50_MS = 3.0
_MASK_P50_US = 100.0
_MASK_P99_US = 2000.0
_SHARE = 0.03


@dataclass(slots=True)
class StructuredRun:
    run: Run  # machine, commit, servers and their samples
    tallies: dict[str, Tally] = field(default_factory=dict)  # of each server
    costs: list[Costs] = field(default_factory=list)
    shares: list[Share] = field(default_factory=list)

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")


class Ratio(NamedTuple):
    """A ratio of medians over all rounds, and the lowest and the highest of one round."""

    value: float
    lowest: float
    highest: float

    def __str__(self) -> str:
        return f"{self.value:.2f}× ({self.lowest:.2f}–{self.highest:.2f})"


def ratio(over: ServerResult | None, over_key: str, under: ServerResult | None, under_key: str) -> Ratio | None:
    """One figure of a server over a figure of another, or of the same."""
    if over is None or under is None:
        return None
    top, bottom = median(over.rounds, over_key), median(under.rounds, under_key)
    if not top or not bottom:
        return None
    pairs = zip(round_medians(over.rounds, over_key), round_medians(under.rounds, under_key), strict=False)
    rounds = [a / b for a, b in pairs]
    return Ratio(top / bottom, min(rounds), max(rounds))


def verdicts(done: StructuredRun) -> list[Verdict]:
    return [*_speeds(done.run), _calls(done.run), *_costs(done.costs), *_shares(done.shares)]


def _speeds(run: Run) -> Iterator[Verdict]:
    ours = run.server(OURS)
    for key in PEER_KEYS:
        peer = run.server(key)
        against = peer.title if peer else key
        found = ratio(peer, "object", ours, "object")
        yield _at_least("one object, end to end", against, _OBJECT_FACTOR, found)
        found = ratio(ours, "together_objects_per_s", peer, "together_objects_per_s")
        yield _at_least("8 structured streams at once", against, _TOGETHER_FACTOR, found)
        yield _at_least("a tool call, end to end", against, _OBJECT_FACTOR, ratio(peer, "call", ours, "call"))


def _at_least(title: str, against: str, wanted: float, found: Ratio | None) -> Verdict:
    got = "not measured" if found is None else str(found)
    is_reached = None if found is None else round(found.value, 2) >= wanted
    return Verdict(title, against, f"{wanted:g}× faster", got, is_reached)


def _calls(run: Run) -> Verdict:
    ours = run.server(OURS)
    found = ratio(ours, "call_token", ours, "object_token")
    return Verdict(
        "a token of a tool call",
        "one of an object of the same schema",
        f"at most {_CALL_FACTOR:g}× its time",
        "not measured" if found is None else str(found),
        None if found is None else round(found.value, 2) <= _CALL_FACTOR,
    )


def _costs(costs: list[Costs]) -> Iterator[Verdict]:
    if not costs:
        yield Verdict("compile and mask times", "itself", "", "not measured", None)
    for each in costs:
        against = f"{each.num_schemas} schemas, {each.name}"
        yield _below("compile p50", against, _COMPILE_P50_MS, each.compile_p50_ms, "ms")
        yield _below("mask p50", against, _MASK_P50_US, each.mask_p50_us, "µs")
        yield _below("mask p99", against, _MASK_P99_US, each.mask_p99_us, "µs")


def _below(title: str, against: str, most: float, got: float, unit: str) -> Verdict:
    return Verdict(title, against, f"under {most:g} {unit}", f"{got:.3g} {unit}", got < most)


def _shares(shares: list[Share]) -> Iterator[Verdict]:
    title = "the mask's share of a step"
    if not shares:
        yield Verdict(title, "itself", f"at most {_SHARE:.0%}", "not measured", None)
    for each in shares:
        against = f"batch {each.num_streams}, temperature 1"
        yield Verdict(title, against, f"at most {_SHARE:.0%}", f"{each.share:.2%}", each.share <= _SHARE)
