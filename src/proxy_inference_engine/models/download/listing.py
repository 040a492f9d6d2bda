"""The hub's answer to what is in a repository, checked: names that stay inside it, sizes and digests that can be.

https://huggingface.co/docs/hub/api: /api/models/{repository}/revision/{revision}?blobs=true
"""

import json
import re
from dataclasses import dataclass
from typing import Any, NamedTuple

from proxy_inference_engine.models.hub import parse_name

MAX_LISTING_BYTES = 64 << 20
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_GIT_DIGEST, _LFS_DIGEST = re.compile(r"[0-9a-f]{40}"), re.compile(r"[0-9a-f]{64}")

_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f\\]")


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file of a repository. The digest, SHA-256 of LFS files and git's own of the others, names it in the cache."""

    path: str
    size: int
    digest: str

    @property
    def is_lfs(self) -> bool:
        return _LFS_DIGEST.fullmatch(self.digest) is not None


class Listing(NamedTuple):
    commit: str
    files: tuple[RemoteFile, ...]


class FoundModel(NamedTuple):
    """A repository that a search found."""

    name: str
    num_downloads: int
    num_likes: int
    is_gated: bool
    has_gguf: bool
    has_safetensors: bool


def parse_search(text: bytes) -> list[FoundModel]:
    """The models in the hub's answer to a search. Raises ValueError where it is not what it should be."""
    if len(text) > MAX_LISTING_BYTES:
        raise ValueError("it is too long")
    try:
        return [_found(entry) for entry in json.loads(text) if parse_name(entry["id"]) is not None]
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{type(error).__name__} {error}") from None


def _found(entry: dict[str, Any]) -> FoundModel:
    tags = entry.get("tags") or []
    return FoundModel(
        entry["id"],
        _count(entry.get("downloads")),
        _count(entry.get("likes")),
        is_gated=bool(entry.get("gated")),
        has_gguf="gguf" in tags,
        has_safetensors="safetensors" in tags,
    )


def _count(value: object) -> int:
    return value if type(value) is int and value >= 0 else 0


def parse_listing(text: bytes) -> Listing:
    """The files in the hub's answer. Raises ValueError where it is not what it should be."""
    if len(text) > MAX_LISTING_BYTES:
        raise ValueError("it is too long")
    try:
        answer = json.loads(text)
        return Listing(_matched(_COMMIT, answer["sha"]), tuple(_file(each) for each in answer["siblings"]))
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{type(error).__name__} {error}") from None


def _file(entry: dict[str, Any]) -> RemoteFile:
    path, lfs = entry["rfilename"], entry.get("lfs")
    if _FORBIDDEN.search(path) or any(part in ("", ".", "..") for part in path.split("/")):
        raise ValueError(f"{path!r} is no name of a file in a repository")
    size = entry["size"] if lfs is None else lfs["size"]
    if type(size) is not int or size < 0:
        raise ValueError(f"{path!r} has the size {size!r}")
    digest = _matched(_GIT_DIGEST, entry["blobId"]) if lfs is None else _matched(_LFS_DIGEST, lfs["sha256"])
    return RemoteFile(path, size, digest)


def _matched(pattern: re.Pattern[str], text: str) -> str:
    if pattern.fullmatch(text) is None:
        raise ValueError(f"{text!r} is no digest")
    return text
