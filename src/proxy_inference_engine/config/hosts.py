"""Hosts of a private network that the operator opens: `host` or `host:port`."""

import re
from typing import NamedTuple

MAX_HOSTS = 1000
_HOST = re.compile(r"(?P<host>[a-z0-9._-]{1,253}|\[(?P<address>[0-9a-f:.]+)\])(?::(?P<port>[0-9]{1,5}))?", re.ASCII)


class AllowedHost(NamedTuple):
    host: str
    port: int | None  # None: any


def parse_hosts(value: object) -> object:
    """A list, or a text with commas as the environment gives it. Raises ValueError that names the host."""
    parts = [part for part in value.split(",") if part.strip()] if isinstance(value, str) else value
    if not isinstance(parts, list | tuple):
        raise ValueError("should be hosts, several separated by commas")
    if len(parts) > MAX_HOSTS:
        raise ValueError(f"should have at most {MAX_HOSTS} hosts")
    return tuple(part if isinstance(part, AllowedHost) else _parse(str(part).strip()) for part in parts)


def _parse(text: str) -> AllowedHost:
    match = _HOST.fullmatch(text.lower())
    port = None if match is None or match["port"] is None else int(match["port"])
    if match is None or port == 0 or (port or 0) > 65535:
        raise ValueError(f"{text[:64]!r} is no host; write host, host:port or [address]:port")
    return AllowedHost(match["address"] or match["host"], port)
