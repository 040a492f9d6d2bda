"""What the pictures for documents have in common: one file for light and for dark pages.

A picture has a background of its own, and other colours where a reader prefers dark.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from xml.sax.saxutils import escape

_STYLE = """\
<style>
  .page { fill: #ffffff } .ink { fill: #1f2328 } .faint { fill: #59636e } .round { stroke: #1f2328 }
  .ours { fill: #2563eb } .peer { fill: #9aa4b0 } .same { fill: #ccd3db }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117 } .ink { fill: #e6edf3 } .faint { fill: #9198a1 } .round { stroke: #e6edf3 }
    .ours { fill: #4c8dff } .peer { fill: #7d8590 } .same { fill: #4a525c }
  }
</style>"""


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


def rectangle(style: str, x: float, y: float, width: float, height: float) -> str:
    return f'<rect class="{style}" x="{x:g}" y="{y:g}" width="{max(1.0, width):.1f}" height="{height:g}" rx="2"/>'


def page(title: str, width: int, height: int, lines: Iterable[str]) -> str:
    """A whole picture as SVG text."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" font-family="system-ui, -apple-system, Segoe UI, sans-serif" role="img">',
            f"<title>{escape(title)}</title>",
            _STYLE,
            f'<rect class="page" width="{width}" height="{height}" rx="8"/>',
            *lines,
            "</svg>",
            "",
        ]
    )
