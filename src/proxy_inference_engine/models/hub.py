"""Names of models on Hugging Face, and those of them that are in its cache. Nothing here reaches the network.

hub/models--owner--model/refs/main                  → a commit
                         snapshots/<commit>/…       → links to
                         blobs/<digest>             (*.incomplete: a download that is not finished)
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from proxy_inference_engine.errors import StartupError

MAIN = "main"  # the branch where none is named
_NAME = re.compile(
    r"(?P<repository>[\w.-]+/[\w.-]+)(?::(?P<file>[\w.-]+))?(?:@(?P<revision>[\w.-]+(?:/[\w.-]+)*))?", re.ASCII
)
_NEEDED = (".json", ".safetensors", ".jinja", ".gguf")  # a broken link to anything else harms nobody
_NUM_NAMED = 3


class NotCached(StartupError):
    """The name may well be right, but the cache lacks some or all of it: a download would help."""


@dataclass(frozen=True, slots=True)
class HubName:
    """`owner/model`, perhaps `:Q4_K_M` for one file of several, perhaps `@revision`."""

    repository: str
    file: str | None
    revision: str

    @property
    def command(self) -> str:
        """The commands that download this model."""
        extra = "" if self.revision == MAIN else f" --revision {self.revision}"
        return f"`hf download {self.repository}{extra}` or `pie pull {self}`"

    def __str__(self) -> str:
        file = "" if self.file is None else f":{self.file}"
        return f"{self.repository}{file}" + ("" if self.revision == MAIN else f"@{self.revision}")


def parse_name(text: str) -> HubName | None:
    match = _NAME.fullmatch(text)
    if match is None or any(set(part) == {"."} for part in re.split("[/@:]", text)):
        return None
    return HubName(match["repository"], match["file"], match["revision"] or MAIN)


def cache_folder() -> Path:
    """Where Hugging Face's own tools keep it: https://huggingface.co/docs/huggingface_hub/guides/manage-cache"""
    for variable, below in (("HF_HUB_CACHE", ""), ("HUGGINGFACE_HUB_CACHE", ""), ("HF_HOME", "hub")):
        value = os.environ.get(variable)
        if value:
            return Path(os.path.expandvars(value)).expanduser() / below
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "huggingface" / "hub"


def folder_name(name: HubName) -> str:
    """The name of a repository's folder in the cache."""
    return f"models--{name.repository.replace('/', '--')}"


def is_model_file(name: str) -> bool:
    """Whether a GGUF file can be a model of its own: neither an mmproj file nor what somebody quantised it with."""
    return name.endswith(".gguf") and "mmproj" not in name.lower() and not name.lower().startswith("imatrix")


def find_snapshot(name: HubName) -> Path:
    """The folder with the files of a model at its revision. Raises NotCached that says what is missing."""
    repository = cache_folder() / folder_name(name)
    if not repository.is_dir():
        raise NotCached(
            f"model {name.repository!r}: no such file or folder, and not in the Hugging Face cache "
            f"({str(cache_folder())!r}); download it with {name.command}"
        )
    snapshot = repository / "snapshots" / _commit(repository, name)
    missing = sorted(_broken(snapshot))
    if missing:
        more = f" and {len(missing) - _NUM_NAMED} more" if len(missing) > _NUM_NAMED else ""
        raise incomplete(name, snapshot, f"{', '.join(missing[:_NUM_NAMED])}{more} missing")
    return snapshot


def incomplete(name: HubName, snapshot: Path, reason: str) -> NotCached:
    """What to say of a snapshot that lacks something."""
    blobs = snapshot.parents[1] / "blobs"
    unfinished = "; a download of it has not finished" if any(blobs.glob("*.incomplete")) else ""
    return NotCached(
        f"model {name.repository!r} in the Hugging Face cache is incomplete: {reason}{unfinished}; "
        f"complete it with {name.command}"
    )


def _commit(repository: Path, name: HubName) -> str:
    reference = repository / "refs" / name.revision
    try:
        commit = reference.read_text(encoding="utf-8").strip() if reference.is_file() else name.revision
    except (OSError, UnicodeDecodeError) as error:
        raise StartupError(f"model {name.repository!r}: {str(reference)!r} cannot be read: {error}") from None
    if "/" not in commit and commit.strip(".") and (repository / "snapshots" / commit).is_dir():
        return commit
    known = sorted(path.name for path in (repository / "snapshots").glob("*"))
    there = f"; there are {', '.join(known[:_NUM_NAMED])}" if known else ""
    raise NotCached(
        f"model {name.repository!r}: revision {name.revision!r} is not in the Hugging Face cache{there}; "
        f"download it with {name.command}"
    )


def _broken(snapshot: Path) -> Iterator[str]:
    """Files of a snapshot whose links lead nowhere, but for GGUF models: which of those matters is not known here."""
    for path in snapshot.rglob("*"):
        if path.suffix in _NEEDED and path.is_symlink() and not path.exists() and not is_model_file(path.name):
            yield str(path.relative_to(snapshot))


def repositories() -> list[str]:
    """The `owner/model` of everything that was ever downloaded, whole or not."""
    folders = sorted(path.name for path in cache_folder().glob("models--*--*") if path.is_dir())
    names = [name.removeprefix("models--").replace("--", "/", 1) for name in folders]
    return [name for name in names if parse_name(name) is not None]
