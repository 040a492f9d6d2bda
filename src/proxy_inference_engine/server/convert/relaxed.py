"""The response headers that list what is not honoured: keywords that no grammar can bind, tools that nobody hosts."""

from collections.abc import Mapping, Sequence
from urllib.parse import quote

_RELAXED = "x-pie-relaxed"
_IGNORED = "x-pie-ignored"
_MAX_CHARS = 2048
_MORE = "..."


def relaxed_headers(relaxed: Sequence[str]) -> Mapping[str, str]:
    """What schemas ask for and no grammar can bind: `path:keyword`."""
    return _listed(_RELAXED, relaxed)


def ignored_headers(ignored: Sequence[str]) -> Mapping[str, str]:
    """What was skipped, by name."""
    return _listed(_IGNORED, ignored)


def _listed(header: str, names: Sequence[str]) -> Mapping[str, str]:
    """Separated by commas; a list that is too long ends in dots. The names are the client's, so quoted."""
    items: list[str] = []
    num_chars = len(_MORE)
    for item in map(_quoted, names):
        num_chars += len(item) + 2
        if num_chars > _MAX_CHARS:
            items.append(_MORE)
            break
        items.append(item)
    return {header: ", ".join(items)} if items else {}


def _quoted(text: str) -> str:
    return "".join(c if "!" <= c <= "~" and c not in ",%" else quote(c, safe="") for c in text)
