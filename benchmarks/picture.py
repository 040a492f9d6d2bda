"""`python -m benchmarks.picture`: the README's picture, our server beside llama.cpp's, from the files in results/.

One file for light and for dark pages: it has a background of its own, and other colours where a reader prefers dark.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

from benchmarks.report.results import Run, ServerResult
from benchmarks.report.samples import Figure, median, round_medians

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

_STYLE = """\
<style>
  .page { fill: #ffffff } .ink { fill: #1f2328 } .faint { fill: #59636e } .round { stroke: #1f2328 }
  .ours { fill: #2563eb } .peer { fill: #9aa4b0 } .same { fill: #ccd3db }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117 } .ink { fill: #e6edf3 } .faint { fill: #9198a1 } .round { stroke: #e6edf3 }
    .ours { fill: #4c8dff } .peer { fill: #7d8590 } .same { fill: #4a525c }
  }
</style>"""

_COLUMNS, _WIDTH, _MARGIN, _GAP = 3, 900, 24, 36
_COLUMN = (_WIDTH - 2 * _MARGIN - (_COLUMNS - 1) * _GAP) // _COLUMNS
_TOP, _PANEL, _HEAD, _ROW, _BAR, _VALUE = 56, 152, 58, 24, 17, 52


@dataclass(frozen=True, slots=True)
class Text:
    """A line of text; `style` is a class of the sheet."""

    x: float
    y: float
    words: str
    style: str = "ink"
    size: int = 13
    is_bold: bool = False

    def __str__(self) -> str:
        weight = ' font-weight="600"' if self.is_bold else ""
        place = f'x="{self.x:g}" y="{self.y:g}" font-size="{self.size}"'
        return f'<text class="{self.style}" {place}{weight}>{escape(self.words)}</text>'


def draw(source: Source) -> str:
    """The whole picture as SVG text."""
    num_rows = -(-len(PANELS) // _COLUMNS)
    height = _TOP + num_rows * _PANEL + 28
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
            f'viewBox="0 0 {_WIDTH} {height}" font-family="system-ui, -apple-system, Segoe UI, sans-serif" role="img">',
            "<title>Speed of Proxy Inference Engine beside llama.cpp's server</title>",
            _STYLE,
            f'<rect class="page" width="{_WIDTH}" height="{height}" rx="8"/>',
            *_legend(),
            *(line for number, panel in enumerate(PANELS) for line in _panel(panel, number, source)),
            str(Text(_MARGIN, height - 18, _foot(source), "faint", 12)),
            "</svg>",
            "",
        ]
    )


def _legend() -> Iterator[str]:
    x = _MARGIN
    for bar in BARS:
        yield f'<rect class="{bar.style}" x="{x}" y="20" width="13" height="13" rx="2"/>'
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
    yield f'<rect class="{bar.style}" x="{x:g}" y="{y:g}" width="{end - x:.1f}" height="{_BAR}" rx="2"/>'
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
