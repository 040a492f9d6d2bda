"""How an error names the place in a request body: `messages[0].content`."""

from collections.abc import Iterable

_MAX_KEY = 64
_MAX_PARTS = 16


def param_name(parts: Iterable[str | int]) -> str | None:
    """Join keys and indexes; None for the body itself. Keys are the client's, so they are cut short."""
    name = ""
    for part in list(parts)[:_MAX_PARTS]:
        if isinstance(part, int):
            name += f"[{part}]"
        else:
            name += ("." if name else "") + shorten(part)
    return name or None


def shorten(text: str, length: int = _MAX_KEY) -> str:
    """A client's own word, safe to quote in a message: one line, printable, not long."""
    printable = "".join(c if c.isprintable() else "?" for c in text[: length + 1])
    return printable if len(printable) <= length else printable[:length] + "…"
