"""JSON as this server writes it: compact, UTF-8, never NaN, and never a character that a line reader breaks at."""

import json
from typing import Any

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def dumps(value: Any) -> str:
    text = _encode(value)
    return text if text.isascii() else _escape_breaks(text)


def _escape_breaks(text: str) -> str:
    # Line breaks to str.splitlines(), which some clients cut a stream of events with, but not to JSON.
    return text.replace("\x85", "\\u0085").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
