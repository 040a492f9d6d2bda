"""Models that are already in the Hugging Face cache, found by their names. Nothing here reaches the network.

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

_NAME = re.compile(
    r"(?P<repository>[\w.-]+/[\w.-]+)(?::(?P<file>[\w.-]+))?(?:@(?P<revision>[\w.-]+(?:/[\w.-]+)*))?", re.ASCII
)
_NEEDED = (".json", ".safetensors", ".jinja", ".gguf")  # a broken link to anything else harms nobody
_NUM_NAMED = 3


@dataclass(frozen=True, slots=True)
class HubName:
    """`owner/model`, perhaps `:Q4_K_M` for one file of several, perhaps `@revision`."""

    repository: str
    file: str | None
    revision: str

    @property
    def command(self) -> str:
        """What downloads it."""
        extra = "" if self.revision == "main" else f" --revision {self.revision}"
        return f"`hf download {self.repository}{extra}`"


def parse_name(text: str) -> HubName | None:
    match = _NAME.fullmatch(text)
    if match is None or any(set(part) == {"."} for part in re.split("[/@:]", text)):
        return None
    return HubName(match["repository"], match["file"], match["revision"] or "main")


def cache_folder() -> Path:
    """Where Hugging Face's own tools keep it: https://huggingface.co/docs/huggingface_hub/guides/manage-cache"""
    for variable, below in (("HF_HUB_CACHE", ""), ("HUGGINGFACE_HUB_CACHE", ""), ("HF_HOME", "hub")):
        value = os.environ.get(variable)
        if value:
            return Path(os.path.expandvars(value)).expanduser() / below
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "huggingface" / "hub"


def find_snapshot(name: HubName) -> Path:
    """The folder with the files of a model at its revision. Raises StartupError that says what is missing."""
    repository = cache_folder() / f"models--{name.repository.replace('/', '--')}"
    if not repository.is_dir():
        raise StartupError(
            f"model {name.repository!r}: no such file or folder, and not in the Hugging Face cache "
            f"({str(cache_folder())!r}); download it with {name.command}"
        )
    snapshot = repository / "snapshots" / _commit(repository, name)
    missing = sorted(_broken(snapshot))
    if missing:
        more = f" and {len(missing) - _NUM_NAMED} more" if len(missing) > _NUM_NAMED else ""
        raise incomplete(name, snapshot, f"{', '.join(missing[:_NUM_NAMED])}{more} missing")
    return snapshot


def incomplete(name: HubName, snapshot: Path, reason: str) -> StartupError:
    """What to say of a snapshot that lacks something."""
    blobs = snapshot.parents[1] / "blobs"
    unfinished = "; a download of it has not finished" if any(blobs.glob("*.incomplete")) else ""
    return StartupError(
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
    raise StartupError(
        f"model {name.repository!r}: revision {name.revision!r} is not in the Hugging Face cache{there}; "
        f"download it with {name.command}"
    )


def _broken(snapshot: Path) -> Iterator[str]:
    for path in snapshot.rglob("*"):
        if path.suffix in _NEEDED and path.is_symlink() and not path.exists():
            yield str(path.relative_to(snapshot))
