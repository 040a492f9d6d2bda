"""Identifiers: ours are random and unguessable, the client's is only ever echoed."""

import re
import secrets

_ECHOED = re.compile(r"[A-Za-z0-9._-]{1,128}", re.ASCII)


def new_id(prefix: str) -> str:
    return prefix + secrets.token_hex(16)


def request_id(wanted: bytes | None) -> str:
    """The client's X-Request-Id where it is harmless, else one of ours."""
    text = (wanted or b"").decode("latin-1")
    return text if _ECHOED.fullmatch(text) else new_id("req-")
