"""API keys: `name:key`, from a file or the environment. A key never appears in a message or a repr."""

import ipaddress
import logging
import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from proxy_inference_engine.errors import StartupError

_logger = logging.getLogger(__name__)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_KEY = re.compile(r"[!-~]{1,512}")  # printable ASCII without spaces: what a header can carry


@dataclass(frozen=True, slots=True)
class ApiKey:
    """One secret and whose it is. A name may have several keys, so that one can replace another."""

    name: str
    key: str = field(repr=False)


class Listening(Protocol):
    """The part of a Config that decides who can reach the server."""

    @property
    def host(self) -> str: ...

    @property
    def api_keys(self) -> tuple[ApiKey, ...]: ...


def parse_key(text: str) -> ApiKey:
    """One `name:key`; ValueError says what is wrong without quoting it."""
    name, colon, key = text.strip().partition(":")
    if not colon:
        raise ValueError("expected name:key")
    if not _NAME.fullmatch(name):
        raise ValueError("a key's name has 1 to 64 letters, digits, '.', '_' or '-'")
    if not _KEY.fullmatch(key):
        raise ValueError(f"the key of {name!r} has to be 1 to 512 printable ASCII characters without spaces")
    return ApiKey(name, key)


def join_keys(keys: Iterable[ApiKey]) -> tuple[ApiKey, ...]:
    """The keys without repetitions; ValueError when two names have the same one."""
    owners: dict[str, str] = {}
    for key in keys:
        if owners.setdefault(key.key, key.name) != key.name:
            raise ValueError(f"{owners[key.key]!r} and {key.name!r} have the same key")
    return tuple(ApiKey(name, key) for key, name in owners.items())


def read_key_file(path: Path) -> tuple[ApiKey, ...]:
    """The keys of a file: one `name:key` a line, `#` comments and blank lines allowed."""
    try:
        mode = path.stat().st_mode
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise StartupError(f"API key file {str(path)!r}: {reason}") from None
    keys = []
    for number, line in enumerate(lines, start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            try:
                keys.append(parse_key(line))
            except ValueError as error:
                raise StartupError(f"API key file {str(path)!r}, line {number}: {error}") from None
    if not keys:
        raise StartupError(f"API key file {str(path)!r} has no keys: write one name:key a line")
    if os.name == "posix" and mode & stat.S_IROTH:
        _logger.warning("API key file %r can be read by every user: chmod 600 it", str(path))
    return tuple(keys)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def require_keys(config: Listening) -> None:
    """Refuse to be reachable from elsewhere without a key."""
    if not config.api_keys and not is_loopback(config.host):
        raise StartupError(
            f"host {config.host!r} can be reached from other machines and no API key is set: "
            "give --api-key-file FILE or PIE_API_KEYS=name:key, or stay on 127.0.0.1"
        )
