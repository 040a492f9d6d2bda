"""A folder with a model in safetensors, as Hugging Face lays it out: its files, and whether they are all there.

Reads names, sizes and JSON only; knows no tensor library.
"""

import json
import re
import struct
from pathlib import Path
from typing import Any

from proxy_inference_engine.errors import StartupError

CONFIG = "config.json"
INDEX = "model.safetensors.index.json"
TOOL_TEMPLATE = "additional_chat_templates/tool_use.jinja"
_PART = re.compile(r"(?P<stem>model.*)-\d{5}-of-(?P<count>\d{5})\.safetensors")
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
_NUM_NAMED = 3  # of files that are missing
_MAX_HEADER_BYTES = 100 << 20  # https://github.com/huggingface/safetensors: what readers accept

Json = dict[str, Any]


def read_object(path: Path) -> Json:
    """A JSON object from a file. Raises StartupError."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StartupError(f"model file {str(path)!r}: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise StartupError(f"model file {str(path)!r} is not JSON") from None
    if not isinstance(value, dict):
        raise StartupError(f"model file {str(path)!r} should be a JSON object")
    return value


def read_optional(path: Path) -> Json:
    """A JSON object from a file that may be missing: then it is empty. Raises StartupError."""
    return read_object(path) if path.exists() else {}


def read_chat_template(path: Path) -> str | None:
    """The chat template, from the first of the files that has one; of several named ones the default."""
    return _read_text(path / "chat_template.jinja") or _named_template(path, "default")


def read_tool_template(path: Path) -> str | None:
    """The chat template for conversations with tools, where that is one of its own. All other names are left alone."""
    return _read_text(path / TOOL_TEMPLATE) or _named_template(path, "tool_use")


def _named_template(path: Path, name: str) -> str | None:
    """A template in one of the JSON files; one that has no name is the default."""
    for file in ("chat_template.json", "tokenizer_config.json"):
        found = read_optional(path / file).get("chat_template")
        if isinstance(found, list):
            found = {each.get("name"): each.get("template") for each in found if isinstance(each, dict)}
        template = found.get(name) if isinstance(found, dict) else found if name == "default" else None
        if isinstance(template, str):
            return template
    return None


def _read_text(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8") if file.exists() else None
    except (OSError, UnicodeDecodeError) as error:
        raise StartupError(f"model file {str(file)!r}: {error}") from None


def weight_files(folder: Path) -> list[Path]:
    """Every file of the weights, checked to be there and whole. Raises StartupError that says what is missing."""
    names = _expected(folder)
    if not names:
        raise StartupError(f"model {str(folder)!r} has no weights: {_reason(folder)}")
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        more = f" and {len(missing) - _NUM_NAMED} more" if len(missing) > _NUM_NAMED else ""
        raise StartupError(
            f"model {str(folder)!r} is incomplete: {', '.join(missing[:_NUM_NAMED])}{more} of {len(names)} files "
            "of weights missing; download it again"
        )
    paths = [folder / name for name in names]
    for path in paths:
        check_safetensors(path)
    return paths


def _expected(folder: Path) -> list[str]:
    """The names of all files of weights: those in the index, or what the numbers in the names that are there say."""
    index = folder / INDEX
    if index.exists() or index.is_symlink():
        names = read_object(index).get("weight_map")
        if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
            raise StartupError(f"model file {str(index)!r} has no table 'weight_map'")
        for name in names.values():
            if Path(name).name != name or not name.endswith(".safetensors"):
                raise StartupError(f"model file {str(index)!r} names {name!r}, which is no safetensors file beside it")
        return sorted(set(names.values()))
    found = sorted(path.name for path in folder.glob("model*.safetensors"))
    expected = set(found)
    for name in found:
        match = _PART.fullmatch(name)
        if match:
            count = match["count"]
            expected |= {f"{match['stem']}-{part:05d}-of-{count}.safetensors" for part in range(1, int(count) + 1)}
    return sorted(expected)


def _reason(folder: Path) -> str:
    if any(any(folder.glob(pattern)) for pattern in _PICKLES):
        return "only safetensors are loaded, because pickled files can run code; convert it first"
    if any(folder.glob("adapter*.safetensors")):
        return "it is an adapter for another model"
    if any(folder.glob("*.gguf")):
        return "give the path of the GGUF file in it"
    return "there is no model*.safetensors in it"


def check_safetensors(path: Path) -> None:
    """Whether the file is as long as its header says: a download that broke off is not."""
    try:
        with path.open("rb") as file:
            size = struct.unpack("<Q", file.read(8))[0]
            header: Json = json.loads(file.read(size) if size <= _MAX_HEADER_BYTES else b"")
            end = max((entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"), default=0)
    except OSError as error:
        raise StartupError(f"model file {str(path)!r}: {error.strerror}") from None
    except (struct.error, ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        raise StartupError(f"model file {str(path)!r} is not a safetensors file") from None
    length, expected = path.stat().st_size, 8 + size + end
    if length != expected:
        raise StartupError(f"model file {str(path)!r} has {length} bytes instead of {expected}: download it again")
