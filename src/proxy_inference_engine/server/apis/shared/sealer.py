"""Seals what a client keeps for us and must not read or change: reasoning and summaries, under a key of this server."""

import os
from pathlib import Path
from typing import Any, Literal

from cryptography.fernet import Fernet, InvalidToken

from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.server.http.body import parse_json
from proxy_inference_engine.server.http.wire import dumps

_FILE = "sealing.key"

SealedKind = Literal["reasoning", "compaction"]


class Unopenable(Exception):
    """Not sealed by this server for this tenant, changed, or of another kind."""


class Sealer:
    """Encrypts for one tenant: what was sealed for another is not opened."""

    def __init__(self, fernet: Fernet | None = None, owner: str = "") -> None:
        self._fernet = fernet or Fernet(Fernet.generate_key())
        self._owner = owner

    def of(self, owner: str) -> "Sealer":
        return Sealer(self._fernet, owner)

    @staticmethod
    def new_key() -> bytes:
        return Fernet.generate_key()

    @classmethod
    def of_key(cls, key: bytes) -> "Sealer":
        return cls(Fernet(key))

    @classmethod
    def in_folder(cls, folder: Path | None) -> "Sealer":
        """A sealer whose key is in a folder, made on first use. None: the key lives as long as this process."""
        if folder is None:
            return cls()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            return cls(Fernet(_key(folder / _FILE)))
        except (OSError, ValueError) as error:
            raise StartupError(f"the key file {_FILE} in the data folder cannot be used: {error}") from None

    def seal(self, kind: SealedKind, value: Any) -> str:
        return self._fernet.encrypt(dumps({"kind": kind, "owner": self._owner, "value": value}).encode()).decode()

    def open(self, kind: SealedKind, sealed: str) -> Any:
        """Raises Unopenable."""
        try:
            content = parse_json(self._fernet.decrypt(sealed.encode()))
        except (InvalidToken, UnicodeEncodeError):
            raise Unopenable from None
        if content["kind"] != kind or content.get("owner", self._owner) != self._owner:  # old ones have no owner
            raise Unopenable
        return content["value"]


def _key(path: Path) -> bytes:
    """The first process to come writes the key whole, under another name: a reader never sees half of one."""
    if not path.exists():
        fresh = path.with_suffix(f".{os.getpid()}")
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(Fernet.generate_key())
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(fresh, path)
        except FileExistsError:
            pass
        finally:
            fresh.unlink()
    return path.read_bytes()
