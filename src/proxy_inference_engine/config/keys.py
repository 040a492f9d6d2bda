"""API keys: `name:key`, from a file or the environment. A key never appears in a message or a repr.

A key is its owner's to use models with; one that is marked `name:key admin` also opens the admin routes. In place of
the key its SHA-256 may stand, `name:sha256:<hex>`: then nobody who reads the file can use what is in it.
"""

import hashlib
import ipaddress
import logging
import os
import re
import secrets
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from proxy_inference_engine.errors import StartupError

_logger = logging.getLogger(__name__)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_KEY = re.compile(r"[!-~]{1,512}")  # printable ASCII without spaces: what a header can carry
_MARKED = re.compile(r"(?P<key>.*?)(?P<mark>\s+admin)?", re.DOTALL)
_HASHED = "sha256:"
_HASH = re.compile(r"[0-9A-Fa-f]{64}")
_KEY_BYTES = 32  # of a new key: more than anybody can guess, so its digest needs no salt


@dataclass(frozen=True, slots=True)
class ApiKey:
    """One secret and whose it is. A name may have several keys, so that one can replace another."""

    name: str
    key: str = field(repr=False)  # or its digest in words
    is_admin: bool = False
    is_from_file: bool = field(default=False, compare=False, repr=False)  # gone when it is no longer in the file

    @property
    def is_hashed(self) -> bool:
        """Nobody can use what stands here."""
        return self.key.startswith(_HASHED)

    @property
    def digest(self) -> bytes:
        """SHA-256 of what its owner sends."""
        if self.is_hashed:
            return bytes.fromhex(self.key.removeprefix(_HASHED))
        return hashlib.sha256(self.key.encode()).digest()

    @property
    def line(self) -> str:
        """The line of a key as a file has it, without the secret."""
        return f"{self.name}:{_HASHED}{self.digest.hex()}" + (" admin" if self.is_admin else "")


class Listening(Protocol):
    """The part of a Config that decides who can reach the server."""

    @property
    def host(self) -> str: ...

    @property
    def api_keys(self) -> tuple[ApiKey, ...]: ...


def parse_key(text: str) -> ApiKey:
    """One `name:key`, with `admin` after it where it is one; ValueError says what is wrong without quoting it."""
    name, colon, rest = text.strip().partition(":")
    if not colon:
        raise ValueError("expected name:key")
    check_key_name(name)
    marked = _MARKED.fullmatch(rest)
    assert marked is not None  # it matches anything
    if not _is_key(marked["key"]):
        raise ValueError(
            f"the key of {name!r} has to be 1 to 512 printable ASCII characters without spaces, or sha256: and 64 "
            "hexadecimal digits; after it only the word admin may stand"
        )
    return ApiKey(name, marked["key"], is_admin=marked["mark"] is not None)


def parse_plain_key(name: str, text: str) -> ApiKey:
    """A key that is written without its name; ValueError says what is wrong without quoting it."""
    if not _is_key(text):
        raise ValueError("a key has 1 to 512 printable ASCII characters without spaces, or sha256: and 64 digits")
    return ApiKey(name, text)


def new_key(name: str, *, is_admin: bool = False) -> ApiKey:
    """A key that nobody has yet. Raises ValueError for a name that cannot be one."""
    check_key_name(name)
    return ApiKey(name, "sk-" + secrets.token_urlsafe(_KEY_BYTES), is_admin)


def check_key_name(name: str) -> None:
    """Raises ValueError for a name that no key can have."""
    if not _NAME.fullmatch(name):
        raise ValueError("a key's name has 1 to 64 letters, digits, '.', '_' or '-'")


def parse_key_names(value: object) -> object:
    """Names of keys, in a list or with commas between them."""
    parts = [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value
    if not isinstance(parts, list | tuple):
        raise ValueError("should be names of keys")
    for part in parts:
        check_key_name(str(part))
    return tuple(map(str, parts))


def _is_key(text: str) -> bool:
    if text.startswith(_HASHED):
        return _HASH.fullmatch(text.removeprefix(_HASHED)) is not None
    return _KEY.fullmatch(text) is not None


def join_keys(keys: Iterable[ApiKey]) -> tuple[ApiKey, ...]:
    """The keys without repetitions; ValueError when one is given out twice, to two names or as two kinds."""
    found: dict[bytes, ApiKey] = {}
    for key in keys:
        other = found.setdefault(key.digest, key)
        if other.name != key.name:
            raise ValueError(f"{other.name!r} and {key.name!r} have the same key")
        if other.is_admin != key.is_admin:
            raise ValueError(f"{key.name!r} has one key twice, and only once as an admin's")
        if other.is_from_file and not key.is_from_file:
            found[key.digest] = key  # it stays when the file changes
    return tuple(found.values())


def read_key_file(path: Path) -> tuple[ApiKey, ...]:
    """The keys of a file, one a line, `#` comments and blank lines allowed. Raises StartupError."""
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
                keys.append(replace(parse_key(line), is_from_file=True))
            except ValueError as error:
                raise StartupError(f"API key file {str(path)!r}, line {number}: {error}") from None
    if not keys:
        raise StartupError(f"API key file {str(path)!r} has no keys: write one name:key a line")
    if os.name == "posix" and mode & stat.S_IROTH and not all(key.is_hashed for key in keys):
        _logger.warning("API key file %r can be read by every user: chmod 600 it", str(path))
    return tuple(keys)


def all_keys(path: Path | None, further: Iterable[ApiKey]) -> tuple[ApiKey, ...]:
    """The keys of a file, if there is one, and further ones. Raises StartupError."""
    try:
        return join_keys((*(() if path is None else read_key_file(path)), *further))
    except ValueError as error:
        raise StartupError(f"API keys: {error}") from None


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
