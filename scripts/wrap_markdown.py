"""Wraps the prose of Markdown files, in place, so that a change of a sentence is a change of a few short lines.

    python scripts/wrap_markdown.py CONTRIBUTING.md docs/*.md

Paragraphs and list items become lines of at most 120 characters. Tables, code, headings and comments stay as they are:
a line of those that is too long needs a person.
"""

import re
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

WIDTH = 120
_FENCE = re.compile(r"\s*(```|~~~)")
_ALONE = re.compile(r"\s*(#|\||<|>|!\[|\[[^\]]+\]:|\s*$)")  # stands for itself: never joined with its neighbours
_ITEM = re.compile(r"\s*([-*+]|\d+\.) +")
_CODE = re.compile(r"`[^`]+`")
# At the start of a line these would begin a list or a heading, so they stay with the word before.
_MARKER = re.compile(r" (?=([-*+#>]+|\d+\.)( |$))")
_GLUE = "\x00"


def wrap(text: str, width: int = WIDTH) -> str:
    lines = [line for block in _blocks(text.splitlines()) for line in block.wrapped(width)]
    return "\n".join(lines) + "\n"


@dataclass(slots=True)
class Block:
    """A paragraph or a list item; or a line that is no prose."""

    lines: list[str]
    is_prose: bool = True

    def wrapped(self, width: int) -> list[str]:
        """As it was where it is narrow enough, so that only what has to change does."""
        if not self.is_prose or all(len(line) <= width for line in self.lines):
            return self.lines
        head = self.lines[0]
        item = _ITEM.match(head)
        first = item[0] if item else head[: len(head) - len(head.lstrip())]
        text = " ".join(line.strip() for line in self.lines)[len(first.lstrip()) :]
        text = _CODE.sub(lambda code: code[0].replace(" ", _GLUE), text)
        wrapped = textwrap.wrap(
            _MARKER.sub(_GLUE, text),
            width,
            initial_indent=first,
            subsequent_indent=" " * len(first),
            break_long_words=False,
            break_on_hyphens=False,
        )
        return [line.replace(_GLUE, " ") for line in wrapped]


def _blocks(lines: list[str]) -> Iterator[Block]:
    block = Block([])
    is_code = False
    for line in lines:
        is_fence = bool(_FENCE.match(line))
        is_prose = not (is_code or is_fence or _ALONE.match(line))
        is_code ^= is_fence
        if block.lines and (not is_prose or _ITEM.match(line)):
            yield block
            block = Block([])
        if is_prose:
            block.lines.append(line)
        else:
            yield Block([line], is_prose=False)
    if block.lines:
        yield block


def main() -> None:
    for name in sys.argv[1:]:
        path = Path(name)
        text = path.read_text(encoding="utf-8")
        if (wrapped := wrap(text)) != text:
            path.write_text(wrapped, encoding="utf-8")
            print(f"wrapped {name}")


if __name__ == "__main__":
    main()
