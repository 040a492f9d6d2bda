"""What is measured: the names of the figures, and how many measurements become one."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Samples = dict[str, list[float]]  # figure → one value a repetition


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table."""

    key: str
    title: str
    unit: Literal["tok/s", "ms", "MB", "s", "%"]
    is_more_better: bool = False

    @property
    def scale(self) -> float:
        """From the stored value (seconds, bytes, shares) to the unit."""
        return {"tok/s": 1.0, "ms": 1e3, "MB": 1e-6, "s": 1.0, "%": 1e2}[self.unit]

    def format(self, value: float) -> str:
        scaled = value * self.scale
        return f"{scaled:,.0f}" if abs(scaled) >= 100 else f"{scaled:.1f}"


FIGURES = (
    Figure("decode", "one stream: decode", "tok/s", is_more_better=True),
    Figure("decode_gap_p50", "one stream: between tokens p50", "ms"),
    Figure("decode_gap_p99", "one stream: between tokens p99", "ms"),
    Figure("cold_ttft", "one stream: first token, cold 500-token prompt", "ms"),
    Figure("wide", "16 streams: all together", "tok/s", is_more_better=True),
    Figure("wide_ttft_p50", "16 streams: first token p50", "ms"),
    Figure("wide_ttft_p99", "16 streams: first token p99", "ms"),
    Figure("wide_gap_p50", "16 streams: between tokens p50", "ms"),
    Figure("wide_gap_p99", "16 streams: between tokens p99", "ms"),
    Figure("chat_ttft_p50", "8 conversations at once: first token p50", "ms"),
    Figure("chat_ttft_p99", "8 conversations at once: first token p99", "ms"),
    Figure("chat_ttft_mean", "8 conversations at once: first token, mean", "ms"),
    Figure("turns_ttft_p50", "8 conversations in turn: first token p50", "ms"),
    Figure("turns_ttft_p99", "8 conversations in turn: first token p99", "ms"),
    Figure("turns_ttft_mean", "8 conversations in turn: first token, mean", "ms"),
    Figure("resident", "resident memory after the runs", "MB"),
    Figure("start", "from the command to the first answer", "s"),
)


def percentile(values: Sequence[float], share: float) -> float:
    """Linear between the neighbours, as numpy's default."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def median(rounds: Sequence[Samples], key: str) -> float | None:
    """Over every repetition of every round; None when nothing was measured."""
    values = [value for samples in rounds for value in samples.get(key, ())]
    return statistics.median(values) if values else None


def round_medians(rounds: Sequence[Samples], key: str) -> list[float]:
    return [statistics.median(samples[key]) for samples in rounds if samples.get(key)]
