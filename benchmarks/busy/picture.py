"""The plot: a panel for each kind of work, two bars for each number of busy loops, the share of the quiet speed."""

from collections.abc import Iterator

from benchmarks.busy.results import BUSY, WORK, Busy
from benchmarks.report.svg import Text, page, rectangle

_WIDTH, _HEIGHT, _MARGIN, _GAP, _TOP = 900, 280, 24, 36, 56
_COLUMN = (_WIDTH - 2 * _MARGIN - 2 * _GAP) // 3
_LABELS, _VALUE, _ROW, _BAR = 50, 92, 21, 15
_LOOPS = ("quiet", "one", "two")
_KINDS = ((True, "ours", "Threads that follow the free cores"), (False, "peer", "A fixed number of threads"))


def draw(found: Busy) -> str:
    """The whole picture as SVG text."""
    lines = [*_legend(), *(line for number, work in enumerate(WORK) for line in _panel(found, work, number))]
    return page("Speed beside busy loops on the same cores", _WIDTH, _HEIGHT, [*lines, str(_foot(found))])


def _legend() -> Iterator[str]:
    x = _MARGIN
    for is_following, style, title in _KINDS:
        yield rectangle(style, x, 20, 13, 13)
        yield str(Text(x + 20, 31, title, is_bold=is_following))
        x += 20 + 8 * len(title) + 16


def _panel(found: Busy, work: str, number: int) -> Iterator[str]:
    x, y = _MARGIN + number * (_COLUMN + _GAP), _TOP
    yield str(Text(x, y + 14, work.capitalize(), size=14, is_bold=True))
    yield str(Text(x, y + 31, "tokens a second; busy loops beside it", "faint", 12))
    most = max(found.speed(work, count, kind) for count in BUSY for kind, _, _ in _KINDS)
    scale = (_COLUMN - _LABELS - _VALUE) / most
    for place, (count, label) in enumerate(zip(BUSY, _LOOPS, strict=True)):
        top = y + 42 + place * (2 * _ROW + 6)
        yield str(Text(x, top + _ROW + 2, label, "faint", 12))
        for row, (is_following, style, _) in enumerate(_KINDS):
            speed, share = found.speed(work, count, is_following), found.share(work, count, is_following)
            end = x + _LABELS + max(1.0, speed * scale)
            value = f"{speed:,.0f}" + (f", {share:.0%}" if count else "")
            yield rectangle(style, x + _LABELS, top + row * _ROW, end - x - _LABELS, _BAR)
            yield str(Text(round(end + 6, 1), top + row * _ROW + 12, value, size=12, is_bold=is_following))


def _foot(found: Busy) -> Text:
    words = (
        f"Medians. {found.machine['processor']}, {found.machine['logical_cores']} cores, no GPU; SmolLM2 135M; "
        f"{found.num_threads} threads; {found.day}."
    )
    return Text(_MARGIN, _HEIGHT - 16, words, "faint", 12)
