"""Which files of a repository are needed: one GGUF model and its mmproj file, or safetensors and what goes with them.

Pure functions over names and sizes. A list of names decides, so code and pickles are never among them.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

from proxy_inference_engine.config.sizes import format_size
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models.download.listing import RemoteFile
from proxy_inference_engine.models.hub import HubName
from proxy_inference_engine.models.resolve import FileKind, best_mmproj, matching, models_among, parts_of
from proxy_inference_engine.runners.checkpoint import CONFIG, INDEX, TOOL_TEMPLATE

_TOKENIZER = "tokenizer.json"
_BESIDE_WEIGHTS = (
    CONFIG,
    _TOKENIZER,
    "generation_config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    TOOL_TEMPLATE,
    "preprocessor_config.json",
    "processor_config.json",
    "video_preprocessor_config.json",
)
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
MAX_INDEX_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Plan:
    """What to fetch. With an index the weights are known only once it has been read."""

    kind: FileKind
    files: tuple[RemoteFile, ...]
    index: RemoteFile | None = None


def make_plan(name: HubName, files: Iterable[RemoteFile], *, wants_mmproj: bool) -> Plan:
    """The files of the model that a name means. Raises StartupError where nothing could run, or no telling which."""
    by_path = {PurePosixPath(file.path): file for file in files}
    paths = list(by_path)
    has_safetensors = any(path.suffix == ".safetensors" and len(path.parts) == 1 for path in paths)
    if name.file is None and PurePosixPath(CONFIG) in by_path and (has_safetensors or not models_among(paths)):
        return _plan_safetensors(name, {str(path): file for path, file in by_path.items()})
    return Plan("gguf", tuple(by_path[path] for path in _gguf_paths(name, by_path, wants_mmproj)))


def read_index(name: HubName, text: bytes, files: Iterable[RemoteFile]) -> tuple[RemoteFile, ...]:
    """The weights that an index speaks of. Raises StartupError."""
    by_path = {file.path: file for file in files}
    try:
        wanted = sorted(set(json.loads(text)["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise StartupError(f"{INDEX} of {name.repository!r} has no table 'weight_map'") from None
    for path in wanted:
        if path not in by_path or not path.endswith(".safetensors"):
            raise StartupError(f"{INDEX} of {name.repository!r} names {path!r}, which is no safetensors file beside it")
    return tuple(by_path[path] for path in wanted)


def _gguf_paths(name: HubName, files: dict[PurePosixPath, RemoteFile], wants_mmproj: bool) -> list[PurePosixPath]:
    models = models_among(files)
    if not models:
        raise StartupError(f"model {name.repository!r} has nothing to run: {_reason(files)}")
    found = matching(models, name.file)
    if len(found) != 1:
        what = "several GGUF files" if found else f"no GGUF file {name.file!r}"
        listed = ", ".join(f"{stem} ({_size(path, files)})" for stem, path in sorted((found or models).items()))
        raise StartupError(
            f"model {name.repository!r} has {what}: {listed}; name one, as {name.repository}:Q4_K_M does"
        )
    parts = parts_of(next(iter(found.values())))
    missing = [part.name for part in parts if part not in files]
    if missing:
        raise StartupError(f"model {name.repository!r} is incomplete on the hub: it has no {missing[0]}")
    mmproj = best_mmproj(path for path in files if path.parent == parts[0].parent and path.match("mmproj*.gguf"))
    return [*parts, mmproj] if mmproj is not None and wants_mmproj else parts


def _size(path: PurePosixPath, files: dict[PurePosixPath, RemoteFile]) -> str:
    return format_size(sum(files[part].size for part in parts_of(path) if part in files))


def _plan_safetensors(name: HubName, files: dict[str, RemoteFile]) -> Plan:
    if _TOKENIZER not in files:
        raise StartupError(f"model {name.repository!r} has no {_TOKENIZER}, and no other tokenizer is read")
    beside = tuple(files[path] for path in _BESIDE_WEIGHTS if path in files)
    index = files.get(INDEX)
    if index is not None:
        if index.size > MAX_INDEX_BYTES:
            raise StartupError(f"{INDEX} of {name.repository!r} has {format_size(index.size)}, which is absurd")
        return Plan("safetensors", (*beside, index), index)
    weights = tuple(
        file
        for path, file in sorted(files.items())
        if PurePosixPath(path).match("model*.safetensors") and "/" not in path
    )
    if not weights:
        raise StartupError(
            f"model {name.repository!r} has no weights: {_reason(PurePosixPath(path) for path in files)}"
        )
    return Plan("safetensors", (*beside, *weights))


def _reason(paths: Iterable[PurePosixPath]) -> str:
    names = [path.name for path in paths]
    if any(name.endswith(_PICKLES) for name in names):
        return "only safetensors and GGUF are loaded, because pickled files can run code"
    if any(name.startswith("adapter") and name.endswith(".safetensors") for name in names):
        return "it is an adapter for another model"
    return f"neither {CONFIG} with model*.safetensors nor a GGUF file"
