"""The keys that open the server, and where they come from: read again when the file changes or somebody asks."""

import hashlib
import hmac
import logging
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from proxy_inference_engine.config import ApiKey
from proxy_inference_engine.config.keys import all_keys
from proxy_inference_engine.errors import StartupError

_logger = logging.getLogger(__name__)

FileMark = tuple[int, int, int]  # what differs when a file was written or replaced


class Keyring:
    """Keys as digests. `find` compares with every one of them, so time tells nothing."""

    def __init__(self, keys: Sequence[ApiKey]) -> None:
        # Once and for all: a server that has keys does not open because somebody empties the file.
        self.is_open = not keys
        self.replace(keys)

    def replace(self, keys: Sequence[ApiKey]) -> None:
        """From the next request on these keys count, and no others. May be called from any thread."""
        self._digests = [(key.digest, key) for key in keys]

    def knows(self, name: str) -> bool:
        """Whether somebody of this name has a key, or nobody needs one."""
        return self.is_open or any(key.name == name for _, key in self._digests)

    def still_has(self, key: ApiKey | None) -> bool:
        """Whether what let somebody in who stays would let them in now, as what they are. None: nobody needs one."""
        if key is None:
            return self.is_open
        wanted = key.digest, key.name, key.is_admin
        return any((digest, each.name, each.is_admin) == wanted for digest, each in self._digests)

    def find(self, key: bytes) -> ApiKey | None:
        wanted = hashlib.sha256(key).digest()
        found: ApiKey | None = None
        for digest, each in self._digests:
            if hmac.compare_digest(digest, wanted):
                found = each
        return found


class KeySource:
    """Fills a keyring from its file. What cannot be used changes nothing: then the keys are as they were.

    The methods read a file, so they belong into a thread; any thread will do.
    """

    def __init__(self, keyring: Keyring, path: Path | None, keys: Sequence[ApiKey]) -> None:
        """`keys`: those that count now. Those among them that are not from the file stay for ever."""
        self.keyring = keyring
        self.path = path
        self._further = [key for key in keys if not key.is_from_file]
        self._lock = threading.Lock()
        self._seen = self._mark()

    def reload(self) -> int:
        """How many keys there are now. Raises StartupError: then the log says why, and nothing has changed."""
        with self._lock:
            self._seen = self._mark()  # before reading: what is written meanwhile is noticed the next time
            try:
                keys = all_keys(self.path, self._further)
            except StartupError as error:
                _logger.warning("the keys stay as they were: %s", error.message)
                raise
            self.keyring.replace(keys)
        _logger.info("read the keys again", extra={"fields": {"keys": len(keys)}})
        return len(keys)

    def look(self) -> None:
        """Reload if the file has changed; what is wrong with it is told once."""
        if self._mark() != self._seen:
            with suppress(StartupError):
                self.reload()

    def _mark(self) -> FileMark | None:
        try:
            found = None if self.path is None else self.path.stat()
        except OSError:
            return None
        return None if found is None else (found.st_mtime_ns, found.st_size, found.st_ino)
