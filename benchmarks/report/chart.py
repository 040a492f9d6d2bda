"""The figures as one SVG: a panel each, a bar for every server, a thin line from the slowest to the fastest round."""

from collections.abc import Sequence
from xml.sax.saxutils import escape

from benchmarks.report.results import Run, ServerResult
from benchmarks.report.samples import FIGURES, Figure, median, round_medians
from benchmarks.report.targets import OURS

_KEYS = ("decode", "cold_ttft", "wide", "wide_gap_p99", "chat_ttft_p50", "turns_ttft_p50", "resident")
_WIDTH, _LABELS, _VALUES = 900, 330, 80
_ROW, _BAR, _HEAD, _GAP = 20, 13, 26, 18
_OURS, _OTHERS, _INK, _FAINT = "#2563eb", "#b6bfcc", "#1f2937", "#6b7280"


def draw(run: Run) -> str:
    """The whole chart as SVG text."""
    servers = [server for server in run.servers if server.is_measured]
    figures = [figure for figure in FIGURES if figure.key in _KEYS]
    parts, top = [], 16
    for figure in figures:
        shown = [server for server in servers if median(server.rounds, figure.key) is not None]
        if shown:
            parts.append(_panel(figure, shown, top))
            top += _HEAD + _ROW * len(shown) + _GAP
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{top}" viewBox="0 0 {_WIDTH} {top}" '
        f'font-family="system-ui, sans-serif" font-size="12" fill="{_INK}">'
    )
    return "\n".join([head, f'<rect width="{_WIDTH}" height="{top}" fill="#ffffff"/>', *parts, "</svg>", ""])


def _panel(figure: Figure, servers: Sequence[ServerResult], top: int) -> str:
    better = "more is better" if figure.is_more_better else "less is better"
    lines = [
        f'<text x="12" y="{top + 12}" font-weight="600">{escape(figure.title)} '
        f'<tspan fill="{_FAINT}" font-weight="400">{escape(figure.unit)}, {better}</tspan></text>'
    ]
    most = max(max(round_medians(server.rounds, figure.key)) for server in servers)
    scale = (_WIDTH - _LABELS - _VALUES) / most if most else 0.0
    for row, server in enumerate(servers):
        lines += _bar(figure, server, top + _HEAD + row * _ROW, scale)
    return "\n".join(lines)


def _bar(figure: Figure, server: ServerResult, y: int, scale: float) -> list[str]:
    value = median(server.rounds, figure.key) or 0.0
    rounds = round_medians(server.rounds, figure.key)
    low, high = _LABELS + min(rounds) * scale, _LABELS + max(rounds) * scale
    middle = y + _BAR / 2
    is_ours = server.key == OURS
    weight = ' font-weight="600"' if is_ours else ""
    return [
        f'<text x="{_LABELS - 8}" y="{y + 11}" text-anchor="end"{weight}>{escape(server.title)}</text>',
        f'<rect x="{_LABELS}" y="{y}" width="{max(1.0, value * scale):.1f}" height="{_BAR}" rx="2" '
        f'fill="{_OURS if is_ours else _OTHERS}"/>',
        f'<path d="M{low:.1f} {middle:.1f}H{high:.1f}" stroke="{_INK}" stroke-width="1.5"/>',
        f'<text x="{max(high, _LABELS + value * scale) + 6:.1f}" y="{y + 11}"{weight}>{figure.format(value)}</text>',
    ]
