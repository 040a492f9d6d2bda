"""`python -m benchmarks.picture`: the README's picture, our server beside llama.cpp's, from the files in results/."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.report.results import Run, ServerResult
from benchmarks.report.samples import Figure, median, round_medians
from benchmarks.report.svg import Text, page, rectangle

RESULTS = Path(__file__).parent / "results"
PICTURE = RESULTS / "speed.svg"


class Source(NamedTuple):
    """The two files of results that the figures come from."""

    speed: Run
    structured: Run


class Bar(NamedTuple):
    """A server: its key in the results, its colours' class, its name in the legend."""

    key: str
    style: str
    title: str


class Panel(NamedTuple):
    """A figure with a bar for each server; `is_structured` says in which file it is."""

    figure: Figure
    line: str  # what was asked
    is_structured: bool = False


BARS = (
    Bar("pie", "ours", "Proxy Inference Engine"),
    Bar("llama-server", "peer", "llama.cpp's server"),
    Bar("llama-server-q8", "same", "llama.cpp's server on our converted weights"),
)
PANELS = (
    Panel(Figure("decode", "One answer", "tok/s", is_more_better=True), "128 tokens after the first"),
    Panel(Figure("wide", "16 answers at once", "tok/s", is_more_better=True), "128 tokens each, counted together"),
    Panel(Figure("cold_ttft", "First token", "ms"), "of a new prompt of 500 tokens"),
    Panel(Figure("turns_ttft_p50", "First token, one by one", "ms"), "8 conversations, 1,200 tokens shared"),
    Panel(Figure("chat_ttft_p50", "First token, all at once", "ms"), "8 conversations, 1,200 tokens shared"),
    Panel(Figure("object", "One JSON object", "ms"), "about 310 characters, by a schema", is_structured=True),
)

_COLUMNS, _WIDTH, _MARGIN, _GAP = 3, 900, 24, 36
_COLUMN = (_WIDTH - 2 * _MARGIN - (_COLUMNS - 1) * _GAP) // _COLUMNS
_TOP, _PANEL, _HEAD, _ROW, _BAR, _VALUE = 56, 152, 58, 24, 17, 52


def draw(source: Source) -> str:
    """The whole picture as SVG text."""
    num_rows = -(-len(PANELS) // _COLUMNS)
    height = _TOP + num_rows * _PANEL + 28
    lines = [
        *_legend(),
        *(line for number, panel in enumerate(PANELS) for line in _panel(panel, number, source)),
        str(Text(_MARGIN, height - 18, _foot(source), "faint", 12)),
    ]
    return page("Speed of Proxy Inference Engine beside llama.cpp's server", _WIDTH, height, lines)


def _legend() -> Iterator[str]:
    x = _MARGIN
    for bar in BARS:
        yield rectangle(bar.style, x, 20, 13, 13)
        yield str(Text(x + 20, 31, bar.title, is_bold=bar.style == "ours"))
        x += 20 + 8 * len(bar.title) + 16


def _panel(panel: Panel, number: int, source: Source) -> Iterator[str]:
    row, column = divmod(number, _COLUMNS)
    x, y = _MARGIN + column * (_COLUMN + _GAP), _TOP + row * _PANEL
    figure = panel.figure
    better = "more is better" if figure.is_more_better else "less is better"
    yield str(Text(x, y + 14, figure.title, size=14, is_bold=True))
    yield str(Text(x, y + 31, panel.line, "faint", 12))
    yield str(Text(x, y + 47, f"{figure.unit}, {better}", "faint", 12))
    run = source.structured if panel.is_structured else source.speed
    servers = [(bar, server) for bar in BARS if (server := run.server(bar.key))]
    most = max(max(round_medians(server.rounds, figure.key)) for _, server in servers)
    for place, (bar, server) in enumerate(servers):
        yield from _bar(bar, server, figure, x, y + _HEAD + place * _ROW, (_COLUMN - _VALUE) / most)


def _bar(bar: Bar, server: ServerResult, figure: Figure, x: float, y: float, scale: float) -> Iterator[str]:
    """A bar as long as the median, a thin line from the lowest round to the highest, the value behind both."""
    rounds = round_medians(server.rounds, figure.key)
    value = median(server.rounds, figure.key) or 0.0
    low, high, end = x + min(rounds) * scale, x + max(rounds) * scale, x + value * scale
    yield rectangle(bar.style, x, y, end - x, _BAR)
    yield f'<path class="round" d="M{low:.1f} {y + _BAR / 2:g}H{high:.1f}" stroke-width="1.5"/>'
    yield str(Text(round(max(high, end) + 6, 1), y + 13, figure.format(value), is_bold=bar.style == "ours"))


def _foot(source: Source) -> str:
    machine = source.speed.machine
    days = " and ".join(sorted({run.started[:10] for run in source}))
    return (
        f"Medians, thin lines from the lowest to the highest round. {machine['processor']}, "
        f"{machine['logical_cores']} cores, no GPU; SmolLM2 135M; {days}."
    )


def read(folder: Path = RESULTS) -> Source:
    structured = json.loads((folder / "structured.json").read_text())
    return Source(Run.read(folder / "latest.json"), Run.parse(structured["run"]))


if __name__ == "__main__":
    PICTURE.write_text(draw(read()), encoding="utf-8")
    print(f"written to {PICTURE}")
