"""The response header that lists what schemas ask for and no grammar can bind."""

from collections.abc import Mapping, Sequence
from urllib.parse import quote

_HEADER = "x-pie-relaxed"
_MAX_CHARS = 2048
_MORE = "..."


def relaxed_headers(relaxed: Sequence[str]) -> Mapping[str, str]:
    """`path:keyword`, separated by commas; a list that is too long ends in dots. Paths are the client's, so quoted."""
    items: list[str] = []
    num_chars = len(_MORE)
    for item in map(_quoted, relaxed):
        num_chars += len(item) + 2
        if num_chars > _MAX_CHARS:
            items.append(_MORE)
            break
        items.append(item)
    return {_HEADER: ", ".join(items)} if items else {}


def _quoted(text: str) -> str:
    return "".join(c if "!" <= c <= "~" and c not in ",%" else quote(c, safe="") for c in text)
