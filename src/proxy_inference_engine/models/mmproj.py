"""Which mmproj file (the weights of a GGUF model's eyes) goes with a model: the one that is set, or one beside it."""

from pathlib import Path
from typing import NamedTuple

from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models.resolve import ModelFile

_NONE = "none"  # what leaves out a file beside the model
_PREFERRED = ("f16", "bf16", "q8_0", "f32")  # of several precisions of one file


class Mmproj(NamedTuple):
    path: Path
    is_set: bool  # by the operator; if not, it was only found


def find_mmproj(name: str | None, file: ModelFile) -> Mmproj | None:
    """Raises StartupError for a name that is no file."""
    if name == _NONE:
        return None
    if name is not None:
        path = Path(name).expanduser()
        if not path.is_file():
            raise StartupError(f"mmproj {name!r}: no such file")
        return Mmproj(path, is_set=True)
    found = sorted(path for path in file.path.parent.glob("mmproj*.gguf") if path.is_file())
    return Mmproj(min(found, key=_rank), is_set=False) if found else None


def _rank(path: Path) -> int:
    """By the last word of the name, as in mmproj-model-f16.gguf."""
    last = path.stem.lower().replace(".", "-").rpartition("-")[2]
    return _PREFERRED.index(last) if last in _PREFERRED else len(_PREFERRED)
