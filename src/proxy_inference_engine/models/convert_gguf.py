"""A GGUF file as a folder that MLX loads: written once, kept in the cache. Says why where that is impossible."""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models.resolve import ModelFile
from proxy_inference_engine.models.watcher import Watcher, shares
from proxy_inference_engine.runners.checkpoint import CONFIG, weight_files
from proxy_inference_engine.runners.gguf import folder
from proxy_inference_engine.runners.gguf.file import read_gguf
from proxy_inference_engine.runners.gguf.weights import Numbers
from proxy_inference_engine.runners.llama_cpp.model import Model
from proxy_inference_engine.runners.llama_cpp.tokenizer import Vocabulary

_VERSION = 1  # of what the converter writes


def reason_against(file: ModelFile) -> str | None:
    """Why a GGUF file cannot be converted."""
    try:
        return folder.reason_against(read_gguf(file.path))
    except StartupError as error:
        return error.message


def convert(source: Path, out: Path, numbers: Numbers, on_progress: Callable[[float], None] | None = None) -> None:
    """Write a folder. Each file is written beside it and renamed, the config last: half of one is never loaded.

    Raises StartupError.
    """
    file = read_gguf(source)
    reason = folder.reason_against(file)
    if reason is not None:
        raise StartupError(reason)
    words = Model(source, vocab_only=True)
    try:
        # What ends an answer is more than the file says; both engines shall end at the same tokens.
        generation = {"eos_token_id": sorted(Vocabulary(words).end_ids), **words.generation}
    finally:
        words.close()
    try:
        out.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(dir=out, prefix="part") as partial:
            folder.write_folder(file, Path(partial), numbers, generation, on_progress)
            for path in sorted(Path(partial).iterdir(), key=lambda path: path.name == CONFIG):
                path.replace(out / path.name)
    except OSError as error:
        raise StartupError(f"{str(out)!r}: {error.strerror}") from None
    except (ValueError, TypeError, LookupError) as error:
        raise StartupError(f"what {source.name!r} says of itself does not fit together: {error!r}") from None


def converted(file: ModelFile, numbers: Numbers, cache_dir: Path, watcher: Watcher) -> ModelFile:
    """The folder for a GGUF file, under the same name. Raises StartupError."""
    status = file.path.stat()
    facts = (str(file.path.resolve()), status.st_size, status.st_mtime_ns, _VERSION)
    name = f"{file.path.stem}-{sha256(repr(facts).encode()).hexdigest()[:12]}-mlx-{numbers}"
    target = cache_dir / "weights" / name
    if not _is_whole(target):
        watcher.say("converting the weights for MLX (once)…")
        convert(file.path, target, numbers, shares(watcher, status.st_size))
    return replace(file, path=target, kind="safetensors")


def _is_whole(target: Path) -> bool:
    try:
        return (target / CONFIG).is_file() and bool(weight_files(target))
    except StartupError:
        return False
