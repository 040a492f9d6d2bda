"""The Hugging Face hub: the files of a repository at a revision, their bytes, and what its refusals mean.

Knows addresses and tokens; writes nothing to the disk. What the hub answers is not trusted.
https://huggingface.co/docs/hub/api
"""

import http
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, urlencode, urlsplit

from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models.download.listing import (
    MAX_LISTING_BYTES,
    FoundModel,
    Listing,
    RemoteFile,
    parse_listing,
    parse_search,
)
from proxy_inference_engine.models.download.source import Body
from proxy_inference_engine.models.download.web import ConnectionBroken, Refused, Web
from proxy_inference_engine.models.download.xet import is_xet_hash
from proxy_inference_engine.models.hub import HubName

_PUBLIC = "https://huggingface.co"
_NUM_LISTING_TRIES = 3


class Hub:
    """One server, asked by one user."""

    def __init__(self, endpoint: str = _PUBLIC, token: str | None = None, pause_s: float = 1.0) -> None:
        self.endpoint = endpoint.rstrip("/")
        if urlsplit(endpoint).scheme not in ("http", "https") or not urlsplit(endpoint).hostname:
            raise StartupError(f"HF_ENDPOINT {endpoint!r} should be an address such as {_PUBLIC}")
        if token is not None and not (token.isascii() and token.isprintable()):
            raise StartupError("HF_TOKEN has characters that no token has")
        self.token = token
        self._authorization = None if token is None else f"Bearer {token}"
        self._web = Web(pause_s)
        self.pause = self._web.pause

    @classmethod
    def from_environment(cls) -> "Hub":
        """The hub that the variables of Hugging Face's own tools name: https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables"""
        return cls(os.environ.get("HF_ENDPOINT", "").strip() or _PUBLIC, _find_token())

    def list_files(self, name: HubName) -> Listing:
        """What is in a repository at a revision. Raises StartupError."""
        url = f"{self.endpoint}/api/models/{name.repository}/revision/{quote(name.revision, safe='')}?blobs=true"
        for number in range(_NUM_LISTING_TRIES):
            try:
                with self._understood(name):
                    return parse_listing(self._web.read(url, MAX_LISTING_BYTES + 1, self._authorization))
            except ConnectionBroken as error:
                failure = error
                if number + 1 < _NUM_LISTING_TRIES:
                    self.pause(number, error)
            except ValueError as error:
                raise StartupError(f"{self.endpoint} answered with no list of files: {error}") from None
        raise StartupError(
            f"model {name.repository!r} is not in the Hugging Face cache, "
            f"and {self.endpoint} cannot be asked: {failure} (is there a network?)"
        )

    def search(self, words: str, limit: int) -> list[FoundModel]:
        """Models with these words in their names, the most downloaded first. Raises StartupError."""
        wanted = urlencode({"search": words, "limit": limit, "sort": "downloads", "direction": -1})
        try:
            text = self._web.read(f"{self.endpoint}/api/models?{wanted}", MAX_LISTING_BYTES + 1, self._authorization)
            return parse_search(text)[:limit]
        except (ConnectionBroken, Refused) as error:
            raise StartupError(f"{self.endpoint} cannot be asked: {error} (is there a network?)") from None
        except ValueError as error:
            raise StartupError(f"{self.endpoint} answered with no list of models: {error}") from None

    def address(self, name: HubName, commit: str, file: RemoteFile) -> str:
        return f"{self.endpoint}/{name.repository}/resolve/{commit}/{quote(file.path)}"

    def xet_hash(self, name: HubName, commit: str, file: RemoteFile) -> str | None:
        """What hf-xet asks for a file by; None where it is stored otherwise, or the hub does not say."""
        try:
            found = self._web.headers(self.address(name, commit, file), self._authorization).get("X-Xet-Hash")
        except (Refused, ConnectionBroken, StartupError):
            return None  # asking for the file itself says what is wrong
        return found if is_xet_hash(found) else None

    def xet_address(self, name: HubName, commit: str) -> str:
        """Where the hub gives out tokens for the storage."""
        return f"{self.endpoint}/api/models/{name.repository}/xet-read-token/{commit}"

    @contextmanager
    def open(self, name: HubName, commit: str, file: RemoteFile, start: int, end: int | None = None) -> Iterator[Body]:
        """Bytes of a file, as `Web.open_file` has them. Raises ConnectionBroken, RangesRefused and StartupError."""
        with (
            self._understood(name),
            self._web.open_file(self.address(name, commit, file), file, start, end, self._authorization) as body,
        ):
            yield body

    @contextmanager
    def _understood(self, name: HubName) -> Iterator[None]:
        try:
            yield
        except Refused as refusal:
            raise self._meaning(refusal, name) from None

    def _meaning(self, refusal: Refused, name: HubName) -> ConnectionBroken | StartupError:
        """What an answer that is no success means; one line that says what to do."""
        model, code = f"model {name.repository!r}", refusal.headers.get("X-Error-Code")
        has_token = self.token is not None
        # Where files are stored, a refusal is about an address that was signed for a while: a new one may do.
        is_hub = code is not None or urlsplit(refusal.url).netloc == urlsplit(self.endpoint).netloc
        if refusal.is_transient or not is_hub:
            return refusal.as_broken()
        if code == "RevisionNotFound":
            return StartupError(f"{model} has no revision {name.revision!r} on {self.endpoint}")
        if code == "GatedRepo" or refusal.status == http.HTTPStatus.FORBIDDEN:
            then = "your token (HF_TOKEN) has no access yet" if has_token else "then set HF_TOKEN to a token of yours"
            return StartupError(f"{model} is gated: accept its terms at {self.endpoint}/{name.repository}; {then}")
        if refusal.status == http.HTTPStatus.UNAUTHORIZED and has_token and code != "RepoNotFound":
            return StartupError(f"{self.endpoint} does not take your token (HF_TOKEN): set another, or none")
        if code == "RepoNotFound" or refusal.status == http.HTTPStatus.UNAUTHORIZED:
            hint = "" if has_token else "; if it is private, set HF_TOKEN to a token of yours"
            return StartupError(f"{model}: no such file or folder, and {self.endpoint} has no such model{hint}")
        return StartupError(f"{model}: {self.endpoint} answers {refusal.status} {code or ''}".rstrip())


def _find_token() -> str | None:
    """HF_TOKEN, or what `hf auth login` has left."""
    token = os.environ.get("HF_TOKEN", "").strip()
    if not token:
        home = os.environ.get("HF_HOME") or os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
        path = os.environ.get("HF_TOKEN_PATH") or os.path.join(home, "token")
        try:
            token = Path(os.path.expandvars(path)).expanduser().read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError, RuntimeError):
            token = ""
    return token or None
