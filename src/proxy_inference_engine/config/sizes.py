"""Sizes in memory, as people write them: "2GiB", "512MB", 1048576."""

import re

_UNITS = {"": 1, "b": 1}
for _power, _letter in enumerate("kmgt", start=1):
    _UNITS[f"{_letter}b"] = 1000**_power
    _UNITS[f"{_letter}ib"] = _UNITS[_letter] = 1024**_power

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")
_MAX_BYTES = 1 << 50


def parse_size(value: object) -> int:
    """Bytes in `value`; ValueError when it is not a size."""
    match = _SIZE.fullmatch(str(value).strip().lower())
    if isinstance(value, bool) or match is None or match[2] not in _UNITS:
        raise ValueError("should be a size such as 2GiB, 512MB or a number of bytes")
    num_bytes = int(float(match[1]) * _UNITS[match[2]])
    if num_bytes > _MAX_BYTES:
        raise ValueError(f"should be at most {format_size(_MAX_BYTES)}")
    return num_bytes


def format_size(num_bytes: int) -> str:
    """The shortest honest form for people: "1.5 GiB"."""
    size = float(num_bytes)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if size >= 10 or size == int(size) else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f}".removesuffix(".0") + " GiB"
