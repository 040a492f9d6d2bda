"""The result of a bench as people see it: bars on the terminal, and a picture in SVG that fits light and dark pages."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

from proxy_inference_engine.cli.bench.load import LoadResult
from proxy_inference_engine.cli.terminal import paint

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_BAR_CHARS = 24
_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 420, 260, 56, 48, 40  # of one diagram, in pixels
_INSET = 20  # between the axis and the first figure
_STYLE = """\
<style>
  text { font: 12px system-ui, sans-serif } .title { font-weight: 600; font-size: 14px }
  .page { fill: #ffffff } .ink { fill: #1f2328 } .faint { fill: #59636e } .grid { stroke: #d1d9e0 }
  .line { fill: none; stroke: #2563eb; stroke-width: 2 } .dot { fill: #2563eb }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117 } .ink { fill: #f0f6fc } .faint { fill: #9198a1 } .grid { stroke: #3d444d }
    .line { stroke: #60a5fa } .dot { fill: #60a5fa }
  }
</style>"""


class Diagram(NamedTuple):
    """One figure against the number of clients."""

    title: str
    value: Callable[[LoadResult], float]


DIAGRAMS = (
    Diagram("tokens a second, all together", lambda result: result.tokens_per_second),
    Diagram("tokens a second, one stream", lambda result: result.stream_tokens_per_second),
    Diagram("first token, ms (median)", lambda result: result.ttft_ms),
)


def bars(results: Sequence[LoadResult]) -> str:
    """One block of bars for each diagram."""
    lines: list[str] = []
    for title, value in DIAGRAMS:
        largest = max(map(value, results)) or 1.0
        lines += ["", paint(title, "bold")]
        for result in results:
            clients = f"{result.num_clients} client{'s' if result.num_clients > 1 else ''}"
            lines.append(f"  {clients:>11}  {paint(bar(value(result) / largest), 'blue')} {value(result):,.0f}")
    return "\n".join(lines[1:])


def bar(share: float) -> str:
    """Filled to an eighth of a character, and always as wide."""
    eighths = round(max(0.0, min(1.0, share)) * _BAR_CHARS * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(_BAR_CHARS)


def picture(results: Sequence[LoadResult], title: str) -> str:
    """Diagrams beside each other, each a line over the number of clients."""
    width, height = _WIDTH * len(DIAGRAMS), _HEIGHT + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        _STYLE,
        f'<rect class="page" width="{width}" height="{height}"/>',
        f'<text class="ink title" x="16" y="24">{escape(title)}</text>',
    ]
    for number, diagram in enumerate(DIAGRAMS):
        parts += [f'<g transform="translate({number * _WIDTH} 30)">', *_diagram(diagram, results), "</g>"]
    return "\n".join((*parts, "</svg>", ""))


def _diagram(diagram: Diagram, results: Sequence[LoadResult]) -> Iterator[str]:
    right, floor = _WIDTH - 24, _HEIGHT - _BOTTOM
    top = round_up(max(map(diagram.value, results)))
    first = _LEFT + _INSET
    step = (right - _INSET - first) / max(1, len(results) - 1)
    yield f'<text class="ink" x="16" y="28">{escape(diagram.title)}</text>'
    for share in (0.0, 0.5, 1.0):
        y = floor - share * (floor - _TOP)
        yield f'<line class="grid" x1="{_LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}"/>'
        yield f'<text class="faint" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{top * share:,.0f}</text>'
    points = []
    for number, result in enumerate(results):
        x, y = first + number * step, floor - diagram.value(result) / top * (floor - _TOP)
        points.append(f"{x:.1f},{y:.1f}")
        yield f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>'
        yield f'<text class="faint" x="{x:.1f}" y="{floor + 18}" text-anchor="middle">{result.num_clients}</text>'
        yield f'<text class="ink" x="{x:.1f}" y="{y - 9:.1f}" text-anchor="middle">{diagram.value(result):,.0f}</text>'
    yield f'<polyline class="line" points="{" ".join(points)}"/>'
    yield f'<text class="faint" x="{(_LEFT + right) / 2:.0f}" y="{floor + 34}" text-anchor="middle">clients</text>'


def round_up(value: float) -> float:
    """The next number that reads well at the top of an axis: 1, 2 or 5, and noughts."""
    scale = 1.0
    while scale < value:
        for factor in (1, 2, 5):
            if scale * factor >= value:
                return scale * factor
        scale *= 10
    return scale
