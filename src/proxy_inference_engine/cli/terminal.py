"""What a person's terminal can show: colours where they are wanted, its width, harmless text; and a question."""

import os
import shutil
import sys
import textwrap
from collections.abc import Sequence
from io import TextIOWrapper
from typing import Literal, TextIO

from proxy_inference_engine.errors import StartupError

Style = Literal["bold", "dim", "green", "yellow", "red", "blue"]
_CODES: dict[Style, str] = {"bold": "1", "dim": "2", "green": "32", "yellow": "33", "red": "31", "blue": "34"}
# What a model writes must not steer the terminal: no control characters but tab and new line.
_CONTROLS = dict.fromkeys((*range(9), *range(11, 32), *range(127, 160)))


def is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()


def has_color(stream: TextIO | None) -> bool:
    """https://no-color.org; and not where a terminal has none."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, style: Style, stream: TextIO | None = None) -> str:
    """A text in a style, where the stream shows colours: stdout, unless another is named."""
    if not text or not has_color(sys.stdout if stream is None else stream):
        return text
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m"


def harmless(text: str) -> str:
    return text.translate(_CONTROLS)


def width() -> int:
    return shutil.get_terminal_size().columns


def fitted(text: str, indent: int, stream: TextIO | None = None) -> str:
    """Broken between words where a terminal would break within one; further lines begin as far in as the first does.

    For stdout, unless another stream is named.
    """
    if not is_terminal(sys.stdout if stream is None else stream):
        return text
    room = max(20, width() - indent)
    return f"\n{' ' * indent}".join(textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False))


def prepare(stream: TextIO | None) -> None:
    """A terminal without some letters shows others for them, in place of an error."""
    if isinstance(stream, TextIOWrapper):
        stream.reconfigure(errors="replace")


def agrees(question: str) -> bool:
    """Raises StartupError where nobody is there who could answer."""
    if not is_terminal(sys.stdin):
        raise StartupError("there is nobody to ask: say --yes")
    try:
        return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        print()
        return False


def table(rows: Sequence[Sequence[str]], *, numbers: frozenset[int] = frozenset(), spare: Sequence[int] = ()) -> str:
    """Columns as wide as what is in them; the first row is their names. Columns of `numbers` end at the right.

    Where a terminal is too narrow, columns of `spare` are left out, the first of them first.
    """
    widths = {column: max(len(row[column]) for row in rows) for column in range(len(rows[0]))}
    for column in spare:
        if not is_terminal(sys.stdout) or sum(widths.values()) + 2 * (len(widths) - 1) <= width():
            break
        del widths[column]
    lines = []
    for row in rows:
        cells = [
            row[column].rjust(room) if column in numbers else row[column].ljust(room) for column, room in widths.items()
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join((paint(lines[0], "bold"), *lines[1:]))
